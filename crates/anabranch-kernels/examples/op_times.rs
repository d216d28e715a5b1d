//! Times every operation of one training step and one decode step at the shapes of the demo's model: 2 layers, d 64, 4
//! heads of 16, feed-forward 160, 16 tokens; 512 sequences of 10 tokens of which 4 have a target. Used to tune the
//! kernels.
//!
//! Times on a shared machine say little alone: compare them with one another, and with the floor beside each.

use std::time::Instant;

use anabranch_kernels::attention::{self, AttentionShape};
use anabranch_kernels::cache::{self, KvCache};
use anabranch_kernels::head::{self, Head, HeadGradient, HeadOutput};
use anabranch_kernels::linear::{self, Write};
use anabranch_kernels::optimizer::{self, AdamW, GradientNorm};
use anabranch_kernels::policy_loss::{self, Clip, Correction, Inputs, LossOutput};
use anabranch_kernels::sample::{self, RowSettings, SampleOutput};
use anabranch_kernels::{Device, Packing, Tensor, elementwise, embedding, rms_norm, rope, swiglu};
use cubecl::wgpu::WgpuRuntime;

type Gpu = Device<WgpuRuntime>;

const LAYERS: usize = 2;
const SEQUENCES: usize = 512;
const LENGTH: usize = 10;
const TOKENS: usize = SEQUENCES * LENGTH;
const TARGETS: usize = SEQUENCES * 4;
const WIDTH: usize = 64;
const INNER: usize = 160;
const VOCAB: usize = 16;
const SHAPE: AttentionShape = AttentionShape { query_heads: 4, kv_heads: 4, head_dim: 16 };

/// Adds up the times of a step of the model.
struct Sheet<'a> {
    device: &'a Gpu,
    train: f64,
    decode: f64,
}

#[derive(Clone, Copy)]
enum Part {
    Train(usize),
    Decode(usize),
}

impl Sheet<'_> {
    /// Times `run` (best of several), prints it and adds it as often as the step needs it.
    fn time(&mut self, name: &str, part: Part, flop: usize, run: impl Fn()) {
        let first = Instant::now();
        run();
        self.device.sync();
        let first = first.elapsed().as_secs_f64();
        let mut best = f64::MAX;
        for _ in 0..7 {
            let start = Instant::now();
            run();
            self.device.sync();
            best = best.min(start.elapsed().as_secs_f64());
        }
        let (times, total) = match part {
            Part::Train(times) => (times, &mut self.train),
            Part::Decode(times) => (times, &mut self.decode),
        };
        *total += best * times as f64;
        let rate = flop as f64 / best / 1e9;
        println!("{name:28} {:8.3} ms x {times}   {rate:6.2} GFLOP/s   first call {:6.2} s", best * 1e3, first);
    }
}

fn values(device: &Gpu, shape: &[usize]) -> Tensor<WgpuRuntime> {
    let len: usize = shape.iter().product();
    let values: Vec<f32> = (0..len).map(|i| ((i * 7919) % 2003) as f32 / 2003.0 - 0.5).collect();
    device.tensor(&values, shape)
}

fn main() {
    let device = Gpu::new(&cubecl::wgpu::WgpuDevice::default());
    let mut sheet = Sheet { device: &device, train: 0.0, decode: 0.0 };
    layers(&mut sheet);
    products(&mut sheet);
    ends(&mut sheet);
    decoding(&mut sheet);
    println!("train step {:.0} ms, decode step {:.1} ms", sheet.train * 1e3, sheet.decode * 1e3);
}

fn layers(sheet: &mut Sheet<'_>) {
    let device = sheet.device;
    let (x, y, grad) =
        (values(device, &[TOKENS, WIDTH]), values(device, &[TOKENS, WIDTH]), device.zeros(&[TOKENS, WIDTH]));
    let (weight, grad_weight) = (values(device, &[WIDTH]), device.zeros(&[WIDTH]));
    let inv_rms = device.empty(&[TOKENS]);
    let norms = 2 * LAYERS + 1;
    sheet.time("rms_norm forward", Part::Train(norms), 4 * TOKENS * WIDTH, || {
        rms_norm::forward(device, &x, &weight, 1e-5, &y, &inv_rms);
    });
    sheet.time("rms_norm backward", Part::Train(norms), 12 * TOKENS * WIDTH, || {
        rms_norm::backward(device, &x, &weight, &inv_rms, &y, &grad, &grad_weight);
    });
    sheet.time("residual add", Part::Train(2 * LAYERS), TOKENS * WIDTH, || elementwise::add(device, &x, &y));

    let packing = Packing::new(device, &[LENGTH; SEQUENCES]);
    let (qkv, grad_qkv) = (values(device, &[TOKENS, SHAPE.row()]), device.empty(&[TOKENS, SHAPE.row()]));
    let (out, log_sums) = (device.empty(&[TOKENS, WIDTH]), device.empty(&[TOKENS, 4]));
    let table = rope::Table::new(device, 1e4, 16, LENGTH);
    sheet.time("rope", Part::Train(2 * LAYERS), 6 * TOKENS * WIDTH, || {
        rope::apply(device, &table, &packing.positions, &SHAPE, &qkv);
    });
    let pairs = SEQUENCES * LENGTH * (LENGTH + 1) / 2;
    sheet.time("attention forward", Part::Train(LAYERS), 4 * pairs * WIDTH, || {
        attention::forward(device, &SHAPE, &qkv, &packing, &out, &log_sums);
    });
    sheet.time("attention backward", Part::Train(LAYERS), 10 * pairs * WIDTH, || {
        attention::backward(device, &SHAPE, &qkv, &out, &log_sums, &x, &packing, &grad_qkv);
    });
    let (gate_up, act) = (values(device, &[TOKENS, 2 * INNER]), values(device, &[TOKENS, INNER]));
    let grad_gate_up = device.empty(&[TOKENS, 2 * INNER]);
    sheet.time("swiglu forward", Part::Train(LAYERS), 4 * TOKENS * INNER, || swiglu::forward(device, &gate_up, &act));
    sheet.time("swiglu backward", Part::Train(LAYERS), 10 * TOKENS * INNER, || {
        swiglu::backward(device, &gate_up, &act, &grad_gate_up);
    });
}

fn products(sheet: &mut Sheet<'_>) {
    let device = sheet.device;
    for (name, inner, columns) in
        [("qkv", WIDTH, SHAPE.row()), ("out", WIDTH, WIDTH), ("gate_up", WIDTH, 2 * INNER), ("down", INNER, WIDTH)]
    {
        let (x, w) = (values(device, &[TOKENS, inner]), values(device, &[columns, inner]));
        let y = values(device, &[TOKENS, columns]);
        let flop = 2 * TOKENS * inner * columns;
        sheet.time(&format!("{name} forward"), Part::Train(LAYERS), flop, || {
            linear::forward(device, &x, &w, &y, Write::Overwrite);
        });
        sheet.time(&format!("{name} grad_input"), Part::Train(LAYERS), flop, || {
            linear::grad_input(device, &y, &w, &x, Write::Overwrite);
        });
        sheet.time(&format!("{name} grad_weight"), Part::Train(LAYERS), flop, || {
            linear::grad_weight(device, &y, &x, &w, Write::Add);
        });
    }
}

fn ends(sheet: &mut Sheet<'_>) {
    let device = sheet.device;
    let ids: Vec<u32> = (0..TOKENS).map(|i| (i * 31 % VOCAB) as u32).collect();
    let ids_device = device.ids(&ids);
    let (table, rows) = (values(device, &[VOCAB, WIDTH]), values(device, &[TOKENS, WIDTH]));
    let occurrences = embedding::Occurrences::new(device, &ids);
    sheet.time("embedding gather", Part::Train(2), 0, || embedding::gather(device, &table, &ids_device, &rows));
    sheet.time("embedding gradient", Part::Train(1), 0, || {
        embedding::gradient(device, &occurrences, &rows, &table);
    });

    let head = Head::default();
    let (hidden, weight) = (values(device, &[TARGETS, WIDTH]), values(device, &[VOCAB, WIDTH]));
    let targets = device.ids(&ids[..TARGETS]);
    let out = HeadOutput::new(device, TARGETS);
    let grad = values(device, &[TARGETS]);
    let (grad_hidden, grad_weight) = (device.empty(&[TARGETS, WIDTH]), device.zeros(&[VOCAB, WIDTH]));
    let flop = 2 * TARGETS * WIDTH * VOCAB;
    sheet.time("head forward", Part::Train(1), flop, || {
        head::forward(device, &head, &hidden, &weight, &targets, 1.0, &out);
    });
    sheet.time("head backward", Part::Train(1), 3 * flop, || {
        let gradient = HeadGradient { log_prob: &grad, entropy: None };
        head::backward(device, &head, &hidden, &weight, &targets, 1.0, &out, gradient, &grad_hidden, &grad_weight);
    });
    let n = || values(device, &[TARGETS]);
    let inputs = Inputs { log_prob: n(), proximal: n(), behaviour: n(), advantages: n(), mask: n(), entropy: n() };
    let loss = LossOutput::new(device, TARGETS);
    let clip = Clip { low: 0.2, high: 0.2, dual: None };
    sheet.time("policy_loss", Part::Train(1), 0, || {
        policy_loss::forward_backward(device, &clip, &Correction::None, &inputs, 1e-3, &grad, &loss);
    });
    let count = 96_640;
    let (params, grads) = (values(device, &[count]), values(device, &[count]));
    let (first, second) = (device.zeros(&[count]), device.zeros(&[count]));
    let norm = GradientNorm::new(device, count);
    let settings =
        AdamW { learning_rate: 1e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.01, max_norm: Some(1.0) };
    sheet.time("gradient norm and AdamW", Part::Train(1), 0, || {
        optimizer::gradient_norm(device, &grads, &norm);
        optimizer::adamw(device, &settings, 1, count, &params, &grads, &first, &second, &norm);
    });
}

fn decoding(sheet: &mut Sheet<'_>) {
    let device = sheet.device;
    let qkv = values(device, &[SEQUENCES, SHAPE.row()]);
    let out = device.empty(&[SEQUENCES, WIDTH]);
    let kv = KvCache::new(device, &SHAPE, SEQUENCES, LENGTH);
    elementwise::fill(device, 0.1, &kv.keys);
    elementwise::fill(device, 0.1, &kv.values);
    let slots = device.ids(&(0..SEQUENCES as u32).collect::<Vec<_>>());
    let (positions, lengths) = (device.ids(&[8; SEQUENCES]), device.ids(&[9; SEQUENCES]));
    sheet.time("cache append", Part::Decode(LAYERS), 0, || {
        cache::append(device, &SHAPE, &qkv, &slots, &positions, &kv);
    });
    sheet.time("attention decode", Part::Decode(LAYERS), 4 * SEQUENCES * 9 * WIDTH, || {
        attention::decode(device, &SHAPE, &qkv, &slots, &lengths, &kv, &out);
    });
    for (name, inner, columns) in
        [("qkv", WIDTH, SHAPE.row()), ("out", WIDTH, WIDTH), ("gate_up", WIDTH, 2 * INNER), ("down", INNER, WIDTH)]
    {
        let (x, w) = (values(device, &[SEQUENCES, inner]), values(device, &[columns, inner]));
        let y = values(device, &[SEQUENCES, columns]);
        sheet.time(&format!("{name} of a decode step"), Part::Decode(LAYERS), 2 * SEQUENCES * inner * columns, || {
            linear::forward(device, &x, &w, &y, Write::Overwrite);
        });
    }
    let logits = values(device, &[SEQUENCES, VOCAB]);
    let rows: Vec<_> = (0..SEQUENCES as u32).map(|i| RowSettings::new([1, 2], [i, 0, 0, 0])).collect();
    let drawn = SampleOutput::new(device, SEQUENCES);
    sheet.time("sample and read", Part::Decode(1), 0, || {
        sample::sample(device, &Head::default(), &logits, &rows, &drawn);
        assert_eq!(drawn.read(device).len(), SEQUENCES);
    });
}
