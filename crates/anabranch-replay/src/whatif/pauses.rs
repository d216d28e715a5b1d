//! The pauses of generation: its clock stands still while no sample may be continued.

use anabranch_core::WeightSync;

/// Returns whether a publication in this mode waits until no sample runs any more.
pub(crate) fn waits(mode: WeightSync) -> bool {
    matches!(mode, WeightSync::Drain | WeightSync::Abort)
}

/// A pause of generation.
#[derive(Copy, Clone, Debug)]
struct Pause {
    /// When samples may no longer begin.
    closed: u64,
    /// When samples are no longer continued.
    from: u64,
    /// When samples are continued again.
    to: u64,
    /// How long all pauses before this one took together.
    before: u64,
}

/// The pauses of a log so far, and the versions installed in them.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    pauses: Vec<Pause>,
    /// Each version, and the generated time at which it was installed.
    marks: Vec<(u64, u64)>,
}

impl Pauses {
    /// Adds the pause for the installation of `version`. From `closed` on no sample could begin, and from `from` on no
    /// sample was continued, until `to`.
    pub(crate) fn add(&mut self, version: u64, closed: u64, from: u64, to: u64) {
        let before = self.pauses.last().map_or(0, |last| last.before + (last.to - last.from));
        self.marks.push((version, from - before));
        self.pauses.push(Pause { closed, from: from.min(to), to, before });
    }

    /// Returns for how much of the first `at` nanoseconds samples could be continued: the generated time.
    pub(crate) fn generated(&self, at: u64) -> u64 {
        let index = self.pauses.partition_point(|pause| pause.from < at);
        let Some(pause) = index.checked_sub(1).and_then(|index| self.pauses.get(index)) else { return at };
        at - pause.before - (pause.to.min(at) - pause.from)
    }

    /// Returns the generated time of a sample's end. If the end is in a pause, the sample had ended before and its end
    /// was noticed late.
    pub(crate) fn ended(&self, at: u64) -> u64 {
        let index = self.pauses.partition_point(|pause| pause.from < at);
        let heard_late = index.checked_sub(1).is_some_and(|index| at < self.pauses[index].to);
        self.generated(at).saturating_sub(u64::from(heard_late))
    }

    /// Returns the generated time at which a sample submitted at `at` could begin at the earliest. `seen` is the time
    /// of its first sign of life.
    pub(crate) fn begun(&self, at: u64, seen: u64) -> u64 {
        let index = self.pauses.partition_point(|pause| pause.closed <= at);
        match index.checked_sub(1).and_then(|index| self.pauses.get(index)) {
            Some(pause) if at < pause.to && pause.to <= seen => self.generated(pause.to),
            _ => self.generated(at),
        }
    }

    /// Returns whether `at` is in the last pause.
    pub(crate) fn lie_around(&self, at: u64) -> bool {
        self.pauses.last().is_some_and(|last| (last.closed..=last.to).contains(&at))
    }

    /// Returns the generated time of a token of this version: `at` if the version was installed then, else `otherwise`,
    /// moved into the time for which the version was installed. A token that was due at the installation came right
    /// after it.
    pub(crate) fn within(&self, version: u64, at: u64, otherwise: u64) -> u64 {
        let Ok(index) = self.marks.binary_search_by_key(&version, |&(version, _)| version) else { return at };
        let installed = self.marks[index].1;
        let (from, to) = (installed + 1, self.marks.get(index + 1).map_or(u64::MAX, |&(_, mark)| mark));
        if at == installed || (from..=to).contains(&at) { at.max(from) } else { otherwise.clamp(from.min(to), to) }
    }
}
