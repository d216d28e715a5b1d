//! The slices of a run's timeline add up to the sums of its audit.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use anabranch_core::{Cause, Event, EventKind, GroupId, MemoryJournal, Moment, ResumeState, resume};
use anabranch_metrics::Meter;
use anabranch_replay::{RunTimeline, Series, Slice, TIMELINE_SLICES, audit, timeline};
use anabranch_stream::Run;
use anabranch_testing::scripted::{HandClock, Script};

fn play(journal: &Arc<MemoryJournal>, past: ResumeState, turns: usize) -> Script {
    let clock = HandClock::default();
    let published = past.published;
    let run = Run::builder("scripted")
        .journal(journal.clone())
        .resume(past, Meter::of(&journal.events()))
        .clock(clock.session_clock())
        .accept_changes(true)
        .open()
        .unwrap();
    let mut script = Script::new(run, clock);
    match published {
        Some((version, step, weights)) => script.reinstall(version, step, weights),
        None => script.publish(),
    }
    script.play(turns);
    script
}

fn log(turns: usize) -> Vec<Event> {
    let journal = Arc::new(MemoryJournal::new());
    play(&journal, ResumeState::default(), turns);
    journal.events()
}

fn sum(timeline: &RunTimeline, of: impl Fn(&Slice) -> u64) -> u64 {
    timeline.slices.iter().map(of).sum()
}

fn histogram<'a>(series: impl Iterator<Item = &'a Series>) -> BTreeMap<u64, u64> {
    let mut all = BTreeMap::new();
    for (value, count) in series.flat_map(|series| &series.histogram) {
        *all.entry(*value).or_default() += count;
    }
    all
}

/// Checks everything that both have, for any log.
fn agrees_with_the_audit(log: &[Event]) -> RunTimeline {
    let (timeline, audit) = (timeline(log), audit(log));
    assert_eq!(timeline.open_ns, audit.open_ns);
    assert_eq!(timeline.sessions_ns.len(), audit.sessions as usize);
    assert!(timeline.slices.len() <= TIMELINE_SLICES && timeline.steps.len() <= TIMELINE_SLICES);
    assert!(timeline.slices.len() as u64 * timeline.slice_ns >= timeline.open_ns);
    assert_eq!(sum(&timeline, |slice| slice.consumed), audit.groups.consumed);
    for (reason, groups) in &audit.groups.excluded {
        assert_eq!(
            sum(&timeline, |slice| slice.excluded.get(reason).copied().unwrap_or_default()),
            *groups,
            "{reason}"
        );
    }
    assert_eq!(histogram(timeline.slices.iter().map(|s| &s.gap_consumed)), audit.gap.consumed.histogram);
    assert_eq!(histogram(timeline.slices.iter().map(|s| &s.gap_excluded)), audit.gap.excluded.histogram);
    assert_eq!(sum(&timeline, |slice| slice.published), audit.publications.published);
    assert_eq!(sum(&timeline, |slice| slice.paused_ns), audit.publications.pause.total_ns);
    assert_eq!(sum(&timeline, |slice| slice.training_ns), audit.learner.training.total_ns);
    assert_eq!(sum(&timeline, |slice| slice.learner_wait_ns), audit.learner.wait.total_ns);
    let waited: u64 = timeline.steps.iter().map(|step| step.learner_wait.total_ns).sum();
    assert_eq!(waited, audit.learner.wait.total_ns);
    assert_eq!(timeline.steps.iter().map(|step| step.steps).sum::<u64>(), audit.learner.steps);
    assert_eq!(timeline.limits, audit.limits);
    timeline
}

#[test]
fn slices_add_up_to_the_audit() {
    let timeline = agrees_with_the_audit(&log(40));
    assert!(sum(&timeline, |slice| slice.training_ns) > 0 && sum(&timeline, |slice| slice.learner_wait_ns) > 0);
    assert!(timeline.slices.iter().any(|slice| slice.excluded.contains_key("stale")));
    assert!(timeline.slices.len() > TIMELINE_SLICES / 2);
    let (width, columns) = timeline.columns(50);
    assert!(columns.len() <= 50 && width % timeline.slice_ns == 0 && width * columns.len() as u64 >= timeline.open_ns);
    assert_eq!(columns.iter().map(|slice| slice.consumed).sum::<u64>(), sum(&timeline, |slice| slice.consumed));
    // A timeline of few events and one that had to widen its slices often.
    agrees_with_the_audit(&log(3));
    agrees_with_the_audit(&log(100));
    agrees_with_the_audit(&[]);
}

#[test]
fn groups_are_where_the_log_puts_them() {
    let log = log(40);
    let timeline = timeline(&log);
    let end = log.last().unwrap().at;
    let (mut leased, mut completed, mut admitted) = (HashMap::new(), HashMap::new(), HashMap::new());
    let (mut flying, mut waiting, mut buffered) = (0, 0, 0);
    let mut leave =
        |id: &GroupId, left: u64, admitted: &mut HashMap<GroupId, u64>, done: &mut HashMap<GroupId, u64>| {
            done.remove(id);
            buffered += admitted.remove(id).map_or(0, |at| left - at);
        };
    for event in &log {
        match &event.kind {
            EventKind::Leased { id, .. } => drop(leased.insert(id.clone(), event.at)),
            EventKind::Completed { id, .. } => {
                flying += event.at - leased.remove(id).unwrap();
                completed.insert(id.clone(), event.at);
            }
            EventKind::Admitted { id } => {
                waiting += event.at - completed.remove(id).unwrap();
                admitted.insert(id.clone(), event.at);
            }
            EventKind::Excluded { id, dequeued, .. } => {
                leave(id, dequeued.unwrap_or(event.at), &mut admitted, &mut completed);
            }
            EventKind::BatchTaken { groups, .. } => {
                for group in groups {
                    leave(&group.id, group.dequeued.unwrap(), &mut admitted, &mut completed);
                }
            }
            _ => {}
        }
    }
    flying += leased.values().map(|at| end - at).sum::<u64>();
    waiting += completed.values().map(|at| end - at).sum::<u64>();
    buffered += admitted.values().map(|at| end - at).sum::<u64>();
    assert!(flying > 0 && waiting > 0 && buffered > 0);
    assert_eq!(sum(&timeline, |slice| slice.in_flight_ns), flying);
    assert_eq!(sum(&timeline, |slice| slice.waiting_ns), waiting);
    assert_eq!(sum(&timeline, |slice| slice.buffered_ns), buffered);
    let times = |event: &Event| match &event.kind {
        EventKind::Completed { summary, .. } => {
            summary.samples.iter().map(|s| s.times.ended.unwrap() - s.times.submitted.unwrap()).sum()
        }
        _ => 0,
    };
    // The script configures no generation, so that a group left in flight counts as one sample.
    let generating = log.iter().map(times).sum::<u64>() + leased.values().map(|at| end - at).sum::<u64>();
    assert_eq!(sum(&timeline, |slice| slice.generating_ns), generating);
    let full = timeline.slice_ns * timeline.limits.capacity.unwrap();
    assert!(timeline.slices.iter().all(|slice| slice.buffered_ns <= full), "no more than the buffer holds");
}

#[test]
fn losses_and_rewards_stand_at_their_steps() {
    let log = log(40);
    let timeline = timeline(&log);
    assert_eq!(timeline.slice_steps, 1);
    for (step, slice) in (1_u32..).zip(&timeline.steps) {
        let loss = Some(-f64::from(step)).filter(|_| slice.steps > 0);
        assert_eq!((slice.loss.mean(), slice.loss.max), (loss, loss));
        assert_eq!(slice.reward_consumed.count, slice.steps * anabranch_testing::scripted::BATCH as u64);
    }
    let completed: u64 = timeline.steps.iter().map(|step| step.reward_completed.count).sum();
    let rewarded = |event: &&Event| matches!(&event.kind, EventKind::Completed { summary, .. } if summary.samples.iter().any(|s| s.reward.is_some()));
    assert_eq!(completed, log.iter().filter(rewarded).count() as u64);
}

#[test]
fn sessions_follow_each_other_without_the_pause_between() {
    let journal = Arc::new(MemoryJournal::new());
    play(&journal, ResumeState::default(), 10);
    let killed = journal.events();
    play(&journal, resume(journal.events()).unwrap(), 10);
    let log = journal.events();
    assert!(log.iter().any(|event| matches!(event.kind, EventKind::Reissued { .. })));
    let timeline = agrees_with_the_audit(&log);
    assert_eq!(timeline.sessions_ns, [0, killed.last().unwrap().at]);
    let first = audit(&killed);
    let before = timeline.sessions_ns[1] / timeline.slice_ns;
    let consumed: u64 = timeline.slices[..=before as usize].iter().map(|slice| slice.consumed).sum();
    assert!(consumed >= first.groups.consumed && first.groups.consumed > 0);
}

/// The learner may have been free before the last of the moments that could have freed it.
#[test]
fn the_wait_begins_with_the_enabler_that_the_batch_names() {
    let mut log = log(40);
    let before: u64 = timeline(&log).slices.iter().map(|slice| slice.learner_wait_ns).sum();
    let mut stepped = None;
    for event in &mut log {
        match &event.kind {
            EventKind::Stepped { .. } => stepped = Some(event.seq),
            EventKind::BatchTaken { .. } => {
                for enabler in event.enablers.iter_mut().filter(|enabler| enabler.cause == Cause::LearnerFree) {
                    enabler.moment = stepped.take().map_or(enabler.moment, Moment::Event);
                }
            }
            _ => {}
        }
    }
    let timeline = agrees_with_the_audit(&log);
    assert!(sum(&timeline, |slice| slice.learner_wait_ns) > before, "the publications after the steps count as well");
}
