//! Measures how far generation and training overlap, and the cost: the tables of `docs/overlap.md`.

use std::fmt::Write as _;
use std::time::Duration;

use anabranch::Granularity;
use anabranch::replay::{Audit, audit};
use anabranch::sim::Reply;
use anyhow::Result;

use crate::pipeline::{Setup, ms, record};

const STEPS: usize = 200;
const BATCH: usize = 32;
const SAMPLES: u32 = 4;
const INSTALLATION: Duration = ms(5_000);
/// A gap that no group reaches.
const UNLIMITED: u64 = u64::MAX;

/// The script of sample `sample` of prompt `row`: 1 to 8 tokens, each taking 100 to 199 seconds. The times are long and
/// have millisecond precision, so that two samples hardly ever end at the same moment: ties have no defined order.
fn reply(row: u32, sample: u32) -> Reply {
    let (tokens, each) = length(row, sample);
    Reply::tokens(tokens, each)
}

fn length(row: u32, sample: u32) -> (u32, Duration) {
    let mut bits = (u64::from(row) << 8 | u64::from(sample)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits ^= bits >> 29;
    (1 + (bits >> 8) as u32 % 8, ms(100_000 + (bits >> 32) % 100_000))
}

fn time(row: u32, sample: u32) -> Duration {
    let (tokens, each) = length(row, sample);
    each * tokens
}

/// The slot time of the first 200 batches, divided by the slots: the time of their generation if no slot is ever idle.
fn generation() -> Duration {
    let rows = 0..(STEPS * BATCH) as u32;
    let slot_time: Duration = rows.flat_map(|row| (0..SAMPLES).map(move |sample| time(row, sample))).sum();
    slot_time / (BATCH as u32 * SAMPLES)
}

/// The duration of a training step at a rate ratio.
fn training((numerator, denominator): (u32, u32)) -> Duration {
    ms((generation() * numerator / denominator / STEPS as u32).as_millis() as u64)
}

fn setup(rate: (u32, u32), capacity: Option<usize>) -> Setup {
    Setup {
        rows: (STEPS * BATCH) as u32,
        reply,
        arrival: |_| Duration::ZERO,
        spread: false,
        samples: SAMPLES,
        in_flight: BATCH,
        granularity: Granularity::Sample,
        capacity,
        limit: UNLIMITED,
        batch: BATCH,
        training: training(rate),
        installation: INSTALLATION,
        interval: 1,
        steps: STEPS,
    }
}

const RATES: [(&str, (u32, u32)); 3] = [("½", (1, 2)), ("1", (1, 1)), ("2", (2, 1))];

fn of(part: Duration, whole: Duration) -> f64 {
    part.as_secs_f64() / whole.as_secs_f64()
}

/// Measures one chain at three rate ratios, with and without a buffer.
fn schedules(page: &mut String) -> Result<()> {
    page.push_str("| training : generation | without `.buffer` | with `.buffer` | learner waits | mean gap |\n");
    page.push_str("|---:|---:|---:|---:|---:|\n");
    for (name, rate) in RATES {
        let longer = generation().max(training(rate) * STEPS as u32);
        let synchronous = record(setup(rate, None))?;
        let overlapping = record(setup(rate, Some(4 * BATCH)))?;
        let audit = audit(&overlapping.events);
        let _ = writeln!(
            page,
            "| {name} | {:.3} | {:.3} | {} | {} |",
            of(synchronous.makespan, longer),
            of(overlapping.makespan, longer),
            waits(&audit, overlapping.makespan),
            mean_gap(&audit),
        );
    }
    Ok(())
}

fn waits(audit: &Audit, makespan: Duration) -> String {
    format!("{:.1} %", 100.0 * of(Duration::from_nanos(audit.learner.wait.total_ns), makespan))
}

fn mean_gap(audit: &Audit) -> String {
    audit.gap.consumed.mean().map_or_else(|| "-".to_owned(), |gap| format!("{gap:.2}"))
}

/// The share of excluded groups in the tokens of all settled groups.
fn discarded(audit: &Audit) -> f64 {
    let wasted: u64 = audit.tokens.wasted.values().sum();
    wasted as f64 / (wasted + audit.tokens.consumed).max(1) as f64
}

/// Number of steps of each of these runs; small, because there are many runs.
const FEWER: usize = STEPS / 2;
/// Capacities in groups: a quarter of a batch, one batch, four batches.
const CAPACITIES: [(&str, usize); 3] = [("¼", BATCH / 4), ("1", BATCH), ("4", 4 * BATCH)];
const LIMITS: [u64; 5] = [0, 1, 2, 4, UNLIMITED];
const INTERVALS: [u64; 2] = [1, 4];

fn cell(rate: (u32, u32), capacity: usize, limit: u64, interval: u64) -> Result<(Audit, Duration)> {
    // Enough prompts to replace all discarded groups.
    let rows = (8 * FEWER * BATCH) as u32;
    let recording = record(Setup { rows, limit, interval, steps: FEWER, ..setup(rate, Some(capacity)) })?;
    Ok((audit(&recording.events), recording.makespan))
}

/// Measures capacity × limit × interval, with training as slow as generation and with training twice as slow.
fn settings(page: &mut String) -> Result<()> {
    page.push_str(
        "| capacity | limit | interval | makespan | waits | discarded | gap | makespan | waits | discarded | gap |\n",
    );
    page.push_str("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    for (batches, capacity) in CAPACITIES {
        for limit in LIMITS {
            for interval in INTERVALS {
                let named = if limit == UNLIMITED { "none".to_owned() } else { limit.to_string() };
                let _ = write!(page, "| {batches} | {named} | {interval} |");
                for rate in [(1, 1), (2, 1)] {
                    let (audit, makespan) = cell(rate, capacity, limit, interval)?;
                    let longer = (generation() / 2).max(training(rate) * FEWER as u32);
                    let _ = write!(
                        page,
                        " {:.2} | {} | {:.1} % | {} |",
                        of(makespan, longer),
                        waits(&audit, makespan),
                        100.0 * discarded(&audit),
                        mean_gap(&audit),
                    );
                }
                page.push('\n');
            }
        }
    }
    Ok(())
}

/// Writes the page.
pub fn page() -> Result<String> {
    let mut page = format!(
        "# Overlap\n\n\
         This page shows how much time `.buffer` saves and what it costs, measured on the scripted engine in virtual time.\n\
         The program `figures` writes the page, and a test compares it with the results of the runs. Each run makes {STEPS}\n\
         training steps of {BATCH} groups of {SAMPLES} samples, with {BATCH} groups in flight (sample granularity). The samples \
         are\nuneven: each has 1 to 8 tokens, and a token of one sample may take twice as long as a token of another. A\n\
         publication takes {:.1} % of the generation time of a step.\n\n\
         ## The two schedules\n\n\
         The buffer holds four batches, every step publishes, and gaps are not limited. Times are multiples of the longer of\n\
         the generation time (total slot time divided by the slots) and the training time: 1 would be perfect overlap.\n\n",
        100.0 * of(INSTALLATION * STEPS as u32, generation()),
    );
    schedules(&mut page)?;
    let _ = write!(
        page,
        "\nWithout a buffer the makespan is the sum of generation, training and publication, and the generation of a batch\n\
         lasts as long as its slowest sample. With a buffer it stays within 1.03 at ratios ½ and 2. In the balanced row\n\
         neither side is always the slower one: if one is slow for a while, the other waits.\n\n\
         ## Capacity, limit, interval\n\n\
         Each run makes {FEWER} steps. The capacity is in batches, the interval in training steps. The first four results are\n\
         for training as slow as generation, the last four for training twice as slow. Makespans are multiples of the longer\n\
         of the two, as above. *Waits* is the share of the makespan in which the learner waits. *Discarded* is the share of\n\
         stale groups in the tokens of consumed and stale groups; prompts of stale groups are not retried. *Gap* is the mean\n\
         version gap of consumed groups.\n\n",
    );
    settings(&mut page)?;
    page.push_str(
        "\nA limit below the gap that buffer and interval produce costs twice: tokens are discarded, and the learner waits. A\n\
         smaller buffer keeps gaps small without discarding, down to about one batch. A buffer smaller than a batch slows\n\
         generation down, because no new group is submitted while a completed group waits for room. With longer intervals\n\
         gaps are smaller, but one version then covers several training steps; the step lag shows that.\n",
    );
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_batches_of_buffer_overlap_all_but_three_percent() {
        for rate in [(1, 2), (2, 1)] {
            let longer = generation().max(training(rate) * STEPS as u32);
            let over = of(record(setup(rate, Some(4 * BATCH))).unwrap().makespan, longer);
            assert!((1.0..=1.03).contains(&over), "{rate:?}: {over}");
        }
    }

    #[test]
    fn without_a_buffer_the_makespan_is_the_sum() {
        let slowest =
            |rows: &[u32]| rows.iter().flat_map(|&row| (0..SAMPLES).map(move |sample| time(row, sample))).max();
        let rows: Vec<u32> = (0..(STEPS * BATCH) as u32).collect();
        let generation: Duration = rows.chunks(BATCH).filter_map(slowest).sum();
        for (name, rate) in RATES {
            let sum = generation + training(rate) * STEPS as u32 + INSTALLATION * (STEPS as u32 + 1);
            assert_eq!(record(setup(rate, None)).unwrap().makespan, sum, "ratio {name}");
        }
    }

    #[test]
    fn a_limit_holds_and_is_paid_for_in_discarded_tokens() {
        let (free, _) = cell((1, 1), 4 * BATCH, UNLIMITED, 1).unwrap();
        let (strict, _) = cell((1, 1), 4 * BATCH, 1, 1).unwrap();
        assert!(free.gap.consumed.max() > Some(1) && strict.gap.consumed.max() == Some(1));
        assert_eq!(discarded(&free).to_bits(), 0);
        assert!(discarded(&strict) > 0.1 && strict.learner.wait.total_ns > free.learner.wait.total_ns);
    }
}
