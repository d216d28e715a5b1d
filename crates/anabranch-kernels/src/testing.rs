//! Support for the kernel tests: a device, seeded inputs, poisoned outputs and comparisons that NaN never passes.

use crate::{Device, Tensor};

/// The runtime the tests run on.
pub(crate) type TestRuntime = cubecl::wgpu::WgpuRuntime;

/// Norm-wise relative error allowed between f32 on the device and f64, forward.
pub(crate) const FORWARD: f64 = 1e-5;
/// The same for gradients.
pub(crate) const GRADIENT: f64 = 1e-4;

pub(crate) fn device() -> Device<TestRuntime> {
    Device::new(&cubecl::wgpu::WgpuDevice::default())
}

/// A seeded generator (SplitMix64), fresh for each run unless `ANABRANCH_TEST_SEED` is set. The seed is printed, and
/// the test harness shows it when the test fails.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Self {
        let seed = std::env::var("ANABRANCH_TEST_SEED").map_or_else(
            |_| std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0u8),
            |seed| seed.parse().expect("ANABRANCH_TEST_SEED is a number"),
        );
        println!("ANABRANCH_TEST_SEED={seed}");
        Self(seed)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.word() % limit as u64) as usize
    }

    /// Normal values with deviation `scale`, exactly representable in f32.
    pub(crate) fn normal(&mut self, len: usize, scale: f64) -> Vec<f64> {
        (0..len)
            .map(|_| {
                let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
                f64::from((scale * radius * (std::f64::consts::TAU * self.unit()).cos()) as f32)
            })
            .collect()
    }

    pub(crate) fn ids(&mut self, len: usize, limit: usize) -> Vec<u32> {
        (0..len).map(|_| self.below(limit) as u32).collect()
    }
}

pub(crate) fn upload(device: &Device<TestRuntime>, values: &[f64], shape: &[usize]) -> Tensor<TestRuntime> {
    let values: Vec<f32> = values.iter().map(|v| *v as f32).collect();
    device.tensor(&values, shape)
}

/// An output that is NaN until a kernel writes it.
pub(crate) fn poisoned(device: &Device<TestRuntime>, shape: &[usize]) -> Tensor<TestRuntime> {
    device.tensor(&vec![f32::NAN; shape.iter().product()], shape)
}

/// ‖got − want‖ / ‖want‖, NaN included.
pub(crate) fn distance(got: &[f64], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len(), "lengths differ");
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let error = norm(&mut got.iter().zip(want).map(|(g, w)| g - w));
    let size = norm(&mut want.iter().copied());
    if size == 0.0 { error } else { error / size }
}

/// Fails unless the tensor is within `tolerance` of `want`, norm-wise. NaN anywhere fails.
#[track_caller]
pub(crate) fn assert_close(
    device: &Device<TestRuntime>,
    name: &str,
    got: &Tensor<TestRuntime>,
    want: &[f64],
    tolerance: f64,
) {
    let got: Vec<f64> = got.read(device).into_iter().map(f64::from).collect();
    let distance = distance(&got, want);
    // Written so that NaN fails.
    assert!(distance <= tolerance, "{name}: relative error {distance:e} exceeds {tolerance:e}");
}

/// Fails unless `gradient` is the derivative of `loss` at `at`, by central differences.
#[track_caller]
pub(crate) fn assert_gradient(name: &str, at: &[f64], gradient: &[f64], loss: impl Fn(&[f64]) -> f64) {
    let step = 1e-5;
    let numeric: Vec<f64> = (0..at.len())
        .map(|i| {
            let mut moved = at.to_vec();
            moved[i] = at[i] + step;
            let up = loss(&moved);
            moved[i] = at[i] - step;
            (up - loss(&moved)) / (2.0 * step)
        })
        .collect();
    let distance = distance(gradient, &numeric);
    assert!(distance <= 1e-6, "{name}: off the finite difference by {distance:e}");
}

/// Σ a·b: a loss whose gradient in `a` is `b`.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The bits, so that comparisons are exact and NaN equals itself.
pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}
