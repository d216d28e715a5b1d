//! Deserializes texts that rarely change: a log names its dataset in every event, and a run has only a few datasets.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use serde::Deserializer;
use serde::de::{Error, Visitor};

/// How often a text is shared before a new copy is made. A thread that decodes for another thread should not share its
/// reference counter for long: two processors that change the same counter wait for each other.
const SHARED: u32 = 1024;

thread_local! {
    /// The last text, and how often it was shared.
    static LAST: RefCell<(Arc<str>, u32)> = RefCell::new(("".into(), 0));
}

/// Deserializes a text. Returns the previous text of this thread if it is the same.
pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    deserializer.deserialize_str(Shared)
}

struct Shared;

impl Visitor<'_> for Shared {
    type Value = Arc<str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        LAST.with_borrow_mut(|(last, shared)| {
            if *shared >= SHARED || **last != *text {
                (*last, *shared) = (text.into(), 0);
            }
            *shared += 1;
            Ok(last.clone())
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::PromptId;

    use super::*;

    #[test]
    fn names_are_read_as_they_were_written_and_shared_where_they_are_the_same() {
        let id = |dataset: &str, row| PromptId { dataset: dataset.into(), epoch: 0, row };
        let written = [id("letters", 1), id("letters", 2), id("words", 1), id("letters", 1), id("", 0)];
        let text = serde_json::to_string(&written).unwrap();
        let read: Vec<PromptId> = serde_json::from_str(&text).unwrap();
        assert_eq!(read, written);
        assert!(Arc::ptr_eq(&read[0].dataset, &read[1].dataset));
        assert!(serde_json::from_str::<PromptId>(r#"{"dataset":1,"epoch":0,"row":0}"#).is_err());
    }
}
