//! experiment
use anabranch_kernels::linear::{cubek, tile};
use anabranch_kernels::{Device, Tensor};
use cubecl::wgpu::WgpuRuntime as R;
use cubek_matmul::launch::Strategy;
use std::time::Instant;

fn time(device: &Device<R>, flop: f64, name: &str, mut f: impl FnMut()) {
    f();
    device.sync();
    let mut best = f64::MAX;
    for _ in 0..5 {
        let t = Instant::now();
        for _ in 0..4 {
            f();
        }
        device.sync();
        best = best.min(t.elapsed().as_secs_f64() / 4.0);
    }
    println!("{name:40} {:8.3} ms {:7.2} GFLOP/s", best * 1e3, flop / best / 1e9);
}
fn main() {
    let device = Device::<R>::new(&Default::default());
    println!("{:?}", device.client().properties().hardware);
    println!("{:?}", device.client().properties().memory);
    println!("{:?}", device.client().properties().features.plane);
    let m = 5120;
    let strategies = [("auto", Strategy::Auto), ("simple", Strategy::SimpleUnit(cubek_matmul::routines::BlueprintStrategy::Inferred(Default::default()))), ("double", Strategy::DoubleUnit(cubek_matmul::routines::BlueprintStrategy::Inferred(Default::default()))), ("naive", Strategy::Naive)];
    for (k, n) in [(64, 192), (64, 64), (64, 320), (160, 64), (64, 16)] {
        let flop = 2.0 * (m * n * k) as f64;
        let t = |r: usize, c: usize| -> Tensor<R> {
            let v: Vec<f32> = (0..r * c).map(|i| ((i * 7919) % 1013) as f32 / 1013.0 - 0.5).collect();
            device.tensor(&v, &[r, c])
        };
        let (x, w, y) = (t(m, k), t(n, k), t(m, n));
        for (name, s) in &strategies {
            time(&device, flop, &format!("{name} fwd k{k} n{n}"), || cubek::product(&device, s, &x, false, &w, true, &y));
        }
        for tl in [4, 8, 16, 32] {
            for lanes in [8, 16, 64] {
                time(&device, flop, &format!("tile{tl} lanes{lanes} fwd k{k} n{n}"), || tile::forward(&device, &x, &w, &y, tl, lanes));
            }
        }
        let dx = t(m, k);
        for (name, s) in &strategies {
            time(&device, flop, &format!("{name} dx k{k} n{n}"), || cubek::product(&device, s, &y, false, &w, false, &dx));
        }
        for tl in [4, 8, 16, 32] {
            for lanes in [8, 16, 64] {
                time(&device, flop, &format!("tile{tl} lanes{lanes} dx k{k} n{n}"), || tile::grad_input(&device, &y, &w, &dx, tl, lanes));
            }
        }
        let dw = t(n, k);
        for (name, s) in &strategies {
            time(&device, flop, &format!("{name} dw k{k} n{n}"), || cubek::product(&device, s, &y, true, &x, false, &dw));
        }
        for slab in [128, 512] {
            let p = t(n * m / slab, k);
            for tl in [8, 16, 32] {
                for lanes in [8, 64] {
                    time(&device, flop, &format!("tile{tl} slab{slab} lanes{lanes} dw k{k} n{n}"), || tile::grad_weight(&device, &y, &x, &p, tl, lanes, slab));
                }
            }
        }
    }
}
