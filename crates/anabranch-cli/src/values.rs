//! Parses the values of settings on the command line: lists and ranges.

use std::str::FromStr;

/// The largest number of values of one setting, and of combinations of values, in one question.
pub(crate) const MOST: usize = 10_000;

/// The values of a setting, in the order in which the user gave them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Values<T>(pub(crate) Vec<T>);

fn list<T>(text: &str, item: impl Fn(&str) -> Result<Vec<T>, String>) -> Result<Values<T>, String> {
    let items: Result<Vec<Vec<T>>, String> = text.split(',').map(|part| item(part.trim())).collect();
    let items: Vec<T> = items?.into_iter().flatten().collect();
    if items.len() > MOST {
        Err(format!("expected at most {MOST} values, found {}", items.len()))
    } else {
        Ok(Values(items))
    }
}

/// Parses a whole number, or a range of whole numbers that includes both ends.
fn range(text: &str) -> Result<Vec<u64>, String> {
    let parse = |text: &str| {
        let wrong =
            |_| format!("expected a whole number, a list such as 16,32,64 or a range such as 0..4, found `{text}`");
        text.parse::<u64>().map_err(wrong)
    };
    let Some((first, last)) = text.split_once("..") else { return Ok(vec![parse(text)?]) };
    let (first, last) = (parse(first)?, parse(last.trim_start_matches('='))?);
    match last.checked_sub(first) {
        None => Err(format!("expected a range whose first number is not above its last, found `{text}`")),
        Some(more) if more >= MOST as u64 => Err(format!("expected a range of at most {MOST} numbers, found `{text}`")),
        Some(_) => Ok((first..=last).collect()),
    }
}

/// Parses whole numbers.
pub(crate) fn numbers(text: &str) -> Result<Values<u64>, String> {
    list(text, range)
}

/// Parses whole numbers and `none`.
pub(crate) fn optional(text: &str) -> Result<Values<Option<u64>>, String> {
    list(text, |part| if part == "none" { Ok(vec![None]) } else { Ok(range(part)?.into_iter().map(Some).collect()) })
}

/// Parses names.
pub(crate) fn words(text: &str) -> Result<Values<String>, String> {
    list(text, |part| Ok(vec![part.to_owned()]))
}

/// Parses how many leases a prompt may have in all; `drop` gives `None`.
pub(crate) fn unused(text: &str) -> Result<Values<Option<u32>>, String> {
    list(text, |part| {
        let leases = part.strip_prefix("retry:").map(u32::from_str);
        match (part, leases) {
            ("drop", _) => Ok(vec![None]),
            (_, Some(Ok(leases))) => Ok(vec![Some(leases)]),
            _ => Err(format!("expected `drop`, or `retry:3` for three leases of a prompt, found `{part}`")),
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
        let told = ["not above its last", "found `a`", "found ``", "a range of at most"];
        for (wrong, told) in wrong.into_iter().zip(told) {
            assert!(wrong.clone().unwrap_err().contains(told), "{wrong:?}");
        }
        assert!(unused("retry").unwrap_err().contains("retry:3"));
    }
}
