//! What a log tells of how long everything took: all that a schedule under other settings needs.

use anabranch_core::WeightSync;

use super::Settings;

/// No index.
pub(crate) const NONE: u32 = u32::MAX;

/// What the entry checks and filters said of a group: an input, whatever the settings.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Aborted,
    Filtered,
    Malformed,
    FutureVersion,
}

impl Verdict {
    /// The reason's name, as [`anabranch_core::Reason::name`] gives it.
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
    /// In this training step.
    Consumed(u64),
    /// For the reason of this name.
    Excluded(&'static str),
}

/// One recorded lease and its group. All times are in nanoseconds; delays follow the last enabler.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// Its prompt's next attempt.
    pub(crate) next: u32,
    /// The same lease, issued again after a restart.
    pub(crate) again: u32,
    pub(crate) verdict: Verdict,
    /// Its version counts as known.
    pub(crate) known: bool,
    /// Its generation was cut off: by a publication that aborts, or by the log's end.
    pub(crate) cut: bool,
    /// Tokens generated.
    pub(crate) tokens: u64,
    /// Sequence number of its `Completed` record: what decides ties.
    pub(crate) key: u64,
    /// From the lease to the first token of any sample, without pauses; `u64::MAX` where there is none.
    pub(crate) first: u64,
    /// Of the lease.
    pub(crate) lease: u64,
    /// From the last sample's end to the group's completion: scoring.
    pub(crate) completion: u64,
    /// From completion to admission or exclusion, where no room was waited for.
    pub(crate) arrival: u64,
    /// From the departure that made room to admission.
    pub(crate) room: u64,
    /// Of the departure from the buffer.
    pub(crate) dequeue: u64,
    /// From the departure to the exclusion.
    pub(crate) exit: u64,
    /// When it was leased and settled, and how: what a simulation is compared with.
    pub(crate) leased_at: u64,
    pub(crate) settled_at: u64,
    pub(crate) settlement: Settlement,
}

/// What a training step took.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct StepCost {
    /// Sequence number of its `Stepped` record.
    pub(crate) key: u64,
    /// From the learner's being free to its asking for the first group.
    pub(crate) poll: u64,
    /// From the last group's departure to the batch.
    pub(crate) take: u64,
    /// From the batch to the step.
    pub(crate) train: u64,
    /// From the step to its checkpoint.
    pub(crate) checkpoint: u64,
    /// Whether the step was made.
    pub(crate) made: bool,
    /// Whether it was made from the log of an earlier session, so that nothing tells how long it took.
    pub(crate) retrained: bool,
}

/// A session of a run, in nanoseconds of its own clock.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Session {
    /// When it was opened.
    pub(crate) opened: u64,
    /// When weights were installed.
    pub(crate) installed: u64,
    /// When the learner first asked for groups; nothing where the session ended before.
    pub(crate) began: Option<u64>,
    /// Its last event.
    pub(crate) last: u64,
    /// What became of samples in flight at its publications.
    pub(crate) mode: WeightSync,
    /// Versions begun and not published.
    pub(crate) burned: u64,
}

/// What a publication took.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct PublicationCost {
    /// The training step it followed.
    pub(crate) step: u64,
    /// Sequence number of its `Publishing` record.
    pub(crate) key: u64,
    /// From the step or its checkpoint to `Publishing`.
    pub(crate) begin: u64,
    /// From there to the pause.
    pub(crate) ack: u64,
    /// How long samples were still continued then, where the engines wait for none to end.
    pub(crate) linger: u64,
    /// Until the engines stood still, once nothing ran where they wait for that.
    pub(crate) quiesce: u64,
    /// From the pause to the engines' standing still.
    pub(crate) drained: u64,
    /// Until the weights were installed.
    pub(crate) install: u64,
    /// Until generation went on.
    pub(crate) resume: u64,
}

/// A recorded run, reduced to what its schedule depends on; about 130 bytes and 8 a sample for each group.
#[derive(Clone, Debug)]
pub struct Recording {
    pub(crate) settings: Settings,
    pub(crate) specs: Vec<Spec>,
    /// From the lease to the end of each sample, without pauses, ascending: `settings.samples` for each of `specs`.
    pub(crate) ends: Vec<u64>,
    /// The first lease of each position of the dataset.
    pub(crate) fresh: Vec<u32>,
    /// Positions that the dataset has.
    pub(crate) positions: u64,
    /// Groups whose durations are known whole.
    pub(crate) whole: Vec<u32>,
    /// Those of them that no filter refused: what a prompt that is leased again can draw, since its group passed before.
    pub(crate) unfiltered: Vec<u32>,
    /// By training step, the first being step 1.
    pub(crate) steps: Vec<StepCost>,
    /// How long the learner took to ask for groups after the last of them.
    pub(crate) last_poll: u64,
    /// By training step.
    pub(crate) publications: Vec<PublicationCost>,
    /// When what the learner did last was over.
    pub(crate) ended: u64,
    /// At least one of them began.
    pub(crate) sessions: Vec<Session>,
}

impl Recording {
    /// The settings of the log. Change a copy and ask [`outcome`](Self::outcome).
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Groups leased in the log.
    pub fn groups(&self) -> usize {
        self.specs.len()
    }

    /// The ends of a group's samples.
    pub(crate) fn ends(&self, spec: u32) -> &[u64] {
        let samples = self.settings.samples;
        &self.ends[spec as usize * samples..][..samples]
    }

    /// From a group's lease to the end of its last sample.
    pub(crate) fn length(&self, spec: u32) -> u64 {
        self.ends(spec).last().copied().unwrap_or_default()
    }
}
