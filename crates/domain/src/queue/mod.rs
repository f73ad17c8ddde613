//! Who gets the next free daemon, and what the official queue fields show. `fair` is the order in which we hand jobs
//! out; `official` is the ranking that the official API publishes, which knows no fairness.

mod fair;
mod official;

pub use fair::{Fair, Job, Line, Share, position};
pub use official::{Place, Taker, Waiting, by_daemon, overall};

use crate::build::Reason;
use crate::ids::UserId;

/// Whether a job is automatic work, which queues after everything that people asked for: whatever the prebuilds user
/// starts (scheduling-and-auth QUE-1), and builds that a schedule or a clean-up rule made. Jobs that are no builds
/// have no reason.
#[must_use]
pub fn is_automatic(initiator: UserId, reason: Option<Reason>) -> bool {
    let by_rule =
        matches!(reason, Some(Reason::Autostart | Reason::Autostop | Reason::Dormancy | Reason::Autodelete));
    initiator == UserId::PREBUILDS || by_rule
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prebuilds_and_rules_are_automatic_people_are_not() {
        let person = UserId::random();
        assert!(is_automatic(UserId::PREBUILDS, None));
        assert!(is_automatic(UserId::PREBUILDS, Some(Reason::Initiator)));
        assert!(!is_automatic(person, None));
        let automatic: Vec<_> =
            Reason::ALL.into_iter().filter(|reason| is_automatic(person, Some(*reason))).collect();
        assert_eq!(automatic, [Reason::Autostart, Reason::Autostop, Reason::Dormancy, Reason::Autodelete]);
    }
}
