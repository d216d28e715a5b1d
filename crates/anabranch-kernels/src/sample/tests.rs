use super::{RowSettings, SampleOutput, Sampled, reference, sample};
use crate::head::{self, Head, HeadOutput};
use crate::testing::{Random, TestRuntime, device, poisoned, upload};
use crate::{Device, Tensor};

/// Beyond this margin f32 and f64 must draw the same token: the rounding of a cumulative sum of a thousand terms.
const MARGIN: f64 = 1e-4;

fn draw(device: &Device<TestRuntime>, head: Head, logits: &Tensor<TestRuntime>, rows: &[RowSettings]) -> Vec<Sampled> {
    let out = SampleOutput { words: device.tensor_u32(&vec![u32::MAX; rows.len() * 4], &[rows.len(), 4]) };
    sample(device, &head, logits, rows, &out);
    out.read(device)
}

fn settings(random: &mut Random, temperature: f32, top_k: u32, top_p: f32) -> RowSettings {
    let mut words = || random.word() as u32;
    RowSettings { temperature, top_k, top_p, key: [words(), words()], counter: [words(), words(), words(), words()] }
}

#[test]
fn draws_what_the_reference_draws() {
    let device = device();
    let mut random = Random::new();
    // One unit a row, several chunks, and a cube a row.
    for (vocab, chunk) in [(16, 8192), (200, 64), (1, 64), (1300, 640)] {
        let head = Head::new(chunk);
        for (temperature, top_k, top_p) in
            [(1.0, 0, 1.0), (0.6, 0, 1.0), (1.0, 5, 1.0), (1.3, 0, 0.8), (0.9, 7, 0.5), (1.0, 1, 1.0), (0.0, 3, 0.5)]
        {
            let count = 66;
            let logits = random.normal(count * vocab, 2.0);
            let logits_d = upload(&device, &logits, &[count, vocab]);
            let rows: Vec<_> = (0..count).map(|_| settings(&mut random, temperature, top_k, top_p)).collect();
            let got = draw(&device, head, &logits_d, &rows);
            let mut close = 0;
            for ((got, row), logits) in got.iter().zip(&rows).zip(logits.chunks_exact(vocab)) {
                let want = reference::draw(logits, row);
                let case = format!("{vocab} {temperature} {top_k} {top_p}: {got:?} {want:?}");
                if want.margin < MARGIN {
                    close += 1;
                    continue;
                }
                assert_eq!(got.token as usize, want.token, "{case}");
                for (got, want) in [
                    (got.log_prob, want.log_prob),
                    (got.log_prob_truncated, want.log_prob_truncated),
                    (got.log_prob_untempered, want.log_prob_untempered),
                ] {
                    assert!((f64::from(got) - want).abs() <= 1e-5 * (1.0 + want.abs()), "{case}");
                }
            }
            assert!(close < count / 2, "{close} of {count} draws were too close to an edge to judge");
        }
    }
}

#[test]
fn a_sampled_log_prob_has_the_bits_of_the_head() {
    let device = device();
    let mut random = Random::new();
    for (width, vocab, chunk) in [(64, 16, 8192), (12, 200, 64), (8, 1300, 640)] {
        let head = Head::new(chunk);
        for temperature in [1.0f32, 0.7] {
            let count = 70;
            let hidden = upload(&device, &random.normal(count * width, 1.0), &[count, width]);
            let weight = upload(&device, &random.normal(vocab * width, 0.5), &[vocab, width]);
            let logits = poisoned(&device, &[count, vocab]);
            head::logits(&device, &hidden, &weight, &logits);
            let rows: Vec<_> = (0..count).map(|i| settings(&mut random, temperature, (i % 3) as u32, 1.0)).collect();
            let got = draw(&device, head, &logits, &rows);
            let tokens: Vec<u32> = got.iter().map(|s| s.token).collect();
            for (tau, column) in [(temperature, 0), (1.0, 1)] {
                let out = HeadOutput::new(&device, count);
                head::forward(&device, &head, &hidden, &weight, &device.ids(&tokens), tau, &out);
                for (learner, engine) in out.log_prob.read(&device).iter().zip(&got) {
                    let engine = [engine.log_prob, engine.log_prob_untempered][column];
                    assert_eq!(learner.to_bits(), engine.to_bits(), "{vocab} τ {tau}: {learner} {engine}");
                }
            }
        }
    }
}

#[test]
fn a_row_draws_the_same_beside_any_others() {
    let device = device();
    let mut random = Random::new();
    for (vocab, chunk) in [(16, 64), (700, 640)] {
        let head = Head::new(chunk);
        let logits = random.normal(80 * vocab, 1.0);
        let mut rows: Vec<_> = (0..80).map(|_| settings(&mut random, 0.8, 0, 1.0)).collect();
        let plain = draw(&device, head, &upload(&device, &logits, &[80, vocab]), &rows);
        // A truncating or greedy neighbour compiles another kernel; the row must not notice.
        rows[0].top_k = 3;
        rows[1].top_p = 0.5;
        rows[2].temperature = 0.0;
        let mixed = draw(&device, head, &upload(&device, &logits, &[80, vocab]), &rows);
        assert_eq!(plain[3..], mixed[3..]);
        let alone = draw(&device, head, &upload(&device, &logits[79 * vocab..], &[1, vocab]), &rows[79..]);
        assert_eq!(alone[0], plain[79]);
    }
}

#[test]
fn frequencies_follow_the_distribution() {
    let device = device();
    let mut random = Random::new();
    let logits: Vec<f64> = vec![0.0, 1.0, -1.0, 2.0, 0.5];
    let count = 40_000;
    let tiled: Vec<f64> = logits.iter().copied().cycle().take(count * 5).collect();
    let key = [random.word() as u32, random.word() as u32];
    let rows: Vec<_> = (0..count)
        .map(|i| RowSettings { top_k: 4, ..RowSettings::new(key, [7, 0, i as u32 / 4, i as u32 % 4]) })
        .collect();
    let mut counts = [0usize; 5];
    for drawn in draw(&device, Head::default(), &upload(&device, &tiled, &[count, 5]), &rows) {
        counts[drawn.token as usize] += 1;
    }
    for (count_of, p) in counts.iter().zip(reference::distribution(&logits, &rows[0])) {
        let expected = p * count as f64;
        // Six standard deviations: one run in 10^8 strays further by chance.
        assert!((*count_of as f64 - expected).abs() <= 6.0 * (expected * (1.0 - p)).sqrt(), "{counts:?}");
    }
}

#[test]
fn truncation_keeps_ties_and_greedy_takes_the_first() {
    let device = device();
    let mut random = Random::new();
    let logits: Vec<f64> = [1.0, 3.0, 3.0, 3.0, 0.0].iter().copied().cycle().take(5 * 300).collect();
    let logits_d = upload(&device, &logits, &[300, 5]);
    let rows: Vec<_> = (0..300).map(|_| settings(&mut random, 1.0, 2, 1.0)).collect();
    let drawn = draw(&device, Head::default(), &logits_d, &rows);
    for token in 1..4 {
        assert!(drawn.iter().any(|s| s.token == token), "token {token} ties with the second and is never drawn");
    }
    assert!(drawn.iter().all(|s| (1..4).contains(&s.token)));
    assert!(drawn.iter().all(|s| (s.log_prob_truncated + 3f32.ln()).abs() < 1e-6));
    let rows = vec![RowSettings { temperature: 0.0, ..rows[0] }; 300];
    assert!(draw(&device, Head::default(), &logits_d, &rows).iter().all(|s| s.token == 1));
}

#[test]
fn a_row_with_a_nan_draws_no_token() {
    let device = device();
    for vocab in [4, 600] {
        let mut logits = vec![0.5f32; 2 * vocab];
        logits[1] = f32::NAN;
        let logits = device.tensor(&logits, &[2, vocab]);
        let drawn = draw(&device, Head::default(), &logits, &[RowSettings::new([1; 2], [2; 4]); 2]);
        assert!(drawn[0].token == u32::MAX && drawn[0].log_prob.is_nan(), "{drawn:?}");
        assert!((drawn[1].token as usize) < vocab && drawn[1].log_prob.is_finite(), "{drawn:?}");
    }
}

#[test]
#[should_panic(expected = "`rows[1].top_p` must lie in (0, 1], it is 0")]
fn an_empty_nucleus_is_refused() {
    let device = device();
    let row = RowSettings::new([0; 2], [0; 4]);
    draw(&device, Head::default(), &device.zeros(&[2, 4]), &[row, RowSettings { top_p: 0.0, ..row }]);
}
