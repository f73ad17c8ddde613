//! The texts of each reason: a stable code for machines, one sentence for people, and what to do next.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::{NamedDaemon, Reason};
use crate::tags::{OWNER, SCOPE, SCOPE_USER, TagSet};

/// How many tags a sentence lists before it only counts.
const LISTED: usize = 4;

impl Reason {
    /// All codes, in the order of the documentation.
    pub const CODES: [&'static str; 13] = [
        "starting",
        "busy",
        "unhealthy",
        "draining",
        "not_seen",
        "key_expired",
        "key_revoked",
        "tagged_job",
        "untagged_job",
        "missing_tag",
        "different_tag",
        "other_user",
        "no_daemons",
    ];

    /// The code for machines; it never changes.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Starting { .. } => "starting",
            Self::Busy { .. } => "busy",
            Self::Unhealthy { .. } => "unhealthy",
            Self::Draining { .. } => "draining",
            Self::NotSeen { .. } => "not_seen",
            Self::KeyExpired { .. } => "key_expired",
            Self::KeyRevoked { .. } => "key_revoked",
            Self::TaggedJob { .. } => "tagged_job",
            Self::UntaggedJob { .. } => "untagged_job",
            Self::MissingTag { .. } => "missing_tag",
            Self::DifferentTag { .. } => "different_tag",
            Self::OtherUser { .. } => "other_user",
            Self::NoDaemons { .. } => "no_daemons",
        }
    }

    /// Whether the job starts without anybody doing anything.
    #[must_use]
    pub const fn passes_by_itself(&self) -> bool {
        matches!(self, Self::Starting { .. } | Self::Busy { .. })
    }

    /// One sentence for people.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Starting { daemon } => {
                format!("Daemon {} is free and can run the job, which starts at once.", name(daemon))
            }
            Self::Busy { daemons, slots, queue } => {
                let subject = match daemons {
                    1 => "The one daemon that can run the job is busy".to_owned(),
                    many => format!("All {many} daemons that can run the job are busy"),
                };
                let mut text = format!("{subject} ({})", count(*slots, "slot", "slots"));
                if queue.position > 0 {
                    // Written to a String, which cannot fail.
                    let _ = write!(text, ": position {} of {}", queue.position, queue.size);
                }
                if let Some(since) = queue.oldest_running_since {
                    let _ = write!(text, ", oldest running since {}", instant(since));
                }
                text + "."
            }
            Self::Unhealthy { daemon, problem, daemons } => format!(
                "Daemon {} could run the job but is unhealthy ({}){}.",
                name(daemon),
                quoted(problem),
                others(*daemons)
            ),
            Self::Draining { daemon, daemons } => {
                format!("Daemon {} could run the job but drains{}.", name(daemon), others(*daemons))
            }
            Self::NotSeen { daemon, last_seen_at: Some(at), daemons } => format!(
                "Daemon {} could run the job but was last seen at {}{}.",
                name(daemon),
                instant(*at),
                others(*daemons)
            ),
            Self::NotSeen { daemon, last_seen_at: None, daemons } => {
                format!("Daemon {} could run the job but never came{}.", name(daemon), others(*daemons))
            }
            Self::KeyExpired { daemon, at, daemons } => format!(
                "Daemon {} could run the job but its key expired at {}{}.",
                name(daemon),
                instant(*at),
                others(*daemons)
            ),
            Self::KeyRevoked { daemon, at, daemons } => format!(
                "Daemon {} could run the job but its key was deleted at {}{}.",
                name(daemon),
                instant(*at),
                others(*daemons)
            ),
            Self::TaggedJob { daemons: 1 } => {
                "The job has tags, and the only daemon has none: it takes jobs without tags only.".to_owned()
            }
            Self::TaggedJob { daemons } => format!(
                "The job has tags, and none of the {daemons} daemons has any: they take jobs without tags only."
            ),
            Self::UntaggedJob { daemons: 1, every: true } => {
                "The job has no tags, and the only daemon has some: it takes jobs with tags only.".to_owned()
            }
            Self::UntaggedJob { daemons, every: true } => format!(
                "The job has no tags, and all {daemons} daemons have some: they take jobs with tags only."
            ),
            Self::UntaggedJob { daemons, every: false } => format!(
                "The job has no tags, and {} with tags never {} such a job.",
                count(*daemons as u64, "daemon", "daemons"),
                if *daemons == 1 { "takes" } else { "take" }
            ),
            Self::MissingTag { daemon, missing } => {
                format!("The nearest daemon, {}, lacks {}.", name(daemon), pairs(missing))
            }
            Self::DifferentTag { daemon, different, missing } => {
                let shown = different.iter().map(|tag| {
                    format!("{} where the job wants {}", pair(&tag.key, &tag.has), pair(&tag.key, &tag.wants))
                });
                let mut text = format!("The nearest daemon, {}, has {}", name(daemon), listed(shown));
                if !missing.is_empty() {
                    let _ = write!(text, ", and lacks {}", pairs(missing));
                }
                text + "."
            }
            Self::OtherUser { daemon, daemons } => {
                format!("Daemon {} takes the jobs of another user only{}.", name(daemon), others(*daemons))
            }
            Self::NoDaemons { of_other_types: 0, .. } => "No daemon has joined this organization.".to_owned(),
            Self::NoDaemons { provisioner, of_other_types } => format!(
                "None of the organization's {} serves the provisioner type {}.",
                count(*of_other_types as u64, "daemon", "daemons"),
                quoted(provisioner)
            ),
        }
    }

    /// What to do next; `tags` are the job's.
    #[must_use]
    pub fn next_step(&self, tags: &TagSet) -> String {
        let start = start_command(tags);
        match self {
            Self::Starting { .. } => {
                "Nothing; if it stays so for a minute, look at that daemon's log.".to_owned()
            }
            Self::Busy { .. } => format!("Wait, or start another daemon for such jobs: {start}"),
            Self::Unhealthy { .. } => {
                format!(
                    "Repair it as its log and coder provisioner list -o json say, or start another one: {start}"
                )
            }
            Self::Draining { .. } => format!("Start another daemon for such jobs: {start}"),
            Self::NotSeen { .. } => {
                format!("Look whether it still runs and reaches the server, or start another one: {start}")
            }
            Self::KeyExpired { .. } => {
                "Extend the key with coder provisioner keys update --expires-in and start the daemon again, or give it \
                 another: coder provisioner keys create makes one."
                    .to_owned()
            }
            Self::KeyRevoked { .. } => {
                "Give the daemon another key: coder provisioner keys create makes one.".to_owned()
            }
            Self::TaggedJob { .. } | Self::MissingTag { .. } | Self::DifferentTag { .. } => format!(
                "Start a daemon with the job's tags: {start} (with a key, the key must have them); or push the \
                 template with a daemon's tags (coder templates push --provisioner-tag)."
            ),
            Self::UntaggedJob { .. } => format!(
                "Start a daemon without tags: {start}; or push the template with a daemon's tags (coder templates \
                 push --provisioner-tag)."
            ),
            Self::OtherUser { .. } | Self::NoDaemons { .. } => format!("Start a daemon: {start}"),
        }
    }
}

/// The command that starts a daemon for jobs of these tags.
#[must_use]
fn start_command(tags: &TagSet) -> String {
    let mut command = "coder provisioner start".to_owned();
    let is_shown = |(key, value): &(&String, &String)| match key.as_str() {
        OWNER => false,
        SCOPE => value.as_str() == SCOPE_USER,
        _ => true,
    };
    let all: Vec<_> = tags.as_map().iter().filter(is_shown).collect();
    for (key, value) in all.iter().take(LISTED) {
        let _ = write!(command, " --tag {}", pair(key, value));
    }
    if all.len() > LISTED {
        let _ = write!(command, " --tag … ({} more)", all.len() - LISTED);
    }
    command
}

fn name(daemon: &NamedDaemon) -> String {
    quoted(&daemon.name)
}

/// A tag as people type it.
fn pair(key: &str, value: &str) -> String {
    quoted(&format!("{key}={value}"))
}

/// Text that a user chose: quoted unless it is plain, so that it cannot control a terminal or look like part of the message.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-.:/=@+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.escape_debug())
}

fn pairs(pairs: &[(String, String)]) -> String {
    listed(pairs.iter().map(|(key, value)| pair(key, value)))
}

fn listed(words: impl ExactSizeIterator<Item = String>) -> String {
    let more = words.len().saturating_sub(LISTED);
    let mut text = words.take(LISTED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        let _ = write!(text, " and {more} more");
    }
    text
}

fn others(daemons: usize) -> String {
    match daemons {
        0 | 1 => String::new(),
        many => format!(" (and {} more like it)", many - 1),
    }
}

fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// An instant to the second.
fn instant(at: Timestamp) -> String {
    format!("{at:.0}")
}
