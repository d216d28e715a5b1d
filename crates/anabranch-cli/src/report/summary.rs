//! The numbers at the top of the report.

use anabranch_replay::{Audit, Change, Series};

use super::numbers::{count, duration, escaped, percent, short};

fn tile(name: &str, value: &str, detail: &str) -> String {
    format!("<div><dt>{name}</dt><dd>{value}<small>{detail}</small></dd></div>")
}

fn gap(series: &Series) -> (String, String) {
    let mean = series.mean().map_or_else(|| "–".to_owned(), |mean| format!("{mean:.2}"));
    let largest = series.max().map_or_else(|| "none known".to_owned(), |max| format!("mean; largest {max}"));
    let unknown = if series.unknown > 0 { format!(", {} unknown", count(series.unknown)) } else { String::new() };
    (mean, largest + &unknown)
}

fn change(change: Option<Change>, of: &str) -> (String, String) {
    change.map_or_else(
        || ("–".to_owned(), "none".to_owned()),
        |change| {
            let detail = format!("mean of the first {}, then of the last", plural(change.of, of));
            (format!("{} → {}", short(change.first), short(change.last)), detail)
        },
    )
}

fn plural(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

pub(super) fn summary(audit: &Audit) -> String {
    let (groups, learner, publications) = (&audit.groups, &audit.learner, &audit.publications);
    let version =
        publications.version.map_or_else(|| "none installed".to_owned(), |version| format!("{version} installed"));
    let filters: Vec<String> =
        audit.filters.iter().map(|(name, excluded)| format!("{} {}", escaped(name), count(*excluded))).collect();
    let reasons: Vec<String> = groups
        .excluded
        .iter()
        .map(|(reason, excluded)| {
            let by = if *reason == "filtered" { format!(" ({})", filters.join(", ")) } else { String::new() };
            format!("{} {}{by}", reason.replace('_', " "), count(*excluded))
        })
        .collect();
    let open = groups.in_flight + groups.waiting + groups.buffered;
    let retried: u64 = audit.attempts.iter().filter(|(attempt, _)| **attempt > 0).map(|(_, leased)| leased).sum();
    let (consumed_gap, excluded_gap) = (gap(&audit.gap.consumed), gap(&audit.gap.excluded));
    let (reward, loss) = (change(audit.reward, "group"), change(learner.loss, "step"));
    let mean = |durations: &anabranch_replay::Durations| durations.mean_ns().map_or_else(|| "–".to_owned(), duration);
    let tiles = [
        tile("Training steps", &count(learner.steps), &plural(learner.updates, "optimizer update")),
        tile("Open", &duration(audit.open_ns), &plural(u64::from(audit.sessions), "session")),
        tile(
            "Groups consumed",
            &count(groups.consumed),
            &format!(
                "{} of {} leased, {} not settled",
                percent(groups.consumed, groups.leased),
                count(groups.leased),
                count(open)
            ),
        ),
        tile("Groups excluded", &count(groups.all_excluded()), &reasons.join(", ")),
        tile(
            "Tokens trained on",
            &percent(audit.tokens.consumed, audit.tokens.generated),
            &format!("{} of {} generated", count(audit.tokens.consumed), count(audit.tokens.generated)),
        ),
        tile("Leased again", &count(retried), &format!("{} gave up", plural(audit.exhausted, "prompt"))),
        tile("Gap, consumed", &consumed_gap.0, &consumed_gap.1),
        tile("Gap, excluded", &excluded_gap.0, &excluded_gap.1),
        tile(
            "Learner waited",
            &percent(learner.wait.total_ns, audit.open_ns),
            &format!("of the time open; mean {} a batch", mean(&learner.wait)),
        ),
        tile(
            "Generation paused",
            &percent(publications.pause.total_ns, audit.open_ns),
            &format!(
                "{}, mean {}; {version}",
                plural(publications.published, "publication"),
                mean(&publications.pause)
            ),
        ),
        tile("Reward", &reward.0, &reward.1),
        // A browser may break a line after a hyphen, even within a number, but not after a minus sign.
        tile("Loss", &loss.0.replace('-', "−"), &loss.1),
    ];
    format!("<dl class=\"tiles\">{}</dl>", tiles.concat())
}
