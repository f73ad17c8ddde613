//! Which entries are shown: everything from info on, and chosen debug lines of our own crates.

use regex::Regex;
use tracing::{Level, Metadata};

use super::Error;
use super::entry::Entry;

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

    /// The cheap half, asked once per call site.
    pub(super) fn may_show(&self, metadata: &Metadata<'_>) -> bool {
        let level = *metadata.level();
        if !is_ours(metadata.target()) {
            return level <= Level::WARN;
        }
        // Spans are kept at debug so that their fields reach shown entries.
        level <= Level::INFO || (level == Level::DEBUG && (metadata.is_span() || self.wants_debug()))
    }

    pub(super) fn shows(&self, entry: &Entry<'_>) -> bool {
        let matches =
            |pattern: &Regex| pattern.is_match(entry.logger) || pattern.is_match(&entry.fields.message);
        entry.level <= Level::INFO || self.verbose || self.patterns.iter().any(matches)
    }

    const fn wants_debug(&self) -> bool {
        self.verbose || !self.patterns.is_empty()
    }
}

/// Whether the event comes from this workspace: its crates, or a logger named without a path.
fn is_ours(target: &str) -> bool {
    target.starts_with("coder")
        || matches!(target, "provisioner" | "provisionerd")
        || target.starts_with("ext-provisionerd")
}
