//! What a publication does to the samples in flight: in every mode, at every moment of a sample's life.

use std::time::Duration;

use anabranch_core::{Digest, OldestVersion, Sample, Status, Version, WeightSync};
use anabranch_sim::{Chunking, Reply, Sim};
use anabranch_stream::{InFlight, RolloutExt, Run, Samples, publish};
use futures::StreamExt;
use tokio::task::yield_now;
use tokio::time::sleep;

use common::{Recorded, dataset, ms};

mod common;

/// How long an installation takes.
const INSTALLATION: Duration = ms(100);
/// Tokens of the first sample, one every 10 ms; its sibling has a single one, after 300 ms.
const TOKENS: u32 = 7;

/// Publications during the life of the first sample.
struct Case {
    name: &'static str,
    /// How long after the one before (at first, after the submission) each begins.
    waits: &'static [u64],
    /// How many tokens of the first sample each version wrote, for modes in which generation continues.
    counts: &'static [u32],
}

const CASES: [Case; 8] = [
    Case { name: "in the middle of a token", waits: &[35], counts: &[3, 4] },
    Case { name: "exactly between two tokens", waits: &[30], counts: &[3, 4] },
    Case { name: "before the first token", waits: &[5], counts: &[0, 7] },
    Case { name: "after the last token", waits: &[80], counts: &[7, 0] },
    Case { name: "twice, no token between", waits: &[35, 0], counts: &[3, 0, 4] },
    Case { name: "twice, one token between", waits: &[35, 10], counts: &[3, 1, 3] },
    Case { name: "twice before the first token", waits: &[5, 0], counts: &[0, 0, 7] },
    Case { name: "twice after the last token", waits: &[80, 0], counts: &[7, 0, 0] },
];

/// End, version and `kv_carried` of each span.
type Spans = Vec<(u32, u64, bool)>;

impl Case {
    /// By the rules: the spans and status of the two samples.
    fn expected(&self, mode: WeightSync) -> [(Spans, Status); 2] {
        let carried = mode == WeightSync::InPlace;
        let mut spans = Spans::new();
        let mut end = 0;
        for (&count, version) in self.counts.iter().zip(0..) {
            end += count;
            if count > 0 {
                // The cache was begun under v0.
                spans.push((end, version, carried && version > 0));
            }
        }
        let before = self.counts[0];
        match mode {
            WeightSync::Retract | WeightSync::InPlace => {
                let last = self.waits.len() as u64;
                [(spans, Status::Completed), (vec![(1, last, carried)], Status::Completed)]
            }
            WeightSync::Drain => {
                [(vec![(TOKENS, 0, false)], Status::Completed), (vec![(1, 0, false)], Status::Completed)]
            }
            WeightSync::Abort => {
                spans.retain(|&(_, version, _)| version == 0);
                let ended = if before == TOKENS { Status::Completed } else { Status::Aborted };
                [(spans, ended), (Vec::new(), Status::Aborted)]
            }
        }
    }

    /// When the first sample ends: no time of its tokens is lost or gained by a pause.
    fn ended(&self, mode: WeightSync) -> Duration {
        let pauses = self.counts[1..].iter().any(|&count| count > 0);
        match mode {
            WeightSync::Retract | WeightSync::InPlace if pauses => {
                ms(10) * TOKENS + INSTALLATION * self.waits.len() as u32
            }
            WeightSync::Abort if self.counts[0] < TOKENS => ms(self.waits[0]),
            _ => ms(10) * TOKENS,
        }
    }
}

async fn publications(run: &Run, engine: &Sim, waits: &[u64], mode: WeightSync) {
    for (&wait, version) in waits.iter().zip(1..) {
        sleep(ms(wait)).await;
        // What happens at this moment has happened: a token that ends now, and whatever takes it in.
        for _ in 0..8 {
            yield_now().await;
        }
        publish(run, engine, version, Digest::default(), mode).await.unwrap();
    }
}

fn spans(sample: &Sample) -> Spans {
    sample.spans.iter().map(|span| (span.end, span.version.lowest().unwrap().0, span.kv_carried)).collect()
}

const MODES: [WeightSync; 4] = [WeightSync::Retract, WeightSync::InPlace, WeightSync::Drain, WeightSync::Abort];

#[tokio::test(start_paused = true)]
async fn spans_follow_publications_in_every_mode() {
    for case in &CASES {
        for (mode, chunking) in MODES.iter().flat_map(|&mode| [(mode, Chunking::Publication), (mode, Chunking::Token)])
        {
            let what = format!("{} {mode:?} {chunking:?}", case.name);
            let reply = |sample| if sample == 0 { Reply::tokens(TOKENS, ms(10)) } else { Reply::tokens(1, ms(300)) };
            let engine = Sim::scripted(move |call| reply(call.request.key.sample));
            let engine = engine.install_time(INSTALLATION).chunking(chunking);
            let recorded = Recorded::new();
            let run = &recorded.run;
            publish(run, &engine, 0, Digest::default(), mode).await.unwrap();
            let began = run.now();
            let groups = run.prompts(dataset(1)).generate(&engine, InFlight::groups(1), Samples(2));
            let mut groups = Box::pin(groups);
            let (group, ()) = futures::join!(groups.next(), publications(run, &engine, case.waits, mode));
            let group = group.unwrap().unwrap();
            let found = [0, 1].map(|index| (spans(&group.samples[index]), group.samples[index].status));
            assert_eq!(found, case.expected(mode), "{what}");
            group.samples.iter().for_each(|sample| assert_eq!(sample.logprobs.len() as u32, sample.generated()));
            let ended = Duration::from_nanos(group.samples[0].times.ended.unwrap() - began);
            assert_eq!(ended, case.ended(mode), "{what}");
            assert_eq!(run.version(), Some(Version(case.waits.len() as u64)));
            if group.samples.iter().all(|sample| sample.status == Status::Completed) {
                assert_eq!(group.check(), Ok(()), "{what}");
                let oldest = found.iter().filter_map(|(spans, _)| spans.first()).map(|&(_, version, _)| version).min();
                assert_eq!(group.oldest(), oldest.map(|version| OldestVersion::Known(Version(version))), "{what}");
            }
        }
    }
}
