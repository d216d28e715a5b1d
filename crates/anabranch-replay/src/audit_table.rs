//! The audit as a table for people.

use std::fmt;

use crate::audit::Audit;
use crate::series::{Durations, Series};
use crate::units::{count, seconds};

/// The width of a histogram's widest bar, in characters.
const BAR: u64 = 40;
/// How many values of a histogram get a line of their own at most.
const LINES: usize = 12;

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.closed { "closed" } else { "not closed" };
        let sessions = plural(u64::from(self.sessions), "session");
        let (events, open) = (plural(self.events, "event"), seconds(self.open_ns));
        writeln!(f, "run         anabranch {} | {sessions} | {events} | {state} | open {open}", self.library)?;
        if self.lost > 0 {
            writeln!(f, "lost        {} acknowledged before a power loss", plural(self.lost, "event"))?;
        }
        self.groups(f)?;
        self.tokens(f)?;
        self.gaps(f)?;
        self.learner(f)?;
        self.generation(f)?;
        if let Some(reward) = self.reward {
            let of = plural(reward.of, "group");
            writeln!(f, "reward      {:.3} over the first {of} -> {:.3} over the last", reward.first, reward.last)?;
        }
        Ok(())
    }
}

impl Audit {
    fn groups(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = &self.groups;
        writeln!(
            f,
            "groups      {} leased = {} consumed + {} excluded + {} in flight + {} waiting + {} buffered",
            count(groups.leased),
            count(groups.consumed),
            count(groups.all_excluded()),
            count(groups.in_flight),
            count(groups.waiting),
            count(groups.buffered)
        )?;
        let mut reasons: Vec<String> = Vec::new();
        for (reason, excluded) in &groups.excluded {
            let filters: Vec<String> =
                self.filters.iter().map(|(name, excluded)| format!("{name} {}", count(*excluded))).collect();
            let detail = if *reason == "filtered" { format!(" ({})", filters.join(", ")) } else { String::new() };
            reasons.push(format!("{} {}{detail}", reason.replace('_', " "), count(*excluded)));
        }
        if !reasons.is_empty() {
            writeln!(f, "excluded    {}", reasons.join(" | "))?;
        }
        let again: Vec<String> = self
            .attempts
            .iter()
            .filter(|(attempt, _)| **attempt > 0)
            .map(|(attempt, leased)| format!("attempt {} {}", attempt + 1, count(*leased)))
            .collect();
        if !again.is_empty() || self.exhausted > 0 {
            let list = if again.is_empty() { "none leased".to_owned() } else { again.join(", ") };
            writeln!(f, "retries     {list} | {} exhausted", count(self.exhausted))?;
        }
        if self.reissued > 0 {
            writeln!(f, "re-issued   {} in flight when a session ended", plural(self.reissued, "lease"))?;
        }
        Ok(())
    }

    fn tokens(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = &self.tokens;
        let wasted: u64 = tokens.wasted.values().sum();
        let by_reason: Vec<String> = tokens
            .wasted
            .iter()
            .filter(|(_, tokens)| **tokens > 0)
            .map(|(reason, tokens)| format!("{} {}", reason.replace('_', " "), count(*tokens)))
            .collect();
        let by_reason = if by_reason.is_empty() { String::new() } else { format!(" ({})", by_reason.join(", ")) };
        write!(f, "tokens      {} generated", count(tokens.generated))?;
        if let Some(rate) = per_second(tokens.generated, self.open_ns) {
            write!(f, ", {rate}/s")?;
        }
        let (consumed, share) = (count(tokens.consumed), percent(tokens.consumed, tokens.generated));
        writeln!(f, " | {consumed} consumed ({share}) | {} wasted{by_reason}", count(wasted))
    }

    fn gaps(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limits.max_staleness.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
        writeln!(f, "gap         versions between the oldest weights in a group and those installed; limit {limit}")?;
        let series =
            [("consumed", &self.gap.consumed), ("buffered", &self.gap.buffered), ("excluded", &self.gap.excluded)];
        for (name, series) in series {
            if series.count() + series.unknown > 0 {
                writeln!(f, "  {name}  {}", summary(series))?;
                histogram(f, series)?;
            }
        }
        if let (Some(all), Some(generation)) = (self.gap.consumed.mean(), self.gap.consumed_generation.mean()) {
            let queue = all - generation;
            writeln!(f, "  of the consumed gap, {generation:.2} arose in generation and {queue:.2} in the queue")?;
        }
        if self.step_lag.count() > 0 {
            writeln!(f, "step lag    consumed: {}", summary(&self.step_lag))?;
        }
        Ok(())
    }

    fn learner(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let learner = &self.learner;
        if learner.batches == 0 {
            return writeln!(f, "learner     no batch taken");
        }
        let (steps, updates) = (plural(learner.steps, "step"), plural(learner.updates, "update"));
        write!(f, "learner     {steps} of {updates}")?;
        if learner.restepped > 0 {
            let unequal = learner.restepped_unequal;
            write!(f, " | {} made again, {} unequal", count(learner.restepped), count(unequal))?;
        }
        if learner.checkpoints > 0 {
            write!(f, " | {}", plural(learner.checkpoints, "checkpoint"))?;
        }
        writeln!(f)?;
        writeln!(f, "  trained   {}", durations(&learner.training, self.open_ns))?;
        writeln!(f, "  waited    {}", durations(&learner.wait, self.open_ns))?;
        if let Some(loss) = learner.loss {
            let of = plural(loss.of, "step");
            writeln!(f, "  loss      {:.4} over the first {of} -> {:.4} over the last", loss.first, loss.last)?;
        }
        Ok(())
    }

    fn generation(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let publications = &self.publications;
        let version = publications.version.map_or_else(|| "none installed".to_owned(), |v| format!("{v} installed"));
        write!(f, "generation  {} | {version}", plural(publications.published, "publication"))?;
        if publications.reinstalled > 0 {
            write!(f, " | {} reinstalled", count(publications.reinstalled))?;
        }
        if publications.burned > 0 {
            write!(f, " | {} begun in vain", count(publications.burned))?;
        }
        writeln!(f)?;
        if publications.pause.count > 0 {
            writeln!(f, "  paused    {}", durations(&publications.pause, self.open_ns))?;
        }
        Ok(())
    }
}

fn summary(series: &Series) -> String {
    let known = match (series.mean(), series.max()) {
        (Some(mean), Some(max)) => format!("mean {mean:.2}, max {max}"),
        _ => "none known".to_owned(),
    };
    if series.unknown > 0 { format!("{known}, {} unknown", count(series.unknown)) } else { known }
}

fn histogram(f: &mut fmt::Formatter<'_>, series: &Series) -> fmt::Result {
    let (Some(most), Some(max)) = (series.histogram.values().max(), series.max()) else { return Ok(()) };
    let width = max.to_string().len();
    for (value, of) in series.histogram.iter().take(LINES) {
        let bar = "#".repeat((of * BAR).div_ceil(*most) as usize);
        writeln!(f, "    {value:>width$}  {:>9} {bar}", count(*of))?;
    }
    let rest: u64 = series.histogram.values().skip(LINES).sum();
    if rest > 0 { writeln!(f, "    …  {:>9} above", count(rest)) } else { Ok(()) }
}

fn durations(durations: &Durations, open_ns: u64) -> String {
    let mean = durations.mean_ns().unwrap_or_default();
    format!(
        "{} ({} of the time open), mean {}, longest {}",
        seconds(durations.total_ns),
        percent(durations.total_ns, open_ns),
        seconds(mean),
        seconds(durations.max_ns)
    )
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

fn per_second(events: u64, ns: u64) -> Option<String> {
    (ns > 0).then(|| count((events as f64 / (ns as f64 / 1e9)) as u64))
}

fn plural(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!((percent(1, 0), percent(1, 8)), ("-".to_owned(), "12.5 %".to_owned()));
        assert_eq!((plural(1, "step"), plural(2_000, "step")), ("1 step".to_owned(), "2,000 steps".to_owned()));
    }
}
