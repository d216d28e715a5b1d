//! Launches every kernel of the crate once in every variant it is compiled in, on `cuda` or `wgpu`.
//!
//! `tests/cuda-stub/check.sh` runs it on a driver that executes nothing, to see every kernel compiled for sm_90a; on a real
//! device it is a smoke test. Each step states how many kernels it is the first to need; the script counts modules.

use anabranch_kernels::advantage::{self, Kind};
use anabranch_kernels::attention::{self, AttentionShape};
use anabranch_kernels::cache::{self, KvCache};
use anabranch_kernels::head::{self, Head, HeadGradient, HeadOutput};
use anabranch_kernels::linear::{self, Write};
use anabranch_kernels::optimizer::{self, AdamW, GradientNorm};
use anabranch_kernels::policy_loss::{self, Clip, Correction, Inputs, LossOutput};
use anabranch_kernels::sample::{self, RowSettings, SampleOutput};
use anabranch_kernels::{Device, Packing, elementwise, embedding, rms_norm, rope, swiglu};
use cubecl::prelude::Runtime;

fn main() {
    let backend = std::env::args().nth(1);
    let kernels = match backend.as_deref() {
        Some("cuda") => launch_all(&Device::<cubecl::cuda::CudaRuntime>::new(&cubecl::cuda::CudaDevice::default())),
        Some("wgpu") => launch_all(&Device::<cubecl::wgpu::WgpuRuntime>::new(&cubecl::wgpu::WgpuDevice::default())),
        other => {
            eprintln!("usage: compile_all cuda|wgpu (got {other:?})");
            std::process::exit(2);
        }
    };
    println!("distinct kernels: {kernels}");
}

/// What it launches, how many kernels it is the first to need, and the launches.
type Step<R> = (&'static str, usize, fn(&Device<R>));

/// Runs the steps and returns how many distinct kernels they need.
fn launch_all<R: Runtime>(device: &Device<R>) -> usize {
    let steps: [Step<R>; 8] = [
        ("elementwise: fill, copy, axpy", 3, elementwise),
        ("embedding: gather, scatter, gradient", 3, embedding),
        ("rms_norm: forward and backward for short and long rows, slab sums", 6, rms_norm),
        ("attention of 16, 64 and 128 elements: rotation, packed, backward (2), decode, append", 18, attention),
        ("swiglu: forward, backward", 2, swiglu),
        ("linear: three products, with vectors of four and of one element", 6, linear),
        ("head: chunks first, middle, last and only, short and long; backward with and without entropy", 10, head),
        (
            "training: advantages, losses, gradient norm (2), AdamW; sampling short and long, truncated or not",
            14,
            training,
        ),
    ];
    let mut total = 0;
    for (name, kernels, step) in steps {
        step(device);
        device.sync();
        println!("{kernels:3} {name}");
        total += kernels;
    }
    total
}

fn elementwise<R: Runtime>(device: &Device<R>) {
    let (x, y) = (device.zeros(&[128]), device.zeros(&[128]));
    elementwise::copy(device, &x, &y);
    elementwise::axpy(device, 2.0, &x, &y);
}

fn embedding<R: Runtime>(device: &Device<R>) {
    let (table, ids) = (device.zeros(&[8, 64]), [1, 2, 3]);
    let out = device.zeros(&[3, 64]);
    embedding::gather(device, &table, &device.ids(&ids), &out);
    embedding::scatter(device, &out, &device.ids(&ids), &table);
    embedding::gradient(device, &embedding::Occurrences::new(device, &ids), &out, &table);
}

fn rms_norm<R: Runtime>(device: &Device<R>) {
    for width in [64, 4096] {
        let rows = || device.zeros(&[3, width]);
        let (x, weight, out, inv_rms) = (rows(), device.zeros(&[width]), rows(), device.zeros(&[3]));
        rms_norm::forward(device, &x, &weight, 1e-5, &out, &inv_rms);
        rms_norm::backward(device, &x, &weight, &inv_rms, &out, &rows(), &device.zeros(&[width]));
    }
}

fn attention<R: Runtime>(device: &Device<R>) {
    for (query_heads, kv_heads, head_dim) in [(4, 4, 16), (8, 2, 64), (32, 8, 128)] {
        let shape = AttentionShape { query_heads, kv_heads, head_dim };
        let packing = Packing::new(device, &[3, 2]);
        let rows = || device.zeros(&[5, shape.row()]);
        let out = || device.zeros(&[5, shape.out_row()]);
        let (qkv, sums, result) = (rows(), device.zeros(&[5, query_heads]), out());
        let table = rope::Table::new(device, 1e4, head_dim, 8);
        rope::apply(device, &table, &packing.positions, &shape, &qkv);
        attention::forward(device, &shape, &qkv, &packing, &result, &sums);
        attention::backward(device, &shape, &qkv, &result, &sums, &out(), &packing, &rows());
        let kv = KvCache::new(device, &shape, 2, 4);
        let slots = device.ids(&[0, 0, 0, 1, 1]);
        cache::append(device, &shape, &qkv, &slots, &packing.positions, &kv);
        attention::decode(device, &shape, &qkv, &slots, &device.ids(&[1, 2, 3, 1, 2]), &kv, &result);
    }
}

fn swiglu<R: Runtime>(device: &Device<R>) {
    let (gate_up, out) = (device.zeros(&[3, 320]), device.zeros(&[3, 160]));
    swiglu::forward(device, &gate_up, &out);
    swiglu::backward(device, &gate_up, &out, &device.zeros(&[3, 320]));
}

fn linear<R: Runtime>(device: &Device<R>) {
    for (rows, inner, columns) in [(8, 64, 16), (7, 33, 9)] {
        let (x, weight) = (device.zeros(&[rows, inner]), device.zeros(&[columns, inner]));
        let y = device.zeros(&[rows, columns]);
        linear::forward(device, &x, &weight, &y, Write::Add);
        linear::grad_input(device, &y, &weight, &x, Write::Add);
        linear::grad_weight(device, &y, &x, &weight, Write::Add);
    }
}

fn head<R: Runtime>(device: &Device<R>) {
    for (vocab, chunk) in [(16, 64), (192, 64), (1000, 1024), (3072, 1024)] {
        let head = Head::new(chunk);
        let (hidden, weight) = (device.zeros(&[4, 8]), device.zeros(&[vocab, 8]));
        let targets = device.ids(&[0, 1, 2, 3]);
        let out = HeadOutput::new(device, 4);
        head::forward(device, &head, &hidden, &weight, &targets, 0.7, &out);
        let rows = device.zeros(&[4]);
        for entropy in [None, Some(&rows)] {
            let gradient = HeadGradient { log_prob: &rows, entropy };
            let (grad_hidden, grad_weight) = (device.zeros(&[4, 8]), device.zeros(&[vocab, 8]));
            head::backward(device, &head, &hidden, &weight, &targets, 0.7, &out, gradient, &grad_hidden, &grad_weight);
        }
    }
}

fn training<R: Runtime>(device: &Device<R>) {
    let n = || device.zeros(&[100]);
    for kind in [Kind::Grpo { eps: 1e-6 }, Kind::MeanOnly, Kind::Rloo] {
        advantage::group(device, kind, &n(), &device.ids(&[0, 60, 100]), &n());
    }
    let inputs = Inputs { log_prob: n(), proximal: n(), behaviour: n(), advantages: n(), mask: n(), entropy: n() };
    for correction in [Correction::None, Correction::Truncated { cap: 2.0 }] {
        let clip = Clip { low: 0.2, high: 0.28, dual: Some(3.0) };
        policy_loss::forward_backward(device, &clip, &correction, &inputs, 0.01, &n(), &LossOutput::new(device, 100));
    }
    let norm = GradientNorm::new(device, 100);
    optimizer::gradient_norm(device, &n(), &norm);
    let settings =
        AdamW { learning_rate: 1e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.01, max_norm: Some(1.0) };
    optimizer::adamw(device, &settings, 1, 50, &n(), &n(), &n(), &n(), &norm);
    for vocab in [16, 1000] {
        let logits = device.zeros(&[2, vocab]);
        let row = RowSettings::new([1, 2], [3, 4, 5, 6]);
        for row in [row, RowSettings { top_k: 3, top_p: 0.9, ..row }] {
            sample::sample(device, &Head::default(), &logits, &[row; 2], &SampleOutput::new(device, 2));
        }
    }
}
