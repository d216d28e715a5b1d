//! `anabranch verify`: checks that a log keeps the contract of a run, and that its copies agree with it.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anabranch_core::{Event, Seq};
use anabranch_log::ReadLog;
use anabranch_parquet::SegmentReader;
use anabranch_replay::{Recompute, Recomputed, Report, Verifier};
use serde::Serialize;

use crate::arguments::RunArguments;
use crate::output::Output;
use crate::source::{Origin, Source, segments_of};

#[derive(Serialize)]
struct Answer {
    source: Origin,
    sound: bool,
    report: Report,
    /// Errors in stored bytes: payloads with a wrong digest, segments that differ from the log.
    damage: Vec<String>,
    /// The comparisons made besides checking the events.
    checked: Vec<String>,
}

pub(crate) fn verify(run: &RunArguments, events_only: bool, output: Output) -> anyhow::Result<ExitCode> {
    let source = run.open()?;
    let (mut verifier, mut schedule) = (Verifier::new(), Recompute::new());
    let origin = source.read(|event| {
        verifier.push(event);
        schedule.push(event);
    })?;
    let report = verifier.finish();
    let (mut damage, mut checked) = (Vec::new(), Vec::new());
    match schedule.finish() {
        Ok(Recomputed { batches, excluded, .. }) => checked
            .push(format!("{batches} batches and {excluded} exclusions with the schedule computed again from the log")),
        // If the log breaks its contract, its schedule cannot be computed, and the violation is reported already.
        Err(difference) if report.is_clean() => damage.push(difference.to_string()),
        Err(_) => {}
    }
    match &source {
        _ if events_only => {}
        Source::Log(log) => {
            check_log(log, &mut damage, &mut checked);
            let folder = segments_of(&run.path);
            let sealed = if folder.join("manifest").is_dir() {
                check_copies(log, &folder, &mut damage, &mut checked)
            } else {
                0
            };
            let relied_on = log.relies_on_sealed()?;
            if sealed < relied_on {
                damage.push(format!(
                    "the log dropped payloads because every event before {} was sealed, but {} holds only {sealed} sound \
                     events: put the segments back",
                    Seq(relied_on),
                    folder.display()
                ));
            }
        }
        Source::Segments { reader, .. } => check_segments(reader, &mut damage, &mut checked),
    }
    let sound = report.is_clean() && damage.is_empty();
    let answer = Answer { source: origin, sound, report, damage, checked };
    let mut text = format!("{}\n", answer.source);
    for damage in &answer.damage {
        writeln!(text, "{damage}")?;
    }
    writeln!(text, "{}", answer.report)?;
    if events_only {
        writeln!(text, "compared: only the events; payloads and sealed files were not read")?;
    }
    for checked in &answer.checked {
        writeln!(text, "compared: {checked}")?;
    }
    output.write(text, &answer)?;
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Compares every payload with its recorded digest, and the counts with each other.
fn check_log(log: &ReadLog, damage: &mut Vec<String>, checked: &mut Vec<String>) {
    match log.check() {
        Ok(counts) => {
            let elsewhere = match counts.dropped {
                0 => String::new(),
                dropped => format!("; {dropped} more are only in the segments"),
            };
            checked.push(format!("{} payloads with their recorded digests{elsewhere}", counts.payloads));
        }
        Err(error) => damage.push(error.to_string()),
    }
}

/// Compares every sealed file with its manifest, and every payload with its recorded digest.
fn check_segments(reader: &SegmentReader, damage: &mut Vec<String>, checked: &mut Vec<String>) {
    let compare = || {
        reader.check_files()?;
        let mut payloads = 0;
        let mut groups = reader.groups();
        for event in reader.events() {
            let Event { kind: anabranch_core::EventKind::Completed { id, payload, .. }, .. } = event? else { continue };
            let Some(group) = groups.next().transpose()? else {
                anyhow::bail!("the `completed` event of {id} is sealed, but its payload is not");
            };
            let digest = group.1.digest();
            anyhow::ensure!(
                group.1.id == id && digest == payload,
                "expected the sealed payload of {id} to have digest {payload}, found {digest}"
            );
            payloads += 1;
        }
        Ok(payloads)
    };
    match compare() {
        Ok(payloads) => checked.push(format!(
            "{} sealed files with their manifests, {payloads} sealed payloads with their recorded digests",
            reader.manifests().iter().map(|manifest| manifest.files.len()).sum::<usize>()
        )),
        Err(error) => damage.push(format!("{error:#}")),
    }
}

/// Compares the segments with the log. Returns how many sealed events agree with the log.
fn check_copies(log: &ReadLog, folder: &Path, damage: &mut Vec<String>, checked: &mut Vec<String>) -> u64 {
    let compare = || {
        let reader = match SegmentReader::open(folder) {
            Err(anabranch_parquet::SegmentError::NoSegments(_)) => return Ok(None),
            opened => opened?,
        };
        let mut logged = log.events();
        let mut events = 0_u64;
        for sealed in reader.events() {
            let sealed = sealed?;
            let Some(logged) = logged.next().transpose()? else {
                anyhow::bail!(
                    "event {} is sealed in {} but missing in the log: the log lost its end; restore it from a backup",
                    sealed.seq,
                    folder.display()
                );
            };
            let same = same_event(&logged, &sealed);
            anyhow::ensure!(same, "event {} differs between the log and {}", logged.seq, folder.display());
            events += 1;
        }
        Ok(Some((reader, events)))
    };
    match compare() {
        Ok(None) => 0,
        Ok(Some((reader, events))) => {
            checked.push(format!("{events} sealed events with the log"));
            check_segments(&reader, damage, checked);
            events
        }
        Err(error) => {
            damage.push(format!("{error:#}"));
            0
        }
    }
}

/// Compares events bit by bit: a NaN equals itself.
fn same_event(a: &Event, b: &Event) -> bool {
    a == b || format!("{a:?}") == format!("{b:?}")
}
