//! Measures how fast a long log is audited and verified. Run it by hand, because making the log takes minutes.
//!
//! `ANABRANCH_GROUPS=1000000 cargo test -p anabranch-cli --test speed -- --ignored --nocapture`

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anabranch_parquet::Segments;
use anabranch_testing::database::{completed, database};
use anabranch_testing::synthetic::{Synthetic, payload};

/// Seconds and peak memory in MB of a command.
fn measure(arguments: &[&str], path: &Path) -> (f64, f64) {
    let begun = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(arguments)
        .arg(path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0.0_f64;
    let ended = loop {
        let read = std::fs::read_to_string(&status).unwrap_or_default();
        let high = read.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let high = high.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
        peak = peak.max(high.unwrap_or(0.0) / 1e3);
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    };
    assert!(ended.success(), "{arguments:?} on {}", path.display());
    (begun.elapsed().as_secs_f64(), peak)
}

/// Makes a run in a database and in segments, and measures each command on both: seconds and peak memory in MB.
fn measured(groups: u64) -> Vec<(String, f64, f64)> {
    let folder = tempfile::tempdir().unwrap();
    let (run, parquet) = (folder.path().join("run"), folder.path().join("parquet"));
    database(&run, groups, completed);
    let events = Synthetic::new(groups).map(Ok::<_, std::io::Error>);
    let sealed = Segments::open(&parquet).unwrap().seal_all(events, |id| Ok(payload(id))).unwrap();
    println!("{groups} groups, {sealed} events");
    let mut all = Vec::new();
    for path in [&run, &parquet] {
        for arguments in [["audit"].as_slice(), &["verify", "--events-only"]] {
            let (seconds, megabytes) = measure(arguments, path);
            let name = format!("{:<22} {:<8}", arguments.join(" "), path.file_name().unwrap().to_string_lossy());
            println!("{name} {seconds:6.2} s  {megabytes:6.0} MB");
            all.push((name, seconds, megabytes));
        }
    }
    all
}

#[test]
#[ignore = "makes a log of a million groups"]
fn long_logs_are_read_fast_and_in_bounded_memory() {
    let groups = std::env::var("ANABRANCH_GROUPS").ok().and_then(|groups| groups.parse().ok()).unwrap_or(1_000_000);
    let (short, long) = (measured(groups / 10), measured(groups));
    for ((name, _, before), (_, _, megabytes)) in short.into_iter().zip(long) {
        let slope = 1e6 * (megabytes - before) / (groups as f64 * 0.9);
        println!("{name} {slope:6.1} bytes per group");
        assert!(megabytes < 500.0, "{name}: {megabytes} MB for {groups} groups");
        assert!(slope < 64.0, "{name}: {slope} bytes per group between {} groups and {groups}", groups / 10);
    }
}
