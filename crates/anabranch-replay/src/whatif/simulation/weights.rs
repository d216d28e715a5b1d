//! The published weights: the versions so far, and how far a publication is.

/// How far a publication is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Publication {
    /// No publication is under way.
    None,
    /// The weights were asked for. Generation continues.
    Begun,
    /// No sample may begin. The samples that run end first.
    Draining,
    /// No sample may begin. The samples that run continue for a moment.
    Lingering,
    /// No sample is continued.
    Still,
    /// No sample is continued, and the new weights are installed.
    Installed,
}

/// A published version.
#[derive(Copy, Clone, Debug)]
struct Version {
    /// Generated time at which it was installed.
    installed: u64,
    /// The training step after which it was published.
    step: u64,
    /// Its number in the log. A restart can use up numbers.
    number: u64,
}

/// The versions so far, each known by its index, and the publication under way.
#[derive(Debug)]
pub(super) struct Weights {
    publication: Publication,
    versions: Vec<Version>,
}

impl Weights {
    /// The weights before the first training step, under this version number.
    pub(super) fn initial(number: u64) -> Self {
        Self { publication: Publication::None, versions: vec![Version { installed: 0, step: 0, number }] }
    }

    pub(super) fn publication(&self) -> Publication {
        self.publication
    }

    pub(super) fn set_publication(&mut self, publication: Publication) {
        self.publication = publication;
    }

    /// Returns whether no sample is continued.
    pub(super) fn stand_still(&self) -> bool {
        matches!(self.publication, Publication::Still | Publication::Installed)
    }

    /// Returns the version on the engines.
    pub(super) fn version(&self) -> u64 {
        self.versions.len() as u64 - 1
    }

    /// Returns the number of a version in the log.
    pub(super) fn number(&self, version: u64) -> u64 {
        self.versions[version as usize].number
    }

    /// Returns the training step after which a version was published.
    pub(super) fn step(&self, version: u64) -> u64 {
        self.versions[version as usize].step
    }

    /// Returns the version gap of a group. Numbers that a restart used up count.
    pub(super) fn gap(&self, oldest: u64) -> u64 {
        self.number(self.version()) - self.number(oldest)
    }

    /// Returns the version that was installed at this generated time, or `floor` if that is newer.
    pub(super) fn at(&self, generated: u64, floor: u64) -> u64 {
        let mut version = self.version();
        while version > floor && self.versions[version as usize].installed >= generated {
            version -= 1;
        }
        version
    }

    /// Adds a version. `burned` numbers before its own were used up by publications that a restart cut off.
    pub(super) fn install(&mut self, generated: u64, step: u64, burned: u64) {
        let number = self.number(self.version()) + 1 + burned;
        self.versions.push(Version { installed: generated, step, number });
    }

    /// Cuts off the publication under way. Returns how many version numbers that used up.
    pub(super) fn restart(&mut self) -> u64 {
        let cut = !matches!(self.publication, Publication::None | Publication::Installed);
        self.publication = Publication::None;
        u64::from(cut)
    }
}
