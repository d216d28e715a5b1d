//! Values of settings as a command line gives them: lists and ranges.

use std::str::FromStr;

/// The most values of a setting, and combinations of them, that are answered at once.
pub(crate) const MOST: usize = 10_000;

/// The values of a setting, in the order in which they were given.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Values<T>(pub(crate) Vec<T>);

fn list<T>(text: &str, item: impl Fn(&str) -> Result<Vec<T>, String>) -> Result<Values<T>, String> {
    let items: Result<Vec<Vec<T>>, String> = text.split(',').map(|part| item(part.trim())).collect();
    let items: Vec<T> = items?.into_iter().flatten().collect();
    if items.len() > MOST { Err(format!("{} values are too many", items.len())) } else { Ok(Values(items)) }
}

/// A whole number, or a range of them with both ends.
fn range(text: &str) -> Result<Vec<u64>, String> {
    let parse = |text: &str| {
        let wrong = |_| format!("`{text}` is no whole number; give one, a list `16,32,64` or a range `0..4`");
        text.parse::<u64>().map_err(wrong)
    };
    let Some((first, last)) = text.split_once("..") else { return Ok(vec![parse(text)?]) };
    let (first, last) = (parse(first)?, parse(last.trim_start_matches('='))?);
    match last.checked_sub(first) {
        None => Err(format!("the range {text} is empty: its first number is above its last")),
        Some(more) if more >= MOST as u64 => Err(format!("the range {text} is too long")),
        Some(_) => Ok((first..=last).collect()),
    }
}

/// Whole numbers.
pub(crate) fn numbers(text: &str) -> Result<Values<u64>, String> {
    list(text, range)
}

/// Whole numbers, and `none`.
pub(crate) fn optional(text: &str) -> Result<Values<Option<u64>>, String> {
    list(text, |part| if part == "none" { Ok(vec![None]) } else { Ok(range(part)?.into_iter().map(Some).collect()) })
}

/// Names.
pub(crate) fn words(text: &str) -> Result<Values<String>, String> {
    list(text, |part| Ok(vec![part.to_owned()]))
}

/// Leases of a prompt in all; nothing for `drop`.
pub(crate) fn unused(text: &str) -> Result<Values<Option<u32>>, String> {
    list(text, |part| {
        let leases = part.strip_prefix("retry:").map(u32::from_str);
        match (part, leases) {
            ("drop", _) => Ok(vec![None]),
            (_, Some(Ok(leases))) => Ok(vec![Some(leases)]),
            _ => Err(format!("`{part}` is no rule: give `drop`, or `retry:3` for three leases of a prompt")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_are_read() {
        assert_eq!(numbers("0..4"), Ok(Values(vec![0, 1, 2, 3, 4])));
        assert_eq!(numbers("16,32..=33, 64"), Ok(Values(vec![16, 32, 33, 64])));
        assert_eq!(optional("none,1"), Ok(Values(vec![None, Some(1)])));
        assert_eq!(unused("drop,retry:3"), Ok(Values(vec![None, Some(3)])));
        let wrong = [numbers("4..0"), numbers("a"), numbers("1,"), numbers("0..99999999999")];
        let told = ["its first number is above its last", "`a` is no whole number", "`` is no", "too long"];
        for (wrong, told) in wrong.into_iter().zip(told) {
            assert!(wrong.clone().unwrap_err().contains(told), "{wrong:?}");
        }
        assert!(unused("retry").unwrap_err().contains("retry:3"));
    }
}
