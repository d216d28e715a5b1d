use std::sync::Arc;

use anabranch_kernels::{Device, Tensor};
use cubecl::wgpu::{WgpuDevice, WgpuRuntime};

use super::{DeviceBatch, InferenceRows, KvSlots, Model};
use crate::config::Config;
use crate::fixture::Fixture;
use crate::packed::Packed;
use crate::parameters::Parameters;
use crate::reference;

type Runtime = WgpuRuntime;

fn device() -> Device<Runtime> {
    Device::new(&WgpuDevice::default())
}

/// Weights far enough from zero that softmax and `SiLU` are not near linear.
fn spread(config: &Config) -> Parameters {
    let mut parameters = Parameters::init(config, 9).unwrap();
    let norms = parameters.layout().decayed;
    for value in &mut parameters.data_mut()[..norms] {
        *value *= 6.0;
    }
    for (index, value) in parameters.data_mut()[norms..].iter_mut().enumerate() {
        *value *= 1.0 + 0.2 * (index as f32).sin();
    }
    parameters
}

/// Sequences of various lengths with scored and unscored tokens.
fn sequences(vocab: u32) -> Vec<Vec<u32>> {
    [9, 2, 5, 17, 10, 10, 3]
        .iter()
        .enumerate()
        .map(|(index, len)| (0..*len).map(|i| (i * i * 7 + 3 * index as u32 + i) % vocab).collect())
        .collect()
}

fn packed(sequences: &[Vec<u32>]) -> Packed {
    let mut packed = Packed::new();
    for sequence in sequences {
        packed.push(sequence, |index| index % 3 != 0);
    }
    packed
}

/// Log-probs and the gradient for the given derivative in each of them.
fn run(
    model: &Model<Runtime>,
    parameters: &Parameters,
    packed: &Packed,
    factors: &[f32],
    temperature: f32,
) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    let device = model.device();
    let weights = device.tensor(parameters.data(), &[parameters.data().len()]);
    let gradients = device.zeros(&[parameters.data().len()]);
    let batch = DeviceBatch::new(device, packed);
    let activations = model.forward(&weights, &batch, temperature);
    let factors = device.tensor(factors, &[factors.len()]);
    model.backward(&weights, &batch, &activations, &factors, &gradients);
    let read = |tensor: &Tensor<Runtime>| tensor.read(device);
    (read(activations.log_probs()), read(activations.entropies()), read(&gradients))
}

#[test]
fn fixture_of_another_implementation() {
    let fixture = Fixture::read();
    let model = Model::new(&device(), &Arc::new(fixture.config.clone()));
    let temperature = fixture.temperature as f32;
    let (log_probs, _, gradient) = run(&model, &fixture.weights, &fixture.packed, &fixture.factors, temperature);
    fixture.check_log_probs(&log_probs, 1e-5);
    fixture.check_gradients(&gradient, 1e-4);
}

#[test]
fn forward_and_backward_match_the_reference() {
    for (kv_heads, tied) in [(4, false), (2, true)] {
        let config = Config { kv_heads, tied, ..Config::tiny(16) };
        let model = Model::new(&device(), &Arc::new(config.clone()));
        let parameters = spread(&config);
        let packed = packed(&sequences(16));
        let factors: Vec<f32> = (0..packed.scored.len()).map(|i| (i as f32).cos()).collect();
        let (log_probs, entropies, gradient) = run(&model, &parameters, &packed, &factors, 0.9);

        let wide = |values: &[f32]| values.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
        let (weights, layout) = (wide(parameters.data()), parameters.layout());
        let temperature = f64::from(0.9_f32);
        let trace = reference::forward(&config, layout, &weights, &packed, temperature);
        let expected = reference::backward(&config, layout, &weights, &packed, &trace, &wide(&factors), temperature);
        for (ours, exact) in [(&log_probs, &trace.log_probs), (&entropies, &trace.entropies)] {
            for (ours, exact) in ours.iter().zip(exact) {
                let error = (f64::from(*ours) - exact).abs() / exact.abs();
                assert!(error < 1e-5, "{ours}, reference {exact}");
            }
        }
        for slot in layout.slots() {
            let (ours, exact) = (&gradient[slot.range()], &expected[slot.range()]);
            let largest = exact.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
            assert!(largest > 0.0, "{}", slot.name);
            for (ours, exact) in ours.iter().zip(exact) {
                let error = (f64::from(*ours) - exact).abs() / largest;
                assert!(error < 1e-4, "{}: {ours}, reference {exact}", slot.name);
            }
        }
    }
}

#[test]
fn log_probs_do_not_depend_on_what_else_is_packed() {
    let config = Config::tiny(16);
    let model = Model::new(&device(), &Arc::new(config.clone()));
    let parameters = spread(&config);
    let sequences = sequences(16);
    let together = packed(&sequences);
    let (log_probs, ..) = run(&model, &parameters, &together, &vec![0.0; together.scored.len()], 1.0);
    let mut alone = Vec::new();
    for sequence in &sequences {
        let single = packed(std::slice::from_ref(sequence));
        if single.scored.is_empty() {
            continue;
        }
        let (log_probs, ..) = run(&model, &parameters, &single, &vec![0.0; single.scored.len()], 1.0);
        alone.extend(log_probs);
    }
    assert_eq!(bits(&log_probs), bits(&alone));
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn logits_do_not_depend_on_how_the_tokens_arrive() {
    let config = Config { kv_heads: 2, ..Config::tiny(16) };
    let model = Model::new(&device(), &Arc::new(config.clone()));
    let parameters = spread(&config);
    let weights = model.device().tensor(parameters.data(), &[parameters.data().len()]);
    let sequences = sequences(16);
    let read = |rows: &InferenceRows, slots: &KvSlots<Runtime>| {
        model.infer(&weights, rows, slots).expect("rows are wanted").read(model.device())
    };

    // All tokens of all sequences in one pass, in slots that are not in order.
    let slots = KvSlots::new(&model, 2 * sequences.len(), 20);
    let mut rows = InferenceRows::default();
    for (index, sequence) in sequences.iter().enumerate() {
        for (position, token) in sequence.iter().enumerate() {
            rows.wanted.push(rows.tokens.len() as u32);
            rows.tokens.push(*token);
            rows.slots.push((2 * (sequences.len() - index) - 1) as u32);
            rows.positions.push(position as u32);
        }
    }
    let at_once = read(&rows, &slots);

    // One token a pass, one sequence after the other.
    let slots = KvSlots::new(&model, 1, 20);
    let mut one_by_one = Vec::new();
    for sequence in &sequences {
        for (position, token) in sequence.iter().enumerate() {
            let rows = InferenceRows {
                tokens: vec![*token],
                slots: vec![0],
                positions: vec![position as u32],
                wanted: vec![0],
                ..InferenceRows::default()
            };
            one_by_one.extend(read(&rows, &slots));
        }
    }
    assert_eq!(bits(&at_once), bits(&one_by_one));

    // A prompt computed once and copied, then continued in the copy.
    let slots = KvSlots::new(&model, 3, 20);
    let prompt = &sequences[0];
    let last = prompt.len() as u32 - 1;
    let rows = InferenceRows {
        tokens: prompt.clone(),
        slots: vec![0; prompt.len()],
        positions: (0..=last).collect(),
        copies: (0..=last).map(|row| (row, 2)).collect(),
        wanted: vec![last, last],
    };
    let first = read(&rows, &slots);
    assert_eq!(bits(&first[..16]), bits(&first[16..]));
    let rows = InferenceRows {
        tokens: vec![3, 3],
        slots: vec![2, 0],
        positions: vec![last + 1, last + 1],
        wanted: vec![0, 1],
        ..InferenceRows::default()
    };
    let next = read(&rows, &slots);
    assert_eq!(bits(&next[..16]), bits(&next[16..]));
    assert!(next.iter().all(|logit| logit.is_finite()));
}
