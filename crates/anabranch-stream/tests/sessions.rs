//! Samples of several turns: what is masked, which versions wrote what, and how a sample ends.

use anabranch_core::{Digest, Error, Sample, Status, WeightSync};
use anabranch_sim::{End, Reply, Sim};
use anabranch_stream::{InFlight, Rollout, RolloutExt, Run, Samples, Session, Stopped, publish};
use futures::{StreamExt, TryStreamExt};
use proptest::prelude::*;
use tokio::time::sleep;

use common::{Recorded, dataset, ms};

mod common;

async fn installed(run: &Run, engine: &Sim) {
    publish(run, engine, 0, Digest::default(), WeightSync::Retract).await.unwrap();
}

/// The spans of a sample as (end, version).
fn spans(sample: &Sample) -> Vec<(u32, u64)> {
    sample.spans.iter().map(|span| (span.end, span.version.lowest().unwrap().0)).collect()
}

/// One group of one sample, driven by `$drive`.
macro_rules! one_sample {
    ($recorded:expr, $engine:expr, $drive:expr) => {{
        let groups = $recorded.run.prompts(dataset(1)).generate_with($engine, InFlight::groups(1), Samples(1), $drive);
        let groups: Vec<Rollout> = groups.try_collect().await.unwrap();
        groups.into_iter().next().unwrap().samples.remove(0)
    }};
}

#[tokio::test(start_paused = true)]
async fn turns_under_several_versions_have_spans_over_generated_tokens_only() {
    // Two turns of four tokens, one every 10 ms; the tool takes 100 ms. v1 falls into the first turn, v2 and v3 into the
    // tool's time, v4 into the second turn.
    let (recorded, engine) = (Recorded::new(), Sim::fixed(4, ms(10)));
    installed(&recorded.run, &engine).await;
    let run = recorded.run.clone();
    let publications = {
        let engine = engine.clone();
        async move {
            for (version, wait) in (1..).zip([25, 50, 25, 65]) {
                sleep(ms(wait)).await;
                publish(&run, &engine, version, Digest::default(), WeightSync::Retract).await.unwrap();
            }
        }
    };
    let group = async {
        one_sample!(recorded, &engine, |_, mut session: Session<Sim>| async move {
            let turn = session.generate().await?;
            assert_eq!(turn.tokens.len(), 4);
            sleep(ms(100)).await;
            session.observe(&[7, 8, 9]);
            assert_eq!(session.tokens().len(), 1 + 4 + 3);
            session.generate().await?;
            session.reward(0.5);
            Ok::<_, Stopped>(())
        })
    };
    let (sample, ()) = futures::join!(group, publications);
    assert_eq!(sample.loss_mask, [true, true, true, true, false, false, false, true, true, true, true]);
    assert_eq!(spans(&sample), [(2, 0), (4, 1), (6, 3), (8, 4)], "a version that generated nothing has no span");
    assert_eq!((sample.logprobs.len(), sample.generated()), (8, 8));
    assert_eq!((sample.reward, sample.status), (Some(0.5), Status::Completed));
    assert_eq!(sample.response()[4..7], [7, 8, 9]);
}

#[tokio::test(start_paused = true)]
async fn every_turn_is_a_request_of_its_own_that_continues_all_tokens() {
    let engine = Sim::scripted(|call| {
        let turn = call.turn;
        let expected = format!("test/d/0/0#0/0{}", if turn == 0 { String::new() } else { format!("/{turn}") });
        assert_eq!(call.request.id, expected);
        assert_eq!(call.request.position, 2 * turn, "generated tokens before it, without the environment's");
        assert_eq!(call.request.tokens.len() as u32, 1 + 3 * turn);
        assert_eq!(call.request.sampling.max_tokens, if turn == 2 { 1 } else { 16 });
        Reply::tokens(2, ms(1))
    });
    let recorded = Recorded::new();
    installed(&recorded.run, &engine).await;
    let sample = one_sample!(recorded, &engine, |_, mut session: Session<Sim>| async move {
        for turn in 0..3 {
            if turn == 2 {
                session.sampling().max_tokens = 1;
            }
            session.generate().await?;
            session.observe(&[0]);
        }
        Ok::<_, Stopped>(())
    });
    assert_eq!((sample.generated(), sample.status), (5, Status::Truncated), "the last turn met its limit");
}

#[tokio::test(start_paused = true)]
async fn a_visible_text_shorter_than_what_was_sampled_cuts_spans_and_logprobs() {
    let (recorded, engine) = (Recorded::new(), Sim::fixed(6, ms(10)));
    installed(&recorded.run, &engine).await;
    let run = recorded.run.clone();
    let publication = async {
        sleep(ms(35)).await;
        publish(&run, &engine, 1, Digest::default(), WeightSync::Retract).await.unwrap();
    };
    let group = async {
        one_sample!(recorded, &engine, |_, mut session: Session<Sim>| async move {
            session.generate().await?;
            session.keep(9);
            assert_eq!(session.tokens().len(), 7, "it was no longer");
            session.keep(3);
            session.observe(&[1]);
            session.keep(0);
            assert_eq!(session.tokens().len(), 5, "the environment has answered");
            Ok::<_, Stopped>(())
        })
    };
    let (sample, ()) = futures::join!(group, publication);
    assert_eq!(spans(&sample), [(3, 0)], "the tokens of v1 are gone");
    assert_eq!((sample.logprobs.len(), sample.loss_mask), (3, vec![true, true, true, false]));
}

#[tokio::test(start_paused = true)]
async fn an_error_fails_the_sample_and_its_reward_decides() {
    for (reward, admitted) in [(Some(-1.0), 1), (None, 0)] {
        let (recorded, engine) = (Recorded::new(), Sim::fixed(2, ms(1)));
        installed(&recorded.run, &engine).await;
        let groups = recorded.run.prompts(dataset(1)).generate_with(
            &engine,
            InFlight::groups(1),
            Samples(2),
            move |_, mut session| async move {
                session.generate().await.map_err(|stopped| stopped.to_string())?;
                if let Some(reward) = reward {
                    session.reward(reward);
                }
                if session.sample() == 0 { Err("the browser crashed".to_owned()) } else { Ok(()) }
            },
        );
        let groups: Vec<Rollout> = groups.admit("all", |_| true).try_collect().await.unwrap();
        assert_eq!(groups.len(), admitted);
        let group = recorded.run.payload(&"d/0/0#0".parse().unwrap());
        if admitted == 0 {
            assert_eq!(recorded.excluded(), [("Aborted".to_owned(), 1)].into());
            assert_eq!(group.unwrap().samples[0].cause.as_deref(), Some("the browser crashed"));
        } else {
            let statuses: Vec<Status> = groups[0].samples.iter().map(|sample| sample.status).collect();
            assert_eq!(statuses, [Status::Failed, Status::Completed]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_engine_gives_up_is_aborted_whatever_the_closure_says() {
    let engine = Sim::by_turn(|turn| {
        let end = if turn == 1 { End::Abort("evicted".to_owned()) } else { End::Stop };
        Reply::tokens(3, ms(1)).ending(end)
    });
    let recorded = Recorded::new();
    installed(&recorded.run, &engine).await;
    let sample = one_sample!(recorded, &engine, |_, mut session: Session<Sim>| async move {
        session.generate().await?;
        assert_eq!(session.generate().await, Err(Stopped { cause: "evicted".to_owned() }));
        Ok::<_, Stopped>(())
    });
    assert_eq!((sample.status, sample.cause.as_deref()), (Status::Aborted, Some("evicted")));
    assert_eq!(sample.generated(), 6, "what it said before stays in the log");
}

#[tokio::test(start_paused = true)]
async fn a_fatal_fault_in_a_turn_ends_the_pipeline() {
    let engine = Sim::by_turn(|turn| {
        let end = if turn == 1 { End::Fatal("out of memory".to_owned()) } else { End::Stop };
        Reply::tokens(1, ms(1)).ending(end)
    });
    let recorded = Recorded::new();
    installed(&recorded.run, &engine).await;
    let mut groups = recorded.run.prompts(dataset(3)).generate_with(
        &engine,
        InFlight::groups(1),
        Samples(1),
        |_, mut session: Session<Sim>| async move {
            session.generate().await?;
            session.generate().await.ok();
            Ok::<_, Stopped>(())
        },
    );
    let error = groups.next().await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Engine(_)) && error.to_string().contains("out of memory"), "{error}");
    assert!(groups.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_session_reaches_the_consumer_and_its_lease_stays_open() {
    for at_once in [true, false] {
        let (recorded, engine) = (Recorded::new(), Sim::fixed(1, ms(1)));
        installed(&recorded.run, &engine).await;
        let mut groups = recorded.run.prompts(dataset(1)).generate_with(
            &engine,
            InFlight::groups(1),
            Samples(1),
            move |_, mut session: Session<Sim>| {
                assert!(!at_once, "at once");
                async move {
                    session.generate().await?;
                    assert!(at_once, "after a turn");
                    Ok::<_, Stopped>(())
                }
            },
        );
        let error = groups.next().await.unwrap().unwrap_err().to_string();
        let said = if at_once { "at once" } else { "after a turn" };
        assert!(error.contains("generate_with") && error.contains("d/0/0#0") && error.contains(said), "{error}");
        assert!(groups.next().await.is_none());
        assert!(!recorded.names().contains(&"completed") && recorded.names().contains(&"leased"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the turns, the environment's answers, the cuts and the publications: every group is well-formed, its mask
    /// tells whose token each is, and its spans are the versions installed when each token was sampled.
    #[test]
    fn random_trajectories_are_well_formed(
        turns in proptest::collection::vec((1..6_u32, 0..4_usize, proptest::option::of(0..6_usize)), 1..5),
        publications in proptest::collection::vec(1..60_u64, 0..6),
        in_place in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let lengths: Vec<u32> = turns.iter().map(|(tokens, ..)| *tokens).collect();
            let engine = Sim::by_turn(move |turn| Reply::tokens(lengths[turn as usize], ms(7)));
            let recorded = Recorded::new();
            installed(&recorded.run, &engine).await;
            let run = recorded.run.clone();
            let mode = if in_place { WeightSync::InPlace } else { WeightSync::Retract };
            let publishing = async {
                for (version, wait) in (1..).zip(&publications) {
                    sleep(ms(*wait)).await;
                    publish(&run, &engine, version, Digest::default(), mode).await.unwrap();
                }
            };
            let script = turns.clone();
            let group = async {
                one_sample!(recorded, &engine, move |_, mut session: Session<Sim>| {
                    let script = script.clone();
                    async move {
                        for (index, (_, observed, kept)) in script.into_iter().enumerate() {
                            session.generate().await?;
                            session.keep(kept.unwrap_or(usize::MAX));
                            session.observe(&vec![5; observed]);
                            sleep(ms(11 * index as u64)).await;
                        }
                        Ok::<_, Stopped>(())
                    }
                })
            };
            let (sample, ()) = futures::join!(group, publishing);
            // The plain model: when each token was sampled, and what was installed then.
            let (mut now, mut mask, mut versions) = (0, Vec::new(), Vec::new());
            let installed: Vec<u64> = publications.iter().scan(0, |at, wait| { *at += wait; Some(*at) }).collect();
            for (index, (tokens, observed, kept)) in turns.iter().enumerate() {
                let mut turn = Vec::new();
                for _ in 0..*tokens {
                    now += 7;
                    turn.push(installed.iter().filter(|&&at| at < now).count() as u64);
                }
                turn.truncate(kept.unwrap_or(usize::MAX));
                mask.extend(turn.iter().map(|_| true).chain((0..*observed).map(|_| false)));
                versions.extend(turn);
                now += 11 * index as u64;
            }
            assert_eq!(&sample.loss_mask, &mask);
            let spread: Vec<u64> = sample.spans.iter().flat_map(|span| {
                (span.start..span.end).map(|_| span.version.lowest().unwrap().0)
            }).collect();
            // A publication at the very moment of a token may fall before or after it.
            for (token, (got, expected)) in spread.iter().zip(&versions).enumerate() {
                assert!(got == expected || installed.contains(&token_time(&turns, token)), "token {token}: {spread:?}, {versions:?}");
            }
            assert_eq!(spread.len(), versions.len());
        });
    }
}

/// When the `token`-th kept token was sampled.
fn token_time(turns: &[(u32, usize, Option<usize>)], token: usize) -> u64 {
    let (mut now, mut times) = (0, Vec::new());
    for (index, (tokens, _, kept)) in turns.iter().enumerate() {
        times.extend((1..=u64::from(*tokens)).map(|nth| now + 7 * nth).take(kept.unwrap_or(usize::MAX)));
        now += 7 * u64::from(*tokens) + 11 * index as u64;
    }
    times[token]
}
