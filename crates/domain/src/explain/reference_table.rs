//! The table of reasons in `docs/provisioners.md`, made of the texts that people see.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;

use super::{NamedDaemon, QueueState, Reason, TagMismatch};
use crate::ids::{DaemonId, UserId};
use crate::tags::TagSet;

/// One example of each reason, in the order of [`Reason::CODES`].
fn examples() -> [Reason; Reason::CODES.len()] {
    let daemon = || NamedDaemon { id: DaemonId::NIL, name: "build-1".to_owned() };
    let at = Timestamp::UNIX_EPOCH;
    let pair = || ("environment".to_owned(), "on_prem".to_owned());
    [
        Reason::Starting { daemon: daemon() },
        Reason::Busy {
            daemons: 30,
            slots: 30,
            queue: QueueState { position: 1, size: 4, oldest_running_since: Some(at) },
        },
        Reason::Unhealthy { daemon: daemon(), problem: "no Terraform".to_owned(), daemons: 1 },
        Reason::Draining { daemon: daemon(), daemons: 1 },
        Reason::NotSeen { daemon: daemon(), last_seen_at: Some(at), daemons: 1 },
        Reason::KeyExpired { daemon: daemon(), at, daemons: 1 },
        Reason::KeyRevoked { daemon: daemon(), at, daemons: 1 },
        Reason::TaggedJob { daemons: 3 },
        Reason::UntaggedJob { daemons: 3, every: true },
        Reason::MissingTag { daemon: daemon(), missing: vec![pair()] },
        Reason::DifferentTag {
            daemon: daemon(),
            different: vec![TagMismatch {
                key: "environment".to_owned(),
                wants: "on_prem".to_owned(),
                has: "cloud".to_owned(),
            }],
            missing: Vec::new(),
        },
        Reason::OtherUser { daemon: daemon(), daemons: 1 },
        Reason::NoDaemons { provisioner: "terraform".to_owned(), of_other_types: 0 },
    ]
}

/// The table in Markdown: each code, an example of its message, and what to do.
#[must_use]
pub fn published_reasons() -> String {
    let tags = BTreeMap::from([("environment".to_owned(), "on_prem".to_owned())]);
    let tags = TagSet::canonical(UserId::NIL, [&tags]);
    let mut text = String::from("| code | for example | next step |\n| --- | --- | --- |\n");
    for reason in examples() {
        let job = if reason.code() == "untagged_job" { &TagSet::untagged() } else { &tags };
        // Written to a String, which cannot fail.
        let _ = writeln!(text, "| `{}` | {} | {} |", reason.code(), reason.message(), reason.next_step(job));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_example() {
        assert_eq!(examples().map(|reason| reason.code()), Reason::CODES);
    }
}
