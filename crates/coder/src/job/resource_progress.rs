//! The progress of each resource of a build, read from the lines of Terraform's log: planned, in progress, done.

use std::collections::BTreeMap;

use crate::plural;

/// Names of resources in progress that are shown at once.
const MAX_NAMES_SHOWN: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It will be changed. A replaced resource is done only after it was created again.
    Planned {
        replaced: bool,
    },
    Working {
        replaced: bool,
    },
    Done,
    Failed,
}

/// The resources of one build.
#[derive(Debug, Default)]
pub(crate) struct ResourceProgress {
    resources: BTreeMap<String, State>,
}

/// Terraform's texts after a resource's address, and their meaning. Data sources are only read and do not count.
const STARTS: [&str; 3] = ["Creating...", "Modifying...", "Destroying..."];
const ENDS: [&str; 3] = ["Creation complete", "Modifications complete", "Destruction complete"];
const FAILURES: [&str; 3] = ["Creation errored", "Modifications errored", "Destruction errored"];

impl ResourceProgress {
    /// Reads a line of the log. Returns the numbers of completed and of all resources when the line completes one.
    pub(crate) fn line(&mut self, text: &str) -> Option<(usize, usize)> {
        let (address, words) = text.split_once(": ")?;
        let is = |list: &[&str]| list.iter().any(|beginning| words.starts_with(beginning));
        let replaced = match self.resources.get(address) {
            Some(State::Planned { replaced } | State::Working { replaced }) => *replaced,
            _ => false,
        };
        let state = if let Some(action) = words.strip_prefix("Plan to ") {
            if action == "read" {
                return None;
            }
            State::Planned { replaced: action.starts_with("replace") }
        } else if is(&STARTS) {
            State::Working { replaced: replaced && words.starts_with("Destroying") }
        } else if is(&FAILURES) {
            State::Failed
        } else if is(&ENDS) {
            if replaced { State::Planned { replaced: false } } else { State::Done }
        } else {
            return None;
        };
        self.resources.insert(address.to_owned(), state);
        matches!(state, State::Done).then(|| (self.done(), self.resources.len()))
    }

    fn done(&self) -> usize {
        self.resources.values().filter(|state| matches!(state, State::Done)).count()
    }

    /// One line about all of them while Terraform works; none before and after.
    pub(crate) fn status(&self) -> Option<String> {
        let working: Vec<_> =
            self.resources.iter().filter(|(_, state)| matches!(state, State::Working { .. })).collect();
        if working.is_empty() {
            return None;
        }
        let mut names: Vec<_> =
            working.iter().take(MAX_NAMES_SHOWN).map(|(address, _)| address.as_str()).collect();
        let more = format!("{} more", working.len().saturating_sub(MAX_NAMES_SHOWN));
        if working.len() > MAX_NAMES_SHOWN {
            names.push(&more);
        }
        let planned = self.resources.values().filter(|state| matches!(state, State::Planned { .. })).count();
        Some(format!(
            "{} of {} done, {planned} planned, in progress: {}",
            self.done(),
            plural::count(self.resources.len(), "resource", "resources"),
            names.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_counted_from_plan_to_end() {
        let mut progress = ResourceProgress::default();
        for planned in ["create", "update", "replace", "delete"] {
            assert_eq!(progress.line(&format!("vm.{planned}: Plan to {planned}")), None);
        }
        assert_eq!(progress.line("data.x.y: Plan to read"), None);
        assert_eq!(progress.line("data.x.y: Reading..."), None);
        assert_eq!(progress.status(), None, "nothing is in progress");
        progress.line("vm.create: Creating...");
        progress.line("vm.create: Still creating... [00m10s elapsed]");
        let status = progress.status().unwrap();
        assert_eq!(status, "0 of 4 resources done, 3 planned, in progress: vm.create");
        assert_eq!(progress.line("vm.create: Creation complete after 0s [id=1]"), Some((1, 4)));
        progress.line("vm.update: Modifying... [id=2]");
        assert_eq!(progress.line("vm.update: Modifications complete after 1s"), Some((2, 4)));
        progress.line("vm.replace: Destroying... [id=3]");
        assert_eq!(
            progress.line("vm.replace: Destruction complete after 1s"),
            None,
            "it has to be made again"
        );
        progress.line("vm.replace: Creating...");
        assert_eq!(progress.line("vm.replace: Creation complete after 1s"), Some((3, 4)));
        progress.line("vm.delete: Destroying... [id=4]");
        progress.line("vm.delete: Destruction errored after 1s");
        assert_eq!(progress.status(), None);
    }

    #[test]
    fn many_names_are_cut_short() {
        let mut progress = ResourceProgress::default();
        for n in 0..5 {
            progress.line(&format!("module.m[\"a: b\"].vm.n{n}: Creating..."));
            progress.line(&format!("vm.n{n}: Creating..."));
        }
        let status = progress.status().unwrap();
        assert!(status.ends_with("in progress: vm.n0, vm.n1, vm.n2, 2 more"), "{status}");
    }
}
