//! Each small example prints exactly the lines in the comment at its top.

use std::process::Command;

use anabranch::replay::verify;

use demo::{events, succeeded};

mod demo;

/// The lines that the comment at the top of `source` promises.
fn promised(source: &str) -> Vec<&str> {
    let block = source.lines().skip_while(|line| *line != "//! ```text").skip(1);
    let lines: Vec<&str> = block.map_while(|line| line.strip_prefix("//! ").filter(|line| *line != "```")).collect();
    assert!(!lines.is_empty(), "the comment at the top shows no output");
    lines
}

/// Runs `program` and compares its output with the comment at the top of `source`. Returns the output.
fn check(program: &str, source: &str) -> String {
    let text = succeeded(&Command::new(program).output().unwrap());
    assert_eq!(text.lines().collect::<Vec<_>>(), promised(source), "{program}");
    text
}

/// The numbers at the ends of the lines.
fn numbers(text: &str) -> Vec<f64> {
    text.lines().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn hello_fits_in_forty_lines() {
    let source = include_str!("../src/bin/hello.rs");
    check(env!("CARGO_BIN_EXE_hello"), source);
    assert!(source.lines().count() <= 40);
}

#[test]
fn own_engine_tells_which_version_wrote_which_token() {
    check(env!("CARGO_BIN_EXE_own_engine"), include_str!("../src/bin/own_engine/main.rs"));
}

#[test]
fn own_learner_learns() {
    let text = check(env!("CARGO_BIN_EXE_own_learner"), include_str!("../src/bin/own_learner/main.rs"));
    let rewards = numbers(&text);
    assert!(rewards[0] < 0.2 && rewards.last() > Some(&0.9), "{rewards:?}");
}

#[test]
fn tool_use_masks_the_tokens_of_the_tool() {
    let text = check(env!("CARGO_BIN_EXE_tool_use"), include_str!("../src/bin/tool_use.rs"));
    // The masks and the count of trained tokens come from different places.
    let marks = text.matches('^').count();
    assert!(text.contains(&format!("trained on {marks} tokens")), "{text}");
}

#[test]
fn evaluate_measures_before_during_and_after_training() {
    let text = check(env!("CARGO_BIN_EXE_evaluate"), include_str!("../src/bin/evaluate.rs"));
    let accuracies = numbers(&text);
    assert!(accuracies[0] < 0.2 && accuracies.last() > Some(&0.9), "{accuracies:?}");
}

#[test]
fn resume_trains_no_group_twice() {
    // How many steps the killed process made after its last line depends on the machine.
    let (begun, last) = {
        let lines = promised(include_str!("../src/bin/resume.rs"));
        let resumed = lines.iter().position(|line| *line == "session 1").unwrap();
        (lines[..=resumed].to_vec(), *lines.last().unwrap())
    };
    let text = succeeded(&Command::new(env!("CARGO_BIN_EXE_resume")).output().unwrap());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..begun.len()], begun, "{text}");
    assert_eq!(lines.last(), Some(&last), "{text}");
    let steps = &lines[begun.len()..lines.len() - 1];
    let steps: Vec<u64> = steps.iter().map(|line| line[5..7].trim().parse().unwrap()).collect();
    assert_eq!(steps, (steps[0]..=10).collect::<Vec<_>>(), "{text}");
}

#[test]
fn the_log_of_a_resumed_example_is_sound() {
    let dir = tempfile::tempdir().unwrap();
    succeeded(&Command::new(env!("CARGO_BIN_EXE_resume")).arg(dir.path()).output().unwrap());
    let events = events(dir.path());
    assert!(verify(&events).is_clean(), "{}", verify(&events));
}
