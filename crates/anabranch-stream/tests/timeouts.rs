//! Group timeouts and the watchdog, which count only the time in which generation is not paused.

use std::fmt::Write;
use std::sync::{Arc, Mutex};

use anabranch_core::{Digest, Status, WeightSync};
use anabranch_sim::{End, Reply, Sim};
use anabranch_stream::{Capacity, InFlight, Rollout, RolloutExt, Run, Samples, Unused, publish};
use futures::{StreamExt, TryStreamExt};
use tokio::time::{Instant, sleep};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber, field};

use common::{Recorded, dataset, ms};

mod common;

async fn installed(run: &Run, engine: &Sim) {
    publish(run, engine, 0, Digest::default(), WeightSync::Retract).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_group_past_its_time_is_aborted_and_its_requests_are_cancelled() {
    // Row 1 hangs after two tokens, in its second sample only.
    let engine = Sim::scripted(|call| {
        let hangs = call.request.tokens[0] == 1 && call.request.key.sample == 1;
        if hangs { Reply::timed(vec![ms(10), ms(10), ms(1 << 30)]) } else { Reply::tokens(3, ms(10)) }
    });
    let recorded = Recorded::new();
    installed(&recorded.run, &engine).await;
    let began = Instant::now();
    let groups = recorded.run.prompts(dataset(4)).unused(Unused::Drop);
    let groups = groups.generate(&engine, InFlight::groups(1), Samples(2)).timeout(ms(200));
    let groups: Vec<Rollout> = groups.try_collect().await.unwrap();
    assert_eq!(began.elapsed(), ms(3 * 30 + 200));
    let statuses: Vec<Vec<Status>> =
        groups.iter().map(|group| group.samples.iter().map(|sample| sample.status).collect()).collect();
    assert_eq!(statuses[1], [Status::Completed, Status::Aborted]);
    assert_eq!(statuses.iter().flatten().filter(|&&status| status == Status::Aborted).count(), 1);
    let late = &groups[1].samples[1];
    assert_eq!((late.cause.as_deref(), late.generated()), (Some("timeout"), 0), "no chunk of it had come");
    assert_eq!((engine.stats().cancelled, engine.stats().running), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn pauses_holds_and_waiting_for_room_do_not_count() {
    // 100 ms of generation in a timeout of 120 ms, with 500 ms of pause, then 300 ms under a hold that waits for the
    // other sample.
    let engine = Sim::fixed(10, ms(10)).install_time(ms(500));
    let recorded = Recorded::new();
    installed(&recorded.run, &engine).await;
    let run = recorded.run.clone();
    let groups = run.prompts(dataset(2)).generate(&engine, InFlight::groups(1), Samples(1)).timeout(ms(120));
    let mut groups = groups.log(&run).buffer(Capacity::groups(1));
    let disturb = async {
        sleep(ms(50)).await;
        publish(&run, &engine, 1, Digest::default(), WeightSync::Retract).await.unwrap();
        let evaluation = run.evaluation().await;
        sleep(ms(300)).await;
        drop(evaluation);
    };
    let (first, ()) = futures::join!(groups.next(), disturb);
    assert_eq!(first.unwrap().unwrap().samples[0].status, Status::Completed);
    // The second group is complete long before anybody asks for it.
    sleep(ms(10_000)).await;
    let second = groups.next().await.unwrap().unwrap();
    assert_eq!(second.samples[0].status, Status::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_blocks_neither_a_draining_publication_nor_an_evaluation() {
    for evaluated in [false, true] {
        let engine = Sim::fixed(1, ms(1 << 30));
        let recorded = Recorded::new();
        installed(&recorded.run, &engine).await;
        let run = recorded.run.clone();
        let groups = run.prompts(dataset(1)).generate(&engine, InFlight::groups(1), Samples(1)).timeout(ms(1000));
        let mut groups = groups.boxed();
        let waits = async {
            sleep(ms(10)).await;
            if evaluated {
                drop(run.evaluation().await);
            } else {
                publish(&run, &engine, 1, Digest::default(), WeightSync::Drain).await.unwrap();
            }
        };
        let began = Instant::now();
        let (group, ()) = futures::join!(groups.next(), waits);
        assert_eq!(group.unwrap().unwrap().samples[0].status, Status::Aborted);
        assert_eq!(began.elapsed(), ms(1000), "evaluated: {evaluated}");
    }
}

#[tokio::test(start_paused = true)]
async fn back_off_counts_towards_the_timeout() {
    let engine = Sim::scripted(|_| Reply::tokens(0, ms(0)).ending(End::Transient("busy".to_owned())));
    let recorded = Recorded::new();
    installed(&recorded.run, &engine).await;
    let groups = recorded.run.prompts(dataset(1)).generate(&engine, InFlight::groups(1), Samples(1));
    let groups = groups.retries(100, ms(100)).timeout(ms(1000));
    let began = Instant::now();
    let groups: Vec<Rollout> = groups.try_collect().await.unwrap();
    assert_eq!(groups[0].samples[0].cause.as_deref(), Some("timeout"));
    assert_eq!(began.elapsed(), ms(1000));
}

/// Keeps what is warned about, and when.
#[derive(Clone)]
struct Warnings(Arc<Mutex<Vec<(u64, String)>>>, Instant);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut said = String::new();
        event.record(&mut |field: &field::Field, value: &dyn std::fmt::Debug| {
            _ = write!(said, "{field}={value:?} ");
        });
        self.0.lock().unwrap().push((self.1.elapsed().as_millis() as u64, said));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn the_watchdog_warns_while_nothing_comes_and_not_while_generation_stands_still() {
    // A token after 50 ms, then nothing for 1000 ms, then two more; published in between for 400 ms.
    let engine = Sim::scripted(|_| Reply::timed(vec![ms(50), ms(1000), ms(50)]));
    let engine = engine.chunking(anabranch_sim::Chunking::Token).install_time(ms(400));
    let recorded = Recorded::new();
    installed(&recorded.run, &engine).await;
    let warnings = Warnings(Arc::default(), Instant::now());
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let run = recorded.run.clone();
    let groups = run.prompts(dataset(1)).generate(&engine, InFlight::groups(1), Samples(1)).watchdog(ms(300));
    let publication = async {
        sleep(ms(500)).await;
        publish(&run, &engine, 1, Digest::default(), WeightSync::Retract).await.unwrap();
    };
    let (groups, ()) = futures::join!(groups.try_collect::<Vec<Rollout>>(), publication);
    assert_eq!(groups.unwrap()[0].samples[0].generated(), 3);
    let warnings = warnings.0.lock().unwrap();
    let times: Vec<u64> = warnings.iter().map(|(at, _)| *at).collect();
    assert_eq!(
        times,
        [350, 1050, 1350],
        "300 ms after the first token, then each 300 ms, 400 ms of standing still between"
    );
    assert!(warnings.iter().all(|(_, said)| said.contains("d/0/0#0") && said.contains("requests=1")), "{warnings:?}");
}
