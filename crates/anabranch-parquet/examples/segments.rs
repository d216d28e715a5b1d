//! Seals a scripted run into a folder, a few events at a time, and prints the last sealed event after each seal. If it
//! is killed and started again, it continues. With `--rows` it prints the expected rows of the tables as JSON instead.

use std::io::Write;
use std::sync::Arc;

use anabranch_core::{BoxError, EventKind, Journal, MemoryJournal};
use anabranch_parquet::Segments;
use anabranch_stream::Run;
use anabranch_testing::scripted::{HandClock, Script};
use serde_json::{Value, json};

/// Events of a segment.
const SEGMENT: usize = 5;

fn main() -> Result<(), BoxError> {
    let argument = std::env::args().nth(1).ok_or("usage: segments FOLDER | --rows")?;
    let journal = Arc::new(MemoryJournal::new());
    let clock = HandClock::default();
    let run = Run::builder("scripted")
        .journal(journal.clone())
        .clock(clock.session_clock())
        .open()
        .expect("a new run has nothing to compare");
    let mut script = Script::new(run, clock);
    script.publish();
    script.play(60);
    let mut events = journal.events();
    // The same in every process.
    for event in &mut events {
        event.wall_ms = 1_700_000_000_000 + event.seq.0;
    }

    if argument == "--rows" {
        let mut rows: Vec<Value> = Vec::new();
        let (mut groups, mut samples) = (Vec::new(), Vec::new());
        for event in &events {
            let group = event.kind.group().map(ToString::to_string);
            rows.push(json!([event.seq.0, event.kind.name(), group, event.at]));
            if let EventKind::Completed { id, .. } = &event.kind {
                let group = journal.payload(id)?;
                groups.push(json!([event.seq.0, id.to_string(), group.samples.len(), group.generated()]));
                for (sample, index) in group.samples.iter().zip(0..) {
                    let logprobs = sample.logprobs.iter().map(|logprob| f64::from(*logprob)).sum::<f64>();
                    let tokens: u64 = sample.tokens.iter().copied().map(u64::from).sum();
                    samples.push(json!([event.seq.0, index, sample.tokens.len(), tokens, logprobs]));
                }
            }
        }
        println!("{}", json!({ "events": rows, "groups": groups, "samples": samples }));
        return Ok(());
    }
    let mut segments = Segments::open(argument)?;
    let mut out = std::io::stdout();
    for from in (segments.next().0 as usize..events.len()).step_by(SEGMENT) {
        let to = events.len().min(from + SEGMENT);
        let sealed = segments.seal(&events[from..to], |id| Ok(journal.payload(id)?))?.last;
        writeln!(out, "{}", sealed.0)?;
        out.flush()?;
    }
    Ok(())
}
