//! The recording: the durations of a log, which a schedule under other settings needs.

use anabranch_core::WeightSync;

use super::Settings;

/// No index.
pub(crate) const NONE: u32 = u32::MAX;

/// The verdict of the entry checks and filters on a group. It is an input under all settings.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Aborted,
    Filtered,
    Malformed,
    FutureVersion,
}

impl Verdict {
    /// Returns the reason's name, as [`anabranch_core::Reason::name`] gives it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Passed => "",
            Self::Aborted => "aborted",
            Self::Filtered => "filtered",
            Self::Malformed => "malformed",
            Self::FutureVersion => "future_version",
        }
    }
}

/// What became of a recorded group.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settlement {
    Left,
    /// Consumed by this training step.
    Consumed(u64),
    /// Excluded for the reason of this name.
    Excluded(&'static str),
}

/// One recorded lease and its group. All times are in nanoseconds. A delay is the time since the last enabler.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// The next attempt at the prompt, or `NONE`.
    pub(crate) next: u32,
    /// The same lease, issued again after a restart, or `NONE`.
    pub(crate) again: u32,
    pub(crate) verdict: Verdict,
    /// Whether the versions of all its samples are known.
    pub(crate) known: bool,
    /// Whether its generation was cut off, by an aborting publication, a restart or the log's end.
    pub(crate) cut: bool,
    /// How many tokens were generated.
    pub(crate) tokens: u64,
    /// The sequence number of its `Completed` record, which decides ties.
    pub(crate) key: u64,
    /// The time from the lease to the first token of any sample, without pauses; `u64::MAX` without a token.
    pub(crate) first: u64,
    /// The delay of the lease.
    pub(crate) lease: u64,
    /// The time from the last sample's end to the group's completion: scoring.
    pub(crate) completion: u64,
    /// The time from completion to admission or exclusion, if the group did not wait for room.
    pub(crate) arrival: u64,
    /// The time from the departure that made room to admission.
    pub(crate) room: u64,
    /// The delay of the departure from the buffer.
    pub(crate) dequeue: u64,
    /// The time from the departure to the exclusion.
    pub(crate) exit: u64,
    /// When it was leased and settled, and how, to compare a simulation with.
    pub(crate) leased_at: u64,
    pub(crate) settled_at: u64,
    pub(crate) settlement: Settlement,
}

/// The durations of a training step.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct StepCost {
    /// The sequence number of its `Stepped` record.
    pub(crate) key: u64,
    /// The time from when the learner is free until it asks for the first group.
    pub(crate) poll: u64,
    /// The time from the last group's departure to the batch.
    pub(crate) take: u64,
    /// The time from the batch to the step.
    pub(crate) train: u64,
    /// The time from the step to its checkpoint.
    pub(crate) checkpoint: u64,
    /// Whether the step was made.
    pub(crate) made: bool,
    /// Whether it was made again from the log of an earlier session, so that its duration is unknown.
    pub(crate) retrained: bool,
}

/// A session of a run, in nanoseconds of its own clock.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Session {
    /// When it was opened.
    pub(crate) opened: u64,
    /// When weights were installed.
    pub(crate) installed: u64,
    /// When the learner first asked for groups; `None` if the session ended before.
    pub(crate) began: Option<u64>,
    /// The time of its last event.
    pub(crate) last: u64,
    /// How its publications treated samples in flight.
    pub(crate) mode: WeightSync,
    /// How many versions were begun and not published.
    pub(crate) burned: u64,
}

/// The durations of a publication.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct PublicationCost {
    /// The training step it followed.
    pub(crate) step: u64,
    /// The sequence number of its `Publishing` record.
    pub(crate) key: u64,
    /// The time from the step or its checkpoint to `Publishing`.
    pub(crate) begin: u64,
    /// The time from `Publishing` to the pause.
    pub(crate) ack: u64,
    /// How long samples were still continued in the pause, if the engines do not wait for samples to end.
    pub(crate) linger: u64,
    /// The time from then until the engines stood still. If the engines wait for samples, it begins when no sample
    /// runs.
    pub(crate) quiesce: u64,
    /// The time from the pause until the engines stood still.
    pub(crate) drained: u64,
    /// The time from then until the weights were installed.
    pub(crate) install: u64,
    /// The time from then until generation continued.
    pub(crate) resume: u64,
}

/// A recorded run, reduced to the durations on which its schedule depends. A group takes about 130 bytes, and a sample
/// 8.
#[derive(Clone, Debug)]
pub struct Recording {
    pub(crate) settings: Settings,
    pub(crate) specs: Vec<Spec>,
    /// The time from the lease to the end of each sample, without pauses: `settings.samples` ascending times for each
    /// spec.
    pub(crate) ends: Vec<u64>,
    /// The first lease of each position of the dataset.
    pub(crate) fresh: Vec<u32>,
    /// How many positions the dataset has, over all epochs.
    pub(crate) positions: u64,
    /// The groups whose generation was not cut off.
    pub(crate) whole: Vec<u32>,
    /// The groups of `whole` that passed the filters. A prompt that is leased again draws from these, because its group
    /// passed the filters before.
    pub(crate) unfiltered: Vec<u32>,
    /// The training steps, from step 1.
    pub(crate) steps: Vec<StepCost>,
    /// How long the learner took to ask for groups after the last training step.
    pub(crate) last_poll: u64,
    /// The publications, by training step.
    pub(crate) publications: Vec<PublicationCost>,
    /// When the learner's last work ended.
    pub(crate) ended: u64,
    /// The sessions. The learner asked for groups in at least one of them.
    pub(crate) sessions: Vec<Session>,
}

impl Recording {
    /// Returns the settings of the log. Change a copy of them and pass it to [`outcome`](Self::outcome).
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns how many leases the log has, including those issued again after a restart.
    pub fn groups(&self) -> usize {
        self.specs.len()
    }

    /// Returns the ends of a group's samples.
    pub(crate) fn ends(&self, spec: u32) -> &[u64] {
        let samples = self.settings.samples;
        &self.ends[spec as usize * samples..][..samples]
    }

    /// Returns the time from a group's lease to the end of its last sample.
    pub(crate) fn length(&self, spec: u32) -> u64 {
        self.ends(spec).last().copied().unwrap_or_default()
    }
}
