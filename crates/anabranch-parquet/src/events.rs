//! The tables `events`, `publications` and `steps`: made of events alone.

use std::sync::Arc;

use anabranch_core::{Cause, Enabler, Event, EventKind, Moment, Reason, Then, WeightSync};
use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow::error::ArrowError;

use crate::columns::{self, Columns};
use crate::schema::{EVENTS, PUBLICATIONS, STEPS};

/// Rows of `events`. `raw` holds the encoded events, in the same order.
pub(crate) fn events(rows: &[(&Event, Vec<u8>)]) -> Result<RecordBatch, ArrowError> {
    use EventKind as K;
    let mut columns = Columns::new(&EVENTS, rows);
    columns.u64(|(event, _)| Some(event.seq.0));
    columns.u32(|(event, _)| Some(event.session));
    columns.u64(|(event, _)| Some(event.at));
    columns.wall(|(event, _)| event.wall_ms);
    columns.text(|(event, _)| Some(event.kind.name()));
    columns.u64(|(event, _)| Some(event.delay));
    columns.structs(|(event, _)| Some(event.enablers.iter().collect()), enablers);
    columns.group(|(event, _)| event.kind.group());
    columns.u64(|(event, _)| if let K::Leased { position, .. } = &event.kind { *position } else { None });
    columns.u32(|(event, _)| if let K::Reissued { reissue, .. } = &event.kind { Some(*reissue) } else { None });
    columns.u64(|(e, _)| if let K::Completed { summary, .. } = &e.kind { Some(summary.generated()) } else { None });
    columns.text(|(e, _)| if let K::Completed { payload, .. } = &e.kind { Some(payload.to_string()) } else { None });
    exclusions(&mut columns);
    columns.u64(|(event, _)| step(&event.kind));
    columns.u64(|(event, _)| version(&event.kind));
    columns.u64(|(event, _)| match &event.kind {
        K::Stepped { updates, .. } | K::Publishing { updates, .. } | K::Published { updates, .. } => Some(*updates),
        _ => None,
    });
    columns.text(|(e, _)| if let K::BatchTaken { digest, .. } = &e.kind { Some(digest.to_string()) } else { None });
    columns.structs(
        |(e, _)| if let K::BatchTaken { groups, .. } = &e.kind { Some(groups.iter().collect()) } else { None },
        columns::taken,
    );
    columns.f64(|(event, _)| if let K::Stepped { loss, .. } = &event.kind { Some(*loss) } else { None });
    columns.structs(
        |(e, _)| if let K::Stepped { metrics, .. } = &e.kind { Some(metrics.iter().collect()) } else { None },
        columns::metrics,
    );
    columns.text(|(event, _)| match &event.kind {
        K::Stepped { weights, .. }
        | K::Restepped { weights, .. }
        | K::Publishing { weights, .. }
        | K::Published { weights, .. }
        | K::Reinstalled { weights, .. } => Some(weights.to_string()),
        _ => None,
    });
    columns.bool(|(event, _)| if let K::Restepped { equal, .. } = &event.kind { Some(*equal) } else { None });
    columns.text(
        |(event, _)| if let K::Publishing { mode, .. } = &event.kind { Some(WeightSync::name(*mode)) } else { None },
    );
    columns.u64(|(e, _)| if let K::Published { pause_began, .. } = &e.kind { Some(*pause_began) } else { None });
    columns.u64(|(event, _)| if let K::Published { paused, .. } = &event.kind { Some(*paused) } else { None });
    the_run(&mut columns);
    columns.bytes(|(_, raw)| raw);
    columns.finish()
}

fn exclusions<'a>(columns: &mut Columns<'a, (&'a Event, Vec<u8>)>) {
    let excluded = |event: &'a Event| {
        if let EventKind::Excluded { reason, then, dequeued, .. } = &event.kind {
            Some((reason, then, *dequeued))
        } else {
            None
        }
    };
    columns.text(|(event, _)| excluded(event).map(|(reason, ..)| reason.name()));
    columns.text(|(event, _)| match excluded(event)?.0 {
        Reason::Filtered { name } => Some(name),
        _ => None,
    });
    columns.text(|(event, _)| {
        excluded(event).map(|(_, then, _)| match then {
            Then::Drop => "drop",
            Then::Retry(_) => "retry",
            Then::Exhausted => "exhausted",
        })
    });
    columns.text(|(event, _)| match excluded(event)?.1 {
        Then::Retry(next) => Some(next.to_string()),
        Then::Drop | Then::Exhausted => None,
    });
    columns.u64(|(event, _)| match excluded(event)?.0 {
        Reason::Stale { gap } => Some(*gap),
        _ => None,
    });
    columns.u64(|(event, _)| excluded(event)?.2);
}

fn the_run<'a>(columns: &mut Columns<'a, (&'a Event, Vec<u8>)>) {
    use EventKind as K;
    columns.u64(|(e, _)| if let K::Checkpointed { taken, .. } = &e.kind { columns::seq(*taken) } else { None });
    columns.text(|(event, _)| match &event.kind {
        K::Checkpointed { name, .. } | K::Configured { operator: name, .. } => Some(name),
        _ => None,
    });
    columns.text(|(event, _)| match &event.kind {
        K::RunOpened { settings, .. } | K::Configured { settings, .. } => {
            Some(anabranch_core::Value::Map(settings.clone()).to_string())
        }
        _ => None,
    });
    columns.text(|(event, _)| match &event.kind {
        K::RunOpened { library, .. } | K::RunResumed { library, .. } => Some(library),
        _ => None,
    });
    columns.u32(|(event, _)| if let K::RunOpened { format, .. } = &event.kind { Some(*format) } else { None });
    columns.u64(|(event, _)| if let K::RunResumed { lost, .. } = &event.kind { Some(*lost) } else { None });
    columns.list(
        |(event, _)| if let K::RunClosed { left, .. } = &event.kind { Some(left) } else { None },
        |left| Arc::new(StringArray::from_iter_values(left.map(ToString::to_string))),
    );
}

fn step(kind: &EventKind) -> Option<u64> {
    match kind {
        EventKind::BatchTaken { step, .. }
        | EventKind::Stepped { step, .. }
        | EventKind::Restepped { step, .. }
        | EventKind::Publishing { step, .. }
        | EventKind::Published { step, .. }
        | EventKind::Reinstalled { step, .. }
        | EventKind::Checkpointed { step, .. } => Some(step.0),
        _ => None,
    }
}

fn version(kind: &EventKind) -> Option<u64> {
    match kind {
        EventKind::BatchTaken { version, .. } => version.map(|version| version.0),
        EventKind::Publishing { version, .. }
        | EventKind::Published { version, .. }
        | EventKind::GenerationResumed { version }
        | EventKind::Reinstalled { version, .. } => Some(version.0),
        _ => None,
    }
}

fn enablers(enablers: &[&Enabler]) -> Vec<ArrayRef> {
    let cause = |enabler: &&Enabler| match enabler.cause {
        Cause::Opened => "opened",
        Cause::Slot => "slot",
        Cause::Retry => "retry",
        Cause::Room => "room",
        Cause::Demand => "demand",
        Cause::Leased => "leased",
        Cause::Completed => "completed",
        Cause::Admitted => "admitted",
        Cause::LearnerFree => "learner_free",
        Cause::Taken => "taken",
        Cause::Stepped => "stepped",
        Cause::Publishing => "publishing",
        Cause::Installed => "installed",
        Cause::Reopened => "reopened",
        Cause::Pace => "pace",
    };
    let moment = |enabler: &&Enabler| match enabler.moment {
        Moment::Event(seq) => ("event", seq, None),
        Moment::SampleEnd { lease, sample } => ("sample_end", lease, Some(sample)),
        Moment::Dequeued { admitted } => ("dequeued", admitted, None),
        Moment::Scored { lease } => ("scored", lease, None),
    };
    vec![
        Arc::new(StringArray::from_iter_values(enablers.iter().map(cause))),
        Arc::new(StringArray::from_iter_values(enablers.iter().map(|enabler| moment(enabler).0))),
        Arc::new(UInt64Array::from_iter_values(enablers.iter().map(|enabler| moment(enabler).1.0))),
        Arc::new(enablers.iter().map(|enabler| moment(enabler).2).collect::<UInt32Array>()),
    ]
}

/// A row that joins two events: the one that ends something, and the one that began it, where it is known.
pub(crate) type JoinedRow<'a> = (&'a Event, Option<&'a Event>);

/// Rows of `publications`: each installation, and its `Publishing`.
pub(crate) fn publications(rows: &[JoinedRow<'_>]) -> Result<RecordBatch, ArrowError> {
    use EventKind as K;
    let mut columns = Columns::new(&PUBLICATIONS, rows);
    columns.u64(|(event, _)| Some(event.seq.0));
    columns.u32(|(event, _)| Some(event.session));
    columns.u64(|(event, _)| Some(event.at));
    columns.wall(|(event, _)| event.wall_ms);
    columns.text(|(event, _)| Some(event.kind.name()));
    columns.u64(|(event, _)| version(&event.kind));
    columns.u64(|(event, _)| step(&event.kind));
    columns.u64(|(event, _)| if let K::Published { updates, .. } = &event.kind { Some(*updates) } else { None });
    columns.text(|(event, _)| match &event.kind {
        K::Published { weights, .. } | K::Reinstalled { weights, .. } => Some(weights.to_string()),
        _ => None,
    });
    columns.text(|(_, publishing)| match publishing.map(|event| &event.kind) {
        Some(K::Publishing { mode, .. }) => Some(WeightSync::name(*mode)),
        _ => None,
    });
    columns.u64(|(_, publishing)| publishing.map(|event| event.seq.0));
    columns.u64(|(e, _)| if let K::Published { pause_began, .. } = &e.kind { Some(*pause_began) } else { None });
    columns.u64(|(event, _)| if let K::Published { paused, .. } = &event.kind { Some(*paused) } else { None });
    columns.finish()
}

/// Rows of `steps`: each step, and its `BatchTaken`.
pub(crate) fn steps(rows: &[JoinedRow<'_>]) -> Result<RecordBatch, ArrowError> {
    use EventKind as K;
    let mut columns = Columns::new(&STEPS, rows);
    columns.u64(|(event, _)| Some(event.seq.0));
    columns.u32(|(event, _)| Some(event.session));
    columns.u64(|(event, _)| Some(event.at));
    columns.wall(|(event, _)| event.wall_ms);
    columns.u64(|(event, _)| step(&event.kind));
    columns.u64(|(event, _)| if let K::Stepped { updates, .. } = &event.kind { Some(*updates) } else { None });
    columns.f64(|(event, _)| if let K::Stepped { loss, .. } = &event.kind { Some(*loss) } else { None });
    columns.structs(
        |(e, _)| if let K::Stepped { metrics, .. } = &e.kind { Some(metrics.iter().collect()) } else { None },
        columns::metrics,
    );
    columns.text(|(e, _)| if let K::Stepped { weights, .. } = &e.kind { Some(weights.to_string()) } else { None });
    columns.u64(|(_, taken)| columns::seq(taken.map(|event| event.seq)));
    columns.u32(|(_, taken)| taken.map(|event| event.session));
    columns.u64(|(_, taken)| taken.map(|event| event.at));
    columns.u64(|(_, taken)| version(&(*taken)?.kind));
    columns.text(|(_, taken)| match &(*taken)?.kind {
        K::BatchTaken { digest, .. } => Some(digest.to_string()),
        _ => None,
    });
    columns.structs(
        |(_, taken)| match &(*taken)?.kind {
            K::BatchTaken { groups, .. } => Some(groups.iter().collect()),
            _ => None,
        },
        columns::taken,
    );
    columns.finish()
}

/// The step of a `Stepped`, whose batch its row must name.
pub(crate) fn stepped(kind: &EventKind) -> Option<u64> {
    if let EventKind::Stepped { step, .. } = kind { Some(step.0) } else { None }
}

/// The step that a `BatchTaken` is for.
pub(crate) fn taken_for(kind: &EventKind) -> Option<u64> {
    if let EventKind::BatchTaken { step, .. } = kind { Some(step.0) } else { None }
}
