//! Implements a learner, REINFORCE on a table of logits, and trains it to count up. The reward is the share of digits
//! that are one more than the digit before; it rises from chance to nearly 1.
//!
//! ```text
//! step  1  reward 0.09
//! step 11  reward 0.23
//! step 21  reward 0.72
//! step 31  reward 0.92
//! step 41  reward 0.94
//! step 51  reward 0.94
//! ```

#[path = "../own_engine/engine.rs"]
mod engine;
mod learner;
#[path = "../own_engine/table.rs"]
mod table;

use anabranch::prelude::*;
use anabranch::{Fields, Response, tokio_clock};

use engine::TableEngine;
use learner::Reinforce;
use table::DIGITS;

/// The share of the response's digits that are one more than the digit before.
fn counts_up(response: Response<'_>) -> f64 {
    let pairs = response.tokens[response.prompt_len as usize - 1..].windows(2);
    let right = pairs.filter(|pair| pair[1] == (pair[0] + 1) % DIGITS as u32).count();
    right as f64 / response.response().len() as f64
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> anyhow::Result<()> {
    let run = Run::builder("own_learner").clock(tokio_clock()).open()?;
    let engine = TableEngine::new();
    let rows = (0..10).map(|digit| (vec![digit], Fields::new())).collect();

    let mut steps = run
        .prompts(Dataset::new("digits", rows)?)
        .epochs(60)
        .shuffle(1)
        .generate(&engine, InFlight::groups(10), Samples(8))
        .sampling(Sampling { max_tokens: 4, ..Sampling::default() })
        .seed(1)
        .score(counts_up)
        .log(&run)
        .buffer(Capacity::groups(10))
        .fresh(MaxStaleness(2))
        .batch(10)
        .train(run.restore(Reinforce::default())?)
        .publish_every(1, &engine);

    while let Some(step) = steps.try_next().await? {
        if step.step.0 % 10 == 1 {
            println!("step {:>2}  reward {:.2}", step.step.0, step.reward_mean.unwrap_or_default());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use anabranch::{Batch, Digest, GroupId, Prompt, Sample, SampleTimes, Seq, Status, TrainingStep};

    use super::*;

    /// A batch of one group: 1 after 0 is rewarded, 2 after 0 is not.
    fn batch() -> Batch {
        let id: GroupId = "digits/0/0#0".parse().unwrap();
        let sample = |digit: u32| Sample {
            tokens: vec![0, digit],
            prompt_len: 1,
            loss_mask: vec![true],
            logprobs: vec![-2.3],
            truncated_logprobs: None,
            spans: Vec::new(),
            reward: Some(f64::from(digit == 1)),
            status: Status::Truncated,
            cause: None,
            times: SampleTimes::default(),
        };
        let prompt = Prompt { id: id.prompt.clone(), tokens: vec![0], fields: Fields::new() };
        let group = Group { id, prompt, expected: 2, samples: vec![sample(1), sample(2)], extra: Fields::new() };
        Batch {
            step: TrainingStep(1),
            taken: Seq(1),
            version: None,
            gap_mean: None,
            gap_max: None,
            groups: vec![group],
            digest: Digest::default(),
        }
    }

    #[test]
    fn a_step_makes_rewarded_digits_more_likely() {
        let mut learner = Reinforce::default();
        learner.step(&batch()).unwrap();
        let probabilities = learner.weights().unwrap().probabilities(0, 1.0);
        assert!(probabilities[1] > 0.1 && probabilities[2] < 0.1, "{probabilities:?}");
    }

    #[test]
    fn a_loaded_learner_continues_bit_for_bit() {
        let dir = tempfile::tempdir().unwrap();
        let mut saved = Reinforce::default();
        saved.step(&batch()).unwrap();
        let published = saved.weights().unwrap();
        saved.step(&batch()).unwrap();
        saved.save(dir.path()).unwrap();

        let mut loaded = Reinforce::default();
        loaded.load(dir.path()).unwrap();
        assert_eq!(loaded.published().unwrap(), Some(published));
        assert_eq!(loaded.step(&batch()).unwrap(), saved.step(&batch()).unwrap());
        assert_eq!(loaded, saved);

        std::fs::write(dir.path().join("table"), [0; 7]).unwrap();
        let error = loaded.load(dir.path()).unwrap_err().to_string();
        assert!(error.ends_with("expected a table of 800 bytes, found 7"), "{error}");
    }
}
