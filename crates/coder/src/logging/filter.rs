//! Which entries are shown: everything from info on, and chosen debug lines of our own crates.

use regex::Regex;
use tracing::{Level, Metadata};

use super::Error;
use super::entry::Entry;

/// The message of an audit entry in the log (scheduling-and-auth 5.4).
const AUDIT_MESSAGE: &str = "audit_log";

/// The target whose warnings repeat a whole answer of the API server, with the values of Secrets and variables in it. Its errors are
/// returned too, and the operator logs those.
const WHOLE_ANSWERS: &str = "kube_client::client";

/// Level and patterns.
#[derive(Debug)]
pub(crate) struct Filter {
    patterns: Vec<Regex>,
    verbose: bool,
}

impl Filter {
    pub(super) fn new(patterns: &[String], verbose: bool) -> Result<Self, Error> {
        let compile = |pattern: &String| {
            let wrong = |source| Error::Filter { pattern: pattern.clone(), source: Box::new(source) };
            Regex::new(pattern).map_err(wrong)
        };
        Ok(Self { patterns: patterns.iter().map(compile).collect::<Result<_, _>>()?, verbose })
    }

    /// The cheap part, which is evaluated once per call site.
    pub(super) fn may_show(&self, metadata: &Metadata<'_>) -> bool {
        let level = *metadata.level();
        if !is_ours(metadata.target()) {
            return shows_library(metadata.target(), level);
        }
        // Spans are kept at debug so that their fields reach shown entries.
        level <= Level::INFO || (level == Level::DEBUG && (metadata.is_span() || self.wants_debug()))
    }

    pub(super) fn shows(&self, entry: &Entry<'_>) -> bool {
        entry.level <= Level::INFO || self.verbose || self.matches(entry)
    }

    /// Whether the human-readable log has it. An audit entry is long and repeats a short event; the logs for programs
    /// and the database have all audit entries.
    pub(super) fn shows_to_people(&self, entry: &Entry<'_>) -> bool {
        entry.fields.message != AUDIT_MESSAGE || self.verbose || self.matches(entry)
    }

    fn matches(&self, entry: &Entry<'_>) -> bool {
        let matches =
            |pattern: &Regex| pattern.is_match(entry.logger) || pattern.is_match(&entry.fields.message);
        self.patterns.iter().any(matches)
    }

    pub(super) const fn is_verbose(&self) -> bool {
        self.verbose
    }

    const fn wants_debug(&self) -> bool {
        self.verbose || !self.patterns.is_empty()
    }
}

/// Whether an entry of a library is shown.
fn shows_library(target: &str, level: Level) -> bool {
    level <= Level::WARN && target != WHOLE_ANSWERS
}

/// Whether the event comes from this workspace: its crates, or a logger named without a path.
fn is_ours(target: &str) -> bool {
    target.starts_with("coder")
        || matches!(target, "provisioner" | "provisionerd")
        || target.starts_with("ext-provisionerd")
}

#[cfg(test)]
mod tests {
    use super::super::entry::Fields;
    use super::*;

    #[test]
    fn people_see_audit_entries_when_they_ask_for_them() {
        let fields = Fields { message: AUDIT_MESSAGE.to_owned(), pairs: Vec::new() };
        let at = "2026-11-21T12:00:00Z".parse().unwrap();
        let entry = Entry { at, level: Level::INFO, logger: "coderd", fields, file: "", line: 0, module: "" };
        let shows = |patterns: &[&str], verbose| {
            let patterns: Vec<_> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
            let filter = Filter::new(&patterns, verbose).unwrap();
            assert!(filter.shows(&entry), "logs for programs have it");
            filter.shows_to_people(&entry)
        };
        assert!(!shows(&[], false) && !shows(&["database"], false));
        assert!(shows(&[], true) && shows(&["audit"], false));
    }

    #[test]
    fn whole_answers_of_the_api_server_are_not_logged() {
        assert!(!shows_library("kube_client::client", Level::WARN));
        assert!(!shows_library("kube_client::client", Level::ERROR));
        assert!(shows_library("kube_client::client::tls", Level::WARN));
        assert!(shows_library("rustls", Level::WARN) && !shows_library("rustls", Level::INFO));
    }
}
