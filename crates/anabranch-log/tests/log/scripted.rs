//! Groups and records made by numbers, so that any of them can be made again and compared.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anabranch_core::{
    Digest, Event, EventKind, Fields, Group, GroupId, Prompt, PromptId, Sample, SampleTimes, SpanVersion, Status,
    TakenGroup, TrainingStep, Version, VersionSpan,
};
use anabranch_log::{OpenError, ReadLog};
use anabranch_stream::Run;
use anabranch_stream::by_hand::{Draft, RecordReceipt, RolloutByHand, RunByHand};
use futures::executor::block_on;

pub fn id(row: u64) -> GroupId {
    GroupId { prompt: PromptId { dataset: "scripted".into(), epoch: 0, row }, attempt: 0 }
}

/// The group of `row`: two samples whose lengths and tokens follow from it.
pub fn group(row: u64) -> Group {
    let prompt_tokens = vec![row as u32, 7, 8];
    let generated = 100 + (row % 50) as u32;
    let sample = |index: u32| Sample {
        tokens: prompt_tokens.iter().copied().chain((0..generated).map(|token| token * 31 + index)).collect(),
        prompt_len: 3,
        loss_mask: vec![true; generated as usize],
        logprobs: (0..generated).map(|token| -0.01 * (token + index) as f32).collect(),
        truncated_logprobs: None,
        spans: vec![VersionSpan {
            start: 0,
            end: generated,
            version: SpanVersion::Exact(Version(0)),
            kv_carried: false,
        }],
        reward: Some(f64::from(index)),
        status: Status::Completed,
        cause: None,
        times: SampleTimes::default(),
    };
    let prompt = Prompt { id: id(row).prompt, tokens: prompt_tokens.clone(), fields: Fields::new() };
    let samples = vec![sample(0), sample(1)];
    Group { id: id(row), prompt, expected: 2, samples, extra: Fields::new() }
}

/// Leases and completes the group of `row`.
pub fn complete(run: &Run, row: u64) -> RecordReceipt {
    run.adopt(group(row)).complete().expect("it was not completed before")
}

/// Leases and completes the groups of `count` rows from `first` on, in one record: two events a group.
pub fn complete_at_once(run: &Run, first: u64, count: u64) -> RecordReceipt {
    complete_these(run, &(first..first + count).map(group).collect::<Vec<_>>())
}

/// Leases and completes groups in one record.
pub fn complete_these(run: &Run, groups: &[Group]) -> RecordReceipt {
    let draft = |kind| Draft::new(kind, Vec::new());
    let drafts = groups.iter().flat_map(|group| {
        let (summary, payload) = (group.summary(), group.digest());
        let leased = EventKind::Leased { id: group.id.clone(), position: None };
        [draft(leased), draft(EventKind::Completed { id: group.id.clone(), summary, payload })]
    });
    run.record(drafts.collect(), &groups.iter().collect::<Vec<_>>())
}

/// Admits the group of `row`.
pub fn admit(run: &Run, row: u64) -> RecordReceipt {
    run.record(vec![Draft::new(EventKind::Admitted { id: id(row) }, Vec::new())], &[])
}

/// Takes the groups of `rows` for training step `step`.
pub fn take(run: &Run, step: u64, rows: &[u64]) -> RecordReceipt {
    let taken = |row: &u64| TakenGroup { id: id(*row), dequeued: None, gap: Some(0), step_lag: Some(0) };
    let groups = rows.iter().map(taken).collect();
    let (step, digest) = (TrainingStep(step), Digest::of(&step.to_le_bytes()));
    run.record(vec![Draft::new(EventKind::BatchTaken { step, version: None, groups, digest }, Vec::new())], &[])
}

/// Waits for the acknowledgement.
pub fn acked(recorded: RecordReceipt) {
    block_on(recorded.durable).expect("the log takes it");
}

/// All events of the run in `path`, which must be readable and whole.
pub fn events(path: &Path) -> Vec<Event> {
    let log = ReadLog::open(path).expect("it can be read");
    log.events().collect::<Result<_, _>>().expect("it is whole")
}

/// Reads everything that a run holds: its events, or why it is refused.
pub fn read_all(path: &Path) -> Result<Vec<Event>, OpenError> {
    let log = ReadLog::open(path)?;
    log.check()?;
    Ok(log.events().collect::<Result<_, _>>()?)
}

/// All files under `path`, sorted, and what is in them.
pub fn contents(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found: Vec<(PathBuf, Vec<u8>)> =
        files(path).into_iter().map(|file| (file.clone(), fs::read(&file).unwrap())).collect();
    found.sort();
    found
}

/// All files under `path`.
pub fn files(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|entry| if entry.is_dir() { files(&entry) } else { vec![entry] }).collect()
}

/// Copies the directory `from` to `to`, which is emptied first.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    match fs::remove_dir_all(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir_all(to)?,
    }
    for file in files(from) {
        let copy = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(copy.parent().unwrap())?;
        fs::copy(&file, &copy)?;
    }
    Ok(())
}

/// A small generator of numbers, so that a seed says everything about a test.
pub struct Numbers(pub u64);

impl Numbers {
    /// The seed in `ANABRANCH_SEED`, or the one given.
    pub fn seeded(seed: u64) -> Self {
        Self(std::env::var("ANABRANCH_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(seed))
    }

    /// The next number below `end` (splitmix64).
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
