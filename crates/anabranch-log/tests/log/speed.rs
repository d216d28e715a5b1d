//! How fast the log is beside bare `RocksDB`, as ratios of one run. Timings prove nothing on a busy machine, so these are
//! run by hand: `cargo test --release -p anabranch-log --test log -- --ignored --nocapture --test-threads 1 speed`.

use std::time::{Duration, Instant};

use anabranch::RunLog;
use anabranch_core::{Digest, Group};
use anabranch_log::{Durability, ReadLog};
use anabranch_stream::Rollout;
use anabranch_stream::by_hand::RolloutByHand;
use futures::executor::block_on;
use rocksdb::{DB, IteratorMode, Options, WriteBatch, WriteOptions};
use tempfile::{TempDir, tempdir};

use crate::scripted::{Numbers, complete_these, files, group};

const SAMPLES: u32 = 8;
const TOKENS: usize = 512;
/// Tokens, log-probs and masks of a group.
const BYTES: usize = SAMPLES as usize * TOKENS * (4 + 4 + 1);

/// A group of 8 × 512 tokens below 2^17 and log-probs that do not compress.
fn large(row: u64) -> Group {
    let mut made = group(row);
    let mut numbers = Numbers(row);
    let mut sample = || {
        let mut sample = made.samples[0].clone();
        sample.tokens.truncate(3);
        sample.tokens.extend((0..TOKENS).map(|_| numbers.below(1 << 17) as u32));
        sample.logprobs = (0..TOKENS).map(|_| -(numbers.below(1 << 23) as f32) / 1e6).collect();
        sample.loss_mask = vec![true; TOKENS];
        sample.spans[0].end = TOKENS as u32;
        sample
    };
    (made.samples, made.expected) = ((0..SAMPLES).map(|_| sample()).collect(), SAMPLES);
    made
}

/// Bytes that compress as little as those groups do.
fn noise() -> Vec<u8> {
    let mut numbers = Numbers(1);
    (0..BYTES / 8).flat_map(|_| numbers.below(u64::MAX).to_le_bytes()).collect()
}

fn bare(groups: u64, sync: bool) -> Duration {
    let directory = tempdir().unwrap();
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = DB::open(&options, directory.path()).unwrap();
    let mut write = WriteOptions::default();
    write.set_sync(sync);
    let value = noise();
    let begun = Instant::now();
    for key in 0..groups {
        let mut batch = WriteBatch::default();
        batch.put(key.to_be_bytes(), &value);
        db.write_opt(batch, &write).unwrap();
    }
    begun.elapsed()
}

/// Appends groups one by one; under `Sync` each waits for its acknowledgement.
fn append(groups: u64, durability: Durability) -> (Duration, TempDir) {
    let directory = tempdir().unwrap();
    let run = RunLog::options().unsealed().open(directory.path(), durability).unwrap();
    let adopted: Vec<Rollout> = (0..groups).map(|row| run.adopt(large(row))).collect();
    block_on(run.flushed()).unwrap();
    let begun = Instant::now();
    for mut group in adopted {
        let ack = group.complete().unwrap().durable;
        if durability == Durability::Sync {
            block_on(ack).unwrap();
        }
    }
    block_on(run.flushed()).unwrap();
    let elapsed = begun.elapsed();
    run.close().unwrap();
    (elapsed, directory)
}

#[test]
#[ignore = "a timing"]
fn appends() {
    for (durability, groups) in [(Durability::Process, 4000), (Durability::Sync, 400)] {
        let mut ratios = Vec::new();
        for _ in 0..5 {
            let begun = computed();
            let bare = bare(groups, durability == Durability::Sync);
            let between = computed();
            let ours = append(groups, durability).0;
            let (bare_computed, computed) = (between.saturating_sub(begun), computed().saturating_sub(between));
            ratios.push(bare.as_secs_f64() / ours.as_secs_f64());
            println!(
                "{durability:?}: bare {:?} a group, append {:?}; computed {:?} and {:?}, making the groups included",
                bare / groups as u32,
                ours / groups as u32,
                bare_computed / groups as u32,
                computed / groups as u32
            );
        }
        ratios.sort_by(f64::total_cmp);
        println!("{durability:?}: append at {:.2} of bare writes, median of {ratios:.2?}", ratios[2]);
    }
    let made: Vec<Group> = (0..500).map(large).collect();
    let begun = Instant::now();
    for group in &made {
        assert_ne!(group.digest(), Digest::default());
    }
    println!("digest {:?} a group", begun.elapsed() / 500);
    let begun = Instant::now();
    for group in &made {
        assert_eq!(group.summary().expected, SAMPLES);
    }
    println!("summary {:?} a group", begun.elapsed() / 500);
}

#[test]
#[ignore = "a timing"]
fn producers() {
    let rate = |producers: u64, groups: u64| {
        let directory = tempdir().unwrap();
        let run = RunLog::options().unsealed().open(directory.path(), Durability::Sync).unwrap();
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for producer in 0..producers {
                let run = &run;
                scope.spawn(move || {
                    for row in 0..groups / producers {
                        let mut group = run.adopt(group(producer * 1_000_000 + row));
                        block_on(group.complete().unwrap().durable).unwrap();
                    }
                });
            }
        });
        groups as f64 / begun.elapsed().as_secs_f64()
    };
    let (one, sixteen) = (rate(1, 300), rate(16, 4800));
    println!("one producer {one:.0} groups/s, sixteen {sixteen:.0}: {:.1} times", sixteen / one);
}

#[test]
#[ignore = "a timing"]
fn opening() {
    for large in [false, true] {
        let directory = tempdir().unwrap();
        let run = RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap();
        for first in (0..500_000_u64).step_by(1000) {
            let groups: Vec<Group> = (first..first + 1000)
                .map(|row| {
                    let mut group = group(row);
                    group.samples.truncate(if large { 2 } else { 0 });
                    group
                })
                .collect();
            block_on(complete_these(&run, &groups).durable).unwrap();
        }
        run.close().unwrap();
        let size: u64 = files(directory.path()).iter().map(|file| std::fs::metadata(file).unwrap().len()).sum();
        let (begun, before) = (Instant::now(), resident());
        let run = RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap();
        let (elapsed, after) = (begun.elapsed(), resident());
        println!(
            "{} events, {} MB: opened in {elapsed:?}, {} MB more in memory",
            run.found().events,
            size >> 20,
            after.saturating_sub(before) >> 20
        );
    }
}

/// Time that all threads of this process have computed: what a busy machine does not stretch.
fn computed() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
#[ignore = "a timing"]
fn replay() {
    let groups = 4000;
    let directory = append(groups, Durability::Process).1;
    drop(RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap());
    let log = ReadLog::open(directory.path()).unwrap();
    let families = ["default", "events", "groups", "state"];
    let db = DB::open_cf_for_read_only(&Options::default(), directory.path().join("log"), families, false).unwrap();
    let scan = |family: &str| -> usize {
        let family = db.cf_handle(family).unwrap();
        db.iterator_cf(family, IteratorMode::Start).map(|row| row.unwrap().1.len()).sum()
    };
    let mut ratios = Vec::new();
    for _ in 0..7 {
        let begun = Instant::now();
        let bytes = scan("events") + scan("groups");
        let bare = begun.elapsed();
        assert!(bytes > groups as usize * BYTES);
        let begun = Instant::now();
        let read: usize = log.segments(None).map(|segment| segment.unwrap().groups.len()).sum();
        let ours = begun.elapsed();
        assert_eq!(read, groups as usize);
        println!("bare scan {:?} a group, events and payloads {:?}", bare / groups as u32, ours / groups as u32);
        ratios.push(bare.as_secs_f64() / ours.as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    println!("replay at {:.2} of a bare scan of the same database, median of {ratios:.2?}", ratios[3]);
}
