//! The checks that decide whether a group may be trained on: at the entry, and when it leaves the buffer.

use anabranch_core::{Error, OldestVersion, Reason, VersionClock};

use crate::Rollout;

impl Rollout {
    /// Runs entry checks 1 and 2, unless they ran before. An aborted group is excluded (`None`). A malformed group, or
    /// one with a version that was never installed, is logged and excluded, and gives an error.
    ///
    /// # Errors
    /// Returns [`Error::Malformed`] or [`Error::FutureVersion`], which name the group.
    pub(crate) fn check_entry(mut self) -> Result<Option<Self>, Error> {
        if self.checked {
            return Ok(Some(self));
        }
        if self.is_aborted() {
            self.exclude(Reason::Aborted, Vec::new());
            return Ok(None);
        }
        if let Err(malformed) = self.check() {
            self.exclude(Reason::Malformed, Vec::new());
            return Err(malformed.into());
        }
        let newest = self.samples.iter().flat_map(|s| &s.spans).filter_map(|span| span.version.highest()).max();
        if let (Some(version), Some(installed)) = (newest, self.run().version())
            && version > installed
        {
            let error = Error::FutureVersion { group: self.id.clone(), version, installed: installed.to_string() };
            self.exclude(Reason::FutureVersion, Vec::new());
            return Err(error);
        }
        self.checked = true;
        Ok(Some(self))
    }

    /// Sets the limit that the exit check applies from now on. If a limit was set before, the stricter one holds.
    pub(crate) fn limit_gap(&mut self, limit: u64, allow_unknown: bool) {
        self.allow_unknown = allow_unknown && (self.limits == 0 || self.allow_unknown);
        self.limits += 1;
        self.max_gap = Some(self.max_gap.map_or(limit, |before| before.min(limit)));
    }

    /// Runs the exit check against the installed version. Returns the gap if the group passes (`None` if a version is
    /// unknown).
    ///
    /// # Errors
    /// Returns the reason if the group must be excluded.
    pub(crate) fn check_exit(&self, clock: &VersionClock) -> Result<Option<u64>, Reason> {
        let oldest = self.oldest();
        let gap = oldest.and_then(|oldest| clock.gap(oldest));
        match (self.max_gap, gap) {
            (Some(limit), Some(gap)) if gap > limit => Err(Reason::Stale { gap }),
            (Some(_), None) if oldest == Some(OldestVersion::Unknown) && !self.allow_unknown => {
                Err(Reason::UnknownVersion)
            }
            _ => Ok(gap),
        }
    }
}
