//! Writes `datasets/sort4*.jsonl`. With `--check` it compares the existing files with the content it would write.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

use anyhow::{Context, Result, bail};

/// The rows of the train file and of the held-out file; no row is in both.
const FILES: [(&str, usize); 2] = [("sort4.jsonl", 4000), ("sort4-held-out.jsonl", 200)];
const SEED: u64 = 4;

fn main() -> Result<()> {
    let mut check = false;
    let mut dir = PathBuf::from("datasets");
    for argument in env::args().skip(1) {
        match argument.as_str() {
            "--check" => check = true,
            flag if flag.starts_with('-') => {
                bail!("expected `generate_datasets [--check] [DIR]`, found the flag `{flag}`")
            }
            path => dir = path.into(),
        }
    }
    let mut numbers = SplitMix(SEED);
    let mut seen = HashSet::new();
    for (name, rows) in FILES {
        let mut text = String::new();
        for _ in 0..rows {
            let digits = loop {
                let digits: [u64; 4] = std::array::from_fn(|_| numbers.below(10));
                if seen.insert(digits) {
                    break digits;
                }
            };
            let mut sorted = digits;
            sorted.sort_unstable();
            let line = |digits: [u64; 4]| digits.map(|digit| digit.to_string()).concat();
            writeln!(text, r#"{{"prompt":"{}=","answer":"{}"}}"#, line(digits), line(sorted))?;
        }
        let path = dir.join(name);
        if !check {
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        } else if fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))? != text {
            bail!("{} differs from the rows of seed {SEED}: run generate_datasets without --check", path.display());
        }
        println!("{} {}: {rows} rows", if check { "checked" } else { "wrote" }, path.display());
    }
    Ok(())
}

/// `SplitMix64` (Steele, Lea and Flood 2014): small, seeded, and equal on every machine.
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        // The high half of the product is uniform up to 2^-60, so a loop against modulo bias is not needed.
        u64::try_from((u128::from(bits) * u128::from(bound)) >> 64).unwrap_or(0)
    }
}
