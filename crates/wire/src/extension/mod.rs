//! Our extensions of the official daemon protocol: which exist, and how daemon and server negotiate them.
//!
//! `docs/extensions.md` has the rules. `client` and `service` are the two ends of the calls, `journal` transfers a state.

mod client;
mod journal;
mod redacted;
pub(crate) mod serve;
mod service;

use std::fmt;

use http::{HeaderMap, HeaderValue};

pub use self::client::{Client, Notifications};
pub use self::journal::{CHUNK_SIZE, Error as JournalError, Journal, StateTransfer};
pub use self::service::{NotificationSender, Service};
pub use crate::messages::provisionerext::v1 as messages;

/// The header by which a daemon offers extensions with its upgrade request, and a server grants them with its 101.
pub const HEADER: &str = "coder-provisioner-extensions";

/// Most slots of a daemon, and so most jobs that it holds.
pub const MAX_SLOTS: usize = 256;

/// Longest state in a journal, in bytes. A state over 4 MiB does not fit the official call that ends a job, but it is
/// not lost.
pub const MAX_STATE_SIZE: usize = 32 << 20;

/// Longest token, in bytes.
pub const MAX_TOKEN_SIZE: usize = 64;

/// Longest [`messages::HealthReport::problem`] and [`messages::HealthReport::detail`], in bytes.
pub const MAX_PROBLEM_SIZE: usize = 64;
/// See [`MAX_PROBLEM_SIZE`].
pub const MAX_PROBLEM_DETAIL_SIZE: usize = 1024;

/// Bytes of a session secret.
pub const SESSION_SIZE: usize = 32;

/// Longest value of the header that is read, in bytes, over all its lines.
const MAX_HEADER_SIZE: usize = 1024;

/// The only version of every extension so far.
const VERSION: &str = "1";

/// Names of the calls on the wire.
pub mod rpc {
    /// The first call of every connection.
    pub const ATTACH: &str = "/provisionerext.v1.DaemonExtensions/Attach";
    /// Gets the token of a job.
    pub const HOLD: &str = "/provisionerext.v1.DaemonExtensions/Hold";
    /// Stores numbered log lines.
    pub const LOGS: &str = "/provisionerext.v1.DaemonExtensions/Logs";
    /// Stores a state that Terraform wrote while it works.
    pub const JOURNAL: &str = "/provisionerext.v1.DaemonExtensions/Journal";
    /// Stores the state that a killed process left behind.
    pub const SALVAGE: &str = "/provisionerext.v1.DaemonExtensions/Salvage";
    /// Reports the number of slots and of running jobs.
    pub const REPORT_SLOTS: &str = "/provisionerext.v1.DaemonExtensions/ReportSlots";
    /// Reports the program that runs a job.
    pub const REPORT_PROGRAM: &str = "/provisionerext.v1.DaemonExtensions/ReportProgram";
    /// Reports whether the daemon can run jobs.
    pub const REPORT_HEALTH: &str = "/provisionerext.v1.DaemonExtensions/ReportHealth";
    /// Subscribes to notifications.
    pub const NOTIFICATIONS: &str = "/provisionerext.v1.DaemonExtensions/Notices";
}

/// One extension of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Extension {
    /// Jobs survive a lost connection.
    Resume,
    /// States are sent while Terraform works.
    Journal,
    /// The server knows the slots of a daemon.
    Slots,
    /// The server can drain a daemon.
    Drain,
    /// The server can cancel a job at once.
    Cancel,
    /// Log lines are numbered.
    Logs,
    /// The server knows which Terraform or OpenTofu ran a job.
    Program,
    /// The server knows whether a daemon can run jobs.
    Health,
}

impl Extension {
    /// All of them, in the order in which they are offered.
    pub const ALL: [Self; 8] = [
        Self::Resume,
        Self::Journal,
        Self::Slots,
        Self::Drain,
        Self::Cancel,
        Self::Logs,
        Self::Program,
        Self::Health,
    ];

    /// The name in the header.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Resume => "resume",
            Self::Journal => "journal",
            Self::Slots => "slots",
            Self::Drain => "drain",
            Self::Cancel => "cancel",
            Self::Logs => "logs",
            Self::Program => "program",
            Self::Health => "health",
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u8
    }
}

/// A set of extensions, each in the version this program speaks.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Extensions(u16);

impl Extensions {
    /// None: the official protocol and nothing else.
    pub const NONE: Self = Self(0);
    /// Every extension this program speaks.
    pub const ALL: Self = Self((1 << Extension::ALL.len()) - 1);

    /// Whether the set contains `extension`.
    #[must_use]
    pub const fn has(self, extension: Extension) -> bool {
        self.0 & extension.bit() != 0
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The set with `extension`.
    #[must_use]
    pub const fn with(self, extension: Extension) -> Self {
        Self(self.0 | extension.bit())
    }

    /// The set without `extension`.
    #[must_use]
    pub const fn without(self, extension: Extension) -> Self {
        Self(self.0 & !extension.bit())
    }

    /// The extensions in both sets: what a server grants of an offer, and what a daemon uses of a grant.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The extensions of the set.
    pub fn iter(self) -> impl Iterator<Item = Extension> {
        Extension::ALL.into_iter().filter(move |extension| self.has(*extension))
    }

    /// The extensions that the headers of a request offer or those of a 101 grant. Unknown names and versions are
    /// ignored, and so is everything malformed: extensions are never a reason to fail a join.
    #[must_use]
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let values = headers.get_all(HEADER);
        let mut remaining = MAX_HEADER_SIZE;
        let mut found = Self::NONE;
        for value in values {
            remaining = remaining.saturating_sub(value.len());
            if remaining == 0 {
                return Self::NONE;
            }
            for entry in value.to_str().unwrap_or_default().split(',') {
                let known =
                    |extension: &Extension| entry.trim().split_once('/') == Some((extension.name(), VERSION));
                found =
                    Extension::ALL.into_iter().find(known).map_or(found, |extension| found.with(extension));
            }
        }
        found
    }

    /// The value of the header. None for the empty set, because then there is no header.
    #[must_use]
    pub fn header(self) -> Option<HeaderValue> {
        if self.is_empty() {
            return None;
        }
        Some(HeaderValue::from_str(&self.to_string()).expect("names and versions are plain ASCII"))
    }
}

impl fmt::Display for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, extension) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{}/{VERSION}", extension.name())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl FromIterator<Extension> for Extensions {
    fn from_iter<I: IntoIterator<Item = Extension>>(extensions: I) -> Self {
        extensions.into_iter().fold(Self::NONE, Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &[&str]) -> Extensions {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(HEADER, HeaderValue::from_str(line).unwrap());
        }
        Extensions::from_headers(&headers)
    }

    #[test]
    fn every_extension_survives_the_header() {
        let all = Extensions::ALL.header().unwrap();
        assert_eq!(all, "resume/1, journal/1, slots/1, drain/1, cancel/1, logs/1, program/1, health/1");
        assert_eq!(parse(&[all.to_str().unwrap()]), Extensions::ALL);
        for extension in Extension::ALL {
            let rest = Extensions::ALL.without(extension);
            assert!(!rest.has(extension) && rest.with(extension) == Extensions::ALL);
            assert_eq!(Extensions::ALL.with(extension), Extensions::ALL, "{extension:?} twice");
            assert_eq!(parse(&[&rest.to_string()]), rest, "{extension:?}");
        }
    }

    #[test]
    fn unknown_and_malformed_entries_are_ignored() {
        let check = |lines: &[&str], expected: &[Extension]| {
            assert_eq!(parse(lines), expected.iter().copied().collect(), "{lines:?}");
        };
        check(&[], &[]);
        check(&[""], &[]);
        check(&["resume/2,logs/1"], &[Extension::Logs]);
        check(&["resume/2, resume/1"], &[Extension::Resume]);
        check(&[" slots/1 ,,teleport/1,drain", "journal/1"], &[Extension::Slots, Extension::Journal]);
        check(&["Resume/1, resume/01, resume/1;q=1, /1"], &[]);
        check(&[&format!("{},resume/1", "x".repeat(MAX_HEADER_SIZE))], &[]);
    }

    #[test]
    fn both_sides_use_what_both_know() {
        let all = || (0..=Extensions::ALL.0).map(Extensions);
        for (offer, known) in all().flat_map(|offer| all().step_by(7).map(move |known| (offer, known))) {
            let granted = offer.intersection(known);
            for extension in Extension::ALL {
                let both = offer.has(extension) && known.has(extension);
                assert_eq!(granted.has(extension), both, "{extension:?} of {offer:?} and {known:?}");
            }
        }
    }

    #[test]
    fn a_set_is_shown_as_its_extensions() {
        let some: Extensions = [Extension::Logs, Extension::Resume].into_iter().collect();
        assert_eq!(format!("{some:?} {some}"), "{Resume, Logs} resume/1, logs/1");
    }

    #[test]
    fn the_empty_set_has_no_header() {
        assert_eq!(Extensions::NONE.header(), None);
        assert_eq!(Extensions::ALL.intersection(Extensions::NONE).header(), None);
    }
}
