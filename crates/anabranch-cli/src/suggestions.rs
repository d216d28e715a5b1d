//! Suggests a group if the one that the user named does not exist.

use anabranch_core::GroupId;

use crate::arguments::RunArguments;
use crate::source::Origin;

/// The groups to suggest.
pub(crate) struct Near<'a> {
    asked: &'a GroupId,
    same_prompt: Option<GroupId>,
    any: Option<GroupId>,
}

impl<'a> Near<'a> {
    pub(crate) fn new(asked: &'a GroupId) -> Self {
        Self { asked, same_prompt: None, any: None }
    }

    /// Notes a group of the run.
    pub(crate) fn see(&mut self, id: &GroupId) {
        if self.any.is_none() {
            self.any = Some(id.clone());
        }
        if id.prompt == self.asked.prompt {
            self.same_prompt = Some(id.clone());
        }
    }

    /// Says that the run has no `what`, and names a group that it has.
    pub(crate) fn advice(&self, what: &str, run: &RunArguments, origin: &Origin) -> String {
        let known = match (&self.same_prompt, &self.any) {
            (Some(last), _) => format!("; the last attempt at that prompt is {last}"),
            (None, Some(any)) => format!("; one of its groups is {any}"),
            (None, None) => "; no group was leased".to_owned(),
        };
        let part = if origin.is_live() { "the sealed part of " } else { "" };
        format!("{part}{} has no {what}{known}", run.path.display())
    }
}
