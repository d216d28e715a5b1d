//! Writes trace events, one by one, in the format of Chrome and Perfetto.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

/// A lane: a process and a thread of the trace.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) group: u32,
    pub(crate) row: u32,
}

/// Groups of lanes.
pub(crate) const RUN: u32 = 1;
pub(crate) const GENERATION: u32 = 2;
pub(crate) const BUFFER: u32 = 3;
pub(crate) const LEARNER: u32 = 4;
pub(crate) const PUBLICATIONS: u32 = 5;

#[derive(Serialize)]
struct TraceEvent<'a> {
    name: &'a str,
    ph: &'a str,
    /// In microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    pid: u32,
    tid: u32,
    /// The scope of an instant: its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Value>,
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// A trace that is being written. All times are in nanoseconds.
pub(crate) struct Trace<W> {
    out: W,
    /// How many events were written.
    pub(crate) events: u64,
}

impl<W: Write> Trace<W> {
    /// Begins a trace.
    pub(crate) fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        Ok(Self { out, events: 0 })
    }

    fn event(&mut self, event: &TraceEvent<'_>) -> io::Result<()> {
        self.out.write_all(if self.events == 0 { b"\n" } else { b",\n" })?;
        self.events += 1;
        serde_json::to_writer(&mut self.out, event)?;
        Ok(())
    }

    fn named(&mut self, what: &str, lane: Lane, args: Value) -> io::Result<()> {
        let Lane { group: pid, row: tid } = lane;
        self.event(&TraceEvent { name: what, ph: "M", ts: None, dur: None, pid, tid, s: None, args: Some(args) })
    }

    /// Names a group of lanes.
    pub(crate) fn name_group(&mut self, group: u32, name: &str) -> io::Result<()> {
        self.named("process_name", Lane { group, row: 0 }, json!({ "name": name }))?;
        self.named("process_sort_index", Lane { group, row: 0 }, json!({ "sort_index": group }))
    }

    /// Names a lane.
    pub(crate) fn name_lane(&mut self, lane: Lane, name: &str) -> io::Result<()> {
        self.named("thread_name", lane, json!({ "name": name }))?;
        self.named("thread_sort_index", lane, json!({ "sort_index": lane.row }))
    }

    /// Writes a bar from `start` to `end`.
    pub(crate) fn bar(&mut self, lane: Lane, name: &str, (start, end): (u64, u64), args: Value) -> io::Result<()> {
        let (ts, dur, args) = (Some(micros(start)), Some(micros(end.saturating_sub(start))), Some(args));
        self.event(&TraceEvent { name, ph: "X", ts, dur, pid: lane.group, tid: lane.row, s: None, args })
    }

    /// Writes an event that takes no time.
    pub(crate) fn instant(&mut self, lane: Lane, name: &str, at: u64, args: Value) -> io::Result<()> {
        let (ts, s, args) = (Some(micros(at)), Some("p"), Some(args));
        self.event(&TraceEvent { name, ph: "i", ts, dur: None, pid: lane.group, tid: lane.row, s, args })
    }

    /// Writes the value that a counter has from `at` on.
    pub(crate) fn counter(&mut self, group: u32, name: &str, at: u64, args: Value) -> io::Result<()> {
        let (ts, args) = (Some(micros(at)), Some(args));
        self.event(&TraceEvent { name, ph: "C", ts, dur: None, pid: group, tid: 0, s: None, args })
    }

    /// Ends the trace.
    pub(crate) fn end(mut self) -> io::Result<W> {
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()?;
        Ok(self.out)
    }
}
