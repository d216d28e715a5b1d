//! The generation slots of a timeline: assigns each sample to a slot, from the times in the log.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, Write};

use anabranch_core::{Event, EventKind, GroupId, OldestVersion, SampleSummary, Seq, Version};
use serde_json::{Value, json};

use crate::trace::{GENERATION, Lane, Trace};

/// A bar that is held back until no later event can add a bar that begins earlier.
#[derive(Debug)]
struct Bar {
    end: u64,
    name: String,
    args: Value,
    /// The versions that wrote the sample, each with the time at which it took over; the first is the initial one.
    versions: Vec<(u64, Version)>,
}

/// Gives each sample of a session a slot. The number of bars held back is bounded by the number of samples in flight.
///
/// Times are in nanoseconds on the axis of the trace.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// Leases in flight, by the `seq` of their record.
    open: BTreeMap<Seq, (u64, GroupId)>,
    leased: HashMap<GroupId, Seq>,
    /// The bars held back, by start, record and sample.
    waiting: BTreeMap<(u64, Seq, u32), Bar>,
    /// When each slot becomes free.
    until: Vec<u64>,
    /// The beginning of the last bar written.
    reached: u64,
    installed: VecDeque<(u64, Version)>,
}

impl Slots {
    /// Takes the next event; `offset` is the start of the session on the axis.
    pub(crate) fn see<W: Write>(&mut self, event: &Event, offset: u64, trace: &mut Trace<W>) -> io::Result<()> {
        let at = offset + event.at;
        match &event.kind {
            EventKind::Leased { id, .. } | EventKind::Reissued { id, .. } => {
                self.leased.insert(id.clone(), event.seq).and_then(|before| self.open.remove(&before));
                self.open.insert(event.seq, (at, id.clone()));
            }
            EventKind::Completed { id, summary, .. } => {
                let Some((leased, _)) = self.leased.remove(id).and_then(|seq| self.open.remove(&seq)) else {
                    return Ok(());
                };
                for (sample, index) in summary.samples.iter().zip(0..) {
                    // A sample that never reached the engine used no slot.
                    let Some(submitted) = sample.times.submitted else { continue };
                    let start = (offset + submitted).clamp(leased, at);
                    let end = sample.times.ended.map_or(at, |ended| (offset + ended).clamp(start, at));
                    let bar = Bar {
                        end,
                        name: format!("{id} [{index}]"),
                        args: described(id, index, sample),
                        versions: self.versions(sample, start, end),
                    };
                    self.waiting.insert((start, event.seq, index), bar);
                }
                self.write(self.open.first_key_value().map_or(at, |(_, (leased, _))| *leased), trace)?;
            }
            EventKind::Excluded { id, .. } => {
                self.leased.remove(id).and_then(|seq| self.open.remove(&seq));
            }
            EventKind::Published { version, .. } | EventKind::Reinstalled { version, .. } => {
                self.installed.push_back((at, *version));
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends the session at `end`, and with it everything in flight.
    pub(crate) fn close<W: Write>(&mut self, end: u64, trace: &mut Trace<W>) -> io::Result<()> {
        self.leased.clear();
        for (seq, (start, id)) in std::mem::take(&mut self.open) {
            let args = json!({ "group": id.to_string(), "open": true });
            let bar = Bar { end, name: format!("{id} in flight"), args, versions: Vec::new() };
            self.waiting.insert((start, seq, 0), bar);
        }
        self.write(u64::MAX, trace)?;
        self.installed.clear();
        Ok(())
    }

    /// The versions that wrote a sample: those installed while it ran.
    fn versions(&self, sample: &SampleSummary, start: u64, end: u64) -> Vec<(u64, Version)> {
        let (Some(OldestVersion::Known(oldest)), Some(newest)) = (sample.oldest, sample.newest) else {
            return Vec::new();
        };
        let within =
            |(at, version): &&(u64, Version)| (start..end).contains(at) && *version > oldest && *version <= newest;
        std::iter::once((start, oldest)).chain(self.installed.iter().filter(within).copied()).collect()
    }

    /// Writes the bars that begin at or before `until`; no later bar begins earlier.
    fn write<W: Write>(&mut self, until: u64, trace: &mut Trace<W>) -> io::Result<()> {
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= until) {
            let start = first.key().0.max(self.reached);
            let bar = first.remove();
            let end = bar.end.max(start);
            self.reached = start;
            let slot = self.until.iter().position(|taken| *taken <= start);
            let slot = slot.unwrap_or_else(|| {
                self.until.push(0);
                self.until.len() - 1
            });
            let lane = Lane { group: GENERATION, row: slot as u32 };
            if self.until[slot] == 0 {
                trace.name_lane(lane, &format!("slot {slot}"))?;
            }
            self.until[slot] = end.max(1);
            trace.bar(lane, &bar.name, (start, end), bar.args)?;
            let ends = bar.versions.iter().skip(1).map(|(at, _)| *at).chain([end]);
            for ((from, version), to) in bar.versions.iter().zip(ends) {
                let from = (*from).max(start);
                trace.bar(lane, &version.to_string(), (from, to.max(from)), json!({ "version": version.0 }))?;
            }
        }
        let oldest = self.waiting.first_key_value().map_or(until, |((start, ..), _)| (*start).min(until));
        while self.installed.front().is_some_and(|(at, _)| *at < oldest) {
            self.installed.pop_front();
        }
        Ok(())
    }
}

fn described(id: &GroupId, index: u32, sample: &SampleSummary) -> Value {
    json!({
        "group": id.to_string(),
        "sample": index,
        "status": format!("{:?}", sample.status).to_lowercase(),
        "tokens": sample.generated,
        "reward": sample.reward,
    })
}
