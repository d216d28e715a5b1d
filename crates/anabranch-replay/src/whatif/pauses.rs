//! The clock of generation: it stands still while no sample may be continued.

use anabranch_core::WeightSync;

/// Whether generation stands still only once no sample runs any more.
pub(crate) fn waits(mode: WeightSync) -> bool {
    matches!(mode, WeightSync::Drain | WeightSync::Abort)
}

/// A pause of generation.
#[derive(Copy, Clone, Debug)]
struct Pause {
    /// From here on no sample may begin.
    closed: u64,
    /// From here on no sample is continued.
    from: u64,
    /// Until here.
    to: u64,
    /// Pauses before it, in total.
    before: u64,
}

/// The pauses of a log so far, and the versions installed in them.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    pauses: Vec<Pause>,
    /// Each version, and at which generated time it was installed.
    marks: Vec<(u64, u64)>,
}

impl Pauses {
    /// Generation stood still for the installation of `version`: from `closed` on no sample could begin, from `from` on
    /// none was continued, until `to`.
    pub(crate) fn add(&mut self, version: u64, closed: u64, from: u64, to: u64) {
        let before = self.pauses.last().map_or(0, |last| last.before + (last.to - last.from));
        self.marks.push((version, from - before));
        self.pauses.push(Pause { closed, from: from.min(to), to, before });
    }

    /// Time at which samples could be continued, of the first `at` nanoseconds.
    pub(crate) fn generated(&self, at: u64) -> u64 {
        let index = self.pauses.partition_point(|pause| pause.from < at);
        let Some(pause) = index.checked_sub(1).and_then(|index| self.pauses.get(index)) else { return at };
        at - pause.before - (pause.to.min(at) - pause.from)
    }

    /// The same for the end of a sample. Where it lies in a pause, the sample had ended before, and was heard of late.
    pub(crate) fn ended(&self, at: u64) -> u64 {
        let index = self.pauses.partition_point(|pause| pause.from < at);
        let heard_late = index.checked_sub(1).is_some_and(|index| at < self.pauses[index].to);
        self.generated(at).saturating_sub(u64::from(heard_late))
    }

    /// The same for the first moment at which a sample submitted at `at` could begin. `seen` is when it showed life.
    pub(crate) fn begun(&self, at: u64, seen: u64) -> u64 {
        let index = self.pauses.partition_point(|pause| pause.closed <= at);
        match index.checked_sub(1).and_then(|index| self.pauses.get(index)) {
            Some(pause) if at < pause.to && pause.to <= seen => self.generated(pause.to),
            _ => self.generated(at),
        }
    }

    /// Whether `at` lies in the last pause.
    pub(crate) fn lie_around(&self, at: u64) -> bool {
        self.pauses.last().is_some_and(|last| (last.closed..=last.to).contains(&at))
    }

    /// The generated time of a token of this version: `at` where the version was installed then, else `otherwise`, moved
    /// to where it was. A token that was due when its version was installed came right after.
    pub(crate) fn within(&self, version: u64, at: u64, otherwise: u64) -> u64 {
        let Ok(index) = self.marks.binary_search_by_key(&version, |&(version, _)| version) else { return at };
        let installed = self.marks[index].1;
        let (from, to) = (installed + 1, self.marks.get(index + 1).map_or(u64::MAX, |&(_, mark)| mark));
        if at == installed || (from..=to).contains(&at) { at.max(from) } else { otherwise.clamp(from.min(to), to) }
    }
}
