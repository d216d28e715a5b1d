//! The facts that figures draw, read from a run's log. Times are in milliseconds since the start of the run.

use std::collections::BTreeMap;

use anabranch::{EventKind, GroupId, Reason, VersionSpan};

use crate::pipeline::Recording;

/// An installation of weights.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    pub version: u64,
    pub pause_began: u64,
    pub resumed: u64,
}

/// A training step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainingStep {
    pub step: u64,
    pub taken: u64,
    pub ended: u64,
    /// Its groups by row, each with gap and step lag when the batch was taken.
    pub groups: Vec<(u64, u64, u64)>,
}

/// How a group was settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Consumed { step: u64 },
    Excluded(Reason),
}

/// The life of one sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleLife {
    pub submitted: u64,
    pub ended: u64,
    pub spans: Vec<VersionSpan>,
}

/// The life of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    pub leased: u64,
    pub completed: Option<u64>,
    pub admitted: Option<u64>,
    pub dequeued: Option<u64>,
    pub settled: Option<(u64, End)>,
    pub samples: Vec<SampleLife>,
}

/// A part of a sample's generation: under one version, or before the first token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub from: u64,
    pub to: u64,
    pub span: Option<VersionSpan>,
}

/// A run's log in the form that figures need.
pub struct Facts {
    pub publications: Vec<Publication>,
    pub steps: Vec<TrainingStep>,
    /// Groups by row.
    pub lives: BTreeMap<u64, Life>,
    pub makespan: u64,
}

fn ms(ns: u64) -> u64 {
    ns / 1_000_000
}

impl Facts {
    pub fn of(recording: &Recording) -> Self {
        let makespan = recording.makespan.as_millis() as u64;
        let mut facts = Self { publications: Vec::new(), steps: Vec::new(), lives: BTreeMap::new(), makespan };
        for event in &recording.events {
            facts.push(&event.kind, ms(event.at));
        }
        for (id, group) in &recording.groups {
            let samples = group.samples.iter().map(|sample| SampleLife {
                submitted: ms(sample.times.submitted.unwrap_or_default()),
                ended: ms(sample.times.ended.unwrap_or_default()),
                spans: sample.spans.clone(),
            });
            facts.life(id).samples = samples.collect();
        }
        facts
    }

    fn life(&mut self, id: &GroupId) -> &mut Life {
        self.lives.entry(id.prompt.row).or_default()
    }

    fn push(&mut self, kind: &EventKind, at: u64) {
        match kind {
            EventKind::Leased { id, .. } => self.life(id).leased = at,
            EventKind::Completed { id, .. } => self.life(id).completed = Some(at),
            EventKind::Admitted { id } => self.life(id).admitted = Some(at),
            EventKind::Excluded { id, reason, dequeued, .. } => {
                let life = self.life(id);
                life.dequeued = dequeued.map(ms);
                life.settled = Some((at, End::Excluded(reason.clone())));
            }
            EventKind::BatchTaken { step, groups, .. } => {
                for group in groups {
                    let life = self.life(&group.id);
                    life.dequeued = group.dequeued.map(ms);
                    life.settled = Some((at, End::Consumed { step: step.0 }));
                }
                let judged = |group: &anabranch::TakenGroup| {
                    (group.id.prompt.row, group.gap.unwrap_or_default(), group.step_lag.unwrap_or_default())
                };
                let groups = groups.iter().map(judged).collect();
                self.steps.push(TrainingStep { step: step.0, taken: at, ended: at, groups });
            }
            EventKind::Stepped { .. } => self.steps.iter_mut().next_back().into_iter().for_each(|step| step.ended = at),
            EventKind::Published { version, pause_began, .. } => {
                self.publications.push(Publication { version: version.0, pause_began: ms(*pause_began), resumed: at });
            }
            EventKind::GenerationResumed { .. } => {
                self.publications.iter_mut().next_back().into_iter().for_each(|publication| publication.resumed = at);
            }
            _ => {}
        }
    }

    fn publication(&self, version: u64) -> Option<&Publication> {
        self.publications.iter().find(|publication| publication.version == version)
    }

    /// Returns the parts of a sample's generation. The log has no times of tokens, so a part ends at the next publication.
    pub fn segments(&self, sample: &SampleLife) -> Vec<Segment> {
        let mut segments = Vec::new();
        let mut from = sample.submitted;
        let starts = |span: &VersionSpan| {
            let version = span.version.lowest().map_or(0, |version| version.0);
            self.publication(version).copied()
        };
        for (index, span) in sample.spans.iter().enumerate() {
            let installed = starts(span).map_or(0, |publication| publication.resumed);
            if index == 0 && installed > from {
                segments.push(Segment { from, to: installed, span: None });
            }
            from = from.max(installed);
            let next = sample.spans.get(index + 1).and_then(starts);
            let to = next.map_or(sample.ended, |publication| publication.pause_began);
            segments.push(Segment { from, to, span: Some(*span) });
            from = to;
        }
        if segments.is_empty() {
            segments.push(Segment { from, to: sample.ended, span: None });
        }
        segments
    }

    /// Returns how many groups the buffer holds: the times of the changes, with the new number.
    pub fn buffered(&self) -> Vec<(u64, usize)> {
        let mut changes: BTreeMap<u64, i64> = BTreeMap::new();
        for life in self.lives.values() {
            if let Some(admitted) = life.admitted {
                *changes.entry(admitted).or_default() += 1;
                life.dequeued.into_iter().for_each(|dequeued| *changes.entry(dequeued).or_default() -= 1);
            }
        }
        let mut held = 0;
        let change = |(at, change): (u64, i64)| {
            held += change;
            (at, held as usize)
        };
        changes.into_iter().map(change).collect()
    }

    /// Returns the slot of each group: the lowest free one, because the log does not number slots.
    pub fn slots(&self) -> Vec<Vec<u64>> {
        let mut order: Vec<(u64, u64)> = self.lives.iter().map(|(&row, life)| (life.leased, row)).collect();
        order.sort_unstable();
        let mut slots: Vec<(u64, Vec<u64>)> = Vec::new();
        for (leased, row) in order {
            let until = self.lives[&row].completed.unwrap_or(self.makespan);
            match slots.iter_mut().find(|(free, _)| *free <= leased) {
                Some((free, rows)) => {
                    *free = until;
                    rows.push(row);
                }
                None => slots.push((until, vec![row])),
            }
        }
        slots.into_iter().map(|(_, rows)| rows).collect()
    }
}
