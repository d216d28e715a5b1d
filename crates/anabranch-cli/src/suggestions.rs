//! What to ask for instead of a group that is not there.

use anabranch_core::GroupId;

use crate::arguments::RunArguments;
use crate::source::Origin;

/// Groups to suggest where the one asked for is not there.
pub(crate) struct Near<'a> {
    asked: &'a GroupId,
    same_prompt: Option<GroupId>,
    any: Option<GroupId>,
}

impl<'a> Near<'a> {
    pub(crate) fn new(asked: &'a GroupId) -> Self {
        Self { asked, same_prompt: None, any: None }
    }

    /// Takes notice of a group that is there.
    pub(crate) fn see(&mut self, id: &GroupId) {
        if self.any.is_none() {
            self.any = Some(id.clone());
        }
        if id.prompt == self.asked.prompt {
            self.same_prompt = Some(id.clone());
        }
    }

    /// Says that `what` is not there, and what is.
    pub(crate) fn advice(&self, what: &str, run: &RunArguments, origin: &Origin) -> String {
        let known = match (&self.same_prompt, &self.any) {
            (Some(last), _) => format!("; the last attempt at that prompt is {last}"),
            (None, Some(any)) => format!("; one of its groups is {any}"),
            (None, None) => "; it has leased no group".to_owned(),
        };
        let beyond = if origin.is_live() { ", as far as it is sealed," } else { "" };
        format!("{}{beyond} has no {what}{known}", run.path.display())
    }
}
