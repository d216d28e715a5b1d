//! Formats numbers for tables.

pub(crate) use anabranch_replay::units::{count, seconds};

/// Formats a value, or a dash if there is none.
pub(crate) fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

/// Formats a part of a whole in percent.
pub(crate) fn percent(ratio: f64) -> String {
    format!("{:.1} %", 100.0 * ratio)
}

/// Formats a mean or a loss: four significant figures in at most nine characters.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size == 0.0 || (0.001..10_000.0).contains(&size) => {
            let decimals = if size >= 100.0 {
                1
            } else if size >= 10.0 {
                2
            } else {
                3
            };
            format!("{value:.decimals$}")
        }
        _ if value.is_finite() => format!("{value:.2e}"),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([999, 1_500, 2_000_000, 143_200_000_000].map(seconds), ["999 ns", "1.5 us", "2.0 ms", "143.2 s"]);
        assert_eq!([0.0, 1.23456, 12.3456, -123.456].map(number), ["0.000", "1.235", "12.35", "-123.5"]);
        assert_eq!([1e-5, 2.5e7, f64::NAN].map(number), ["1.00e-5", "2.50e7", "NaN"]);
        assert_eq!((percent(0.125), or_dash(None, count)), ("12.5 %".to_owned(), "-".to_owned()));
    }
}
