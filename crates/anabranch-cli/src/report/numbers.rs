//! Formats numbers for the report.

pub(super) use crate::units::count;

/// Formats a number without trailing zeros.
pub(super) fn short(number: f64) -> String {
    let places = match number.abs() {
        0.0 | 100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        0.01.. => 3,
        _ => return format!("{number:.1e}"),
    };
    let text = format!("{number:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Formats a duration with its significant figures.
pub(super) fn duration(ns: u64) -> String {
    match ns {
        0 => "0".to_owned(),
        1..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", short(ns as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", short(ns as f64 / 1e6)),
        1_000_000_000..120_000_000_000 => format!("{} s", short(ns as f64 / 1e9)),
        _ => {
            let minutes = ns / 60_000_000_000;
            match (minutes / 60, minutes % 60) {
                (0, minutes) => format!("{minutes} min {} s", ns / 1_000_000_000 % 60),
                (hours, minutes) => format!("{} h {minutes} min", count(hours)),
            }
        }
    }
}

/// Formats a part of a whole in percent, or a dash if the whole is 0.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "–".to_owned() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

/// Escapes text for HTML.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([0.0, 0.25, 12.0, 1.5, 1234.5, 0.004].map(short), ["0", "0.25", "12", "1.5", "1234", "4.0e-3"]);
        let durations = [0, 999, 1_500, 2_000_000, 61_300_000_000, 150_000_000_000, 7_260_000_000_000].map(duration);
        assert_eq!(durations, ["0", "999 ns", "1.5 µs", "2 ms", "61.3 s", "2 min 30 s", "2 h 1 min"]);
        assert_eq!((percent(1, 0), percent(1, 8)), ("–".to_owned(), "12.5 %".to_owned()));
        assert_eq!(count(1_234_567), "1,234,567");
    }

    #[test]
    fn no_text_becomes_markup() {
        assert_eq!(escaped("<b>\"a\" & b</b>"), "&lt;b&gt;&quot;a&quot; &amp; b&lt;/b&gt;");
    }
}
