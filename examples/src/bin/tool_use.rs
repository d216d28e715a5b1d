//! Generates samples of two turns: the policy writes a call of a calculator, reads the result, and answers. The tool's
//! tokens are masked, so that the learner trains only on the tokens of the policy, marked with `^`.
//!
//! ```text
//! 17+25?<17+25>=42 It is 42.  reward 1
//!       ^^^^^^^    ^^^^^^^^^
//! 6*7?<6*7>=42 It is 42.  reward 1
//!     ^^^^^    ^^^^^^^^^
//! 9-14?<9-14>=-5 It is -5.  reward 1
//!      ^^^^^^    ^^^^^^^^^
//! 8/0?<8/0>=error It is error.  reward 0
//!     ^^^^^       ^^^^^^^^^^^^
//! trained on 62 tokens, mean reward 0.75
//! ```

use std::time::Duration;

use anabranch::prelude::*;
use anabranch::sim::{Call, HashChain, Reply, Sim};
use anabranch::{Fields, Rollout, Value, tokio_clock};

fn encode(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

fn decode(tokens: &[u32]) -> String {
    tokens.iter().filter_map(|&token| char::from_u32(token)).collect()
}

/// The scripted policy. In its first turn it writes a call such as `<17+25>`; in its second it repeats the result.
fn policy(call: &Call<'_>) -> Reply {
    let text = decode(&call.request.tokens);
    let words = match call.turn {
        0 => format!("<{}>", text.trim_end_matches('?')),
        _ => format!("It is {}.", text.rsplit('=').next().unwrap_or_default().trim_end()),
    };
    Reply::saying(encode(&words), Duration::from_millis(10))
}

/// The tool. It returns the result of `<a+b>`, `<a-b>`, `<a*b>` or `<a/b>`, or `error`.
fn calculator(call: &str) -> String {
    let calculated = || {
        let expression = call.strip_prefix('<')?.strip_suffix('>')?;
        let at = expression.find(['+', '-', '*', '/'])?;
        let (a, b): (i64, i64) = (expression[..at].parse().ok()?, expression[at + 1..].parse().ok()?);
        match expression.as_bytes()[at] {
            b'+' => a.checked_add(b),
            b'-' => a.checked_sub(b),
            b'*' => a.checked_mul(b),
            _ => a.checked_div(b),
        }
    };
    calculated().map_or_else(|| "error".to_owned(), |result| result.to_string())
}

/// Prints the sample, and below it a mark for each token that is trained on.
fn show(group: &Rollout) {
    for sample in &group.samples {
        let marks: String = sample.loss_mask.iter().map(|generated| if *generated { '^' } else { ' ' }).collect();
        println!("{}  reward {}", decode(&sample.tokens), sample.reward.unwrap_or_default());
        println!("{:1$}{marks}", "", sample.prompt_len as usize);
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> anyhow::Result<()> {
    let run = Run::builder("tool_use").clock(tokio_clock()).open()?;
    let engine = Sim::scripted(policy);
    let row = |(question, answer): (&str, i64)| {
        (encode(question), Fields::from([("answer".to_owned(), Value::from(answer))]))
    };
    let rows = [("17+25?", 42), ("6*7?", 42), ("9-14?", -5), ("8/0?", 0)].map(row);

    let mut steps = run
        .prompts(Dataset::new("sums", rows.to_vec())?)
        .generate_with(&engine, InFlight::groups(1), Samples(1), |_prompt, mut session| async move {
            let call = session.generate().await?;
            session.observe(&encode(&format!("={} ", calculator(&decode(&call.tokens)))));
            session.generate().await?;
            Ok::<_, Stopped>(())
        })
        .score(|response| {
            let answer = response.prompt.fields["answer"].as_int().unwrap_or_default();
            decode(response.response()).ends_with(&format!("It is {answer}."))
        })
        .inspect_ok(show)
        .log(&run)
        .batch(4)
        .train(run.restore(HashChain::new(1))?)
        .publish_every(1, &engine);

    while let Some(step) = steps.try_next().await? {
        println!("trained on {} tokens, mean reward {:.2}", step.tokens, step.reward_mean.unwrap_or_default());
    }
    Ok(())
}
