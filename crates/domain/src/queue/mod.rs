//! The order in which jobs are handed out. The store implements it in SQL; [`model`] holds the references that its tests
//! compare it with.

pub mod model;

use crate::build::BuildReason;
use crate::ids::UserId;

/// Whether a job is automatic work, which queues after all jobs that people requested: jobs of the prebuilds user
/// (scheduling-and-auth QUE-1), and builds that a schedule or a clean-up rule created. Only builds have a reason.
#[must_use]
pub fn is_automatic(initiator: UserId, reason: Option<BuildReason>) -> bool {
    let by_rule = matches!(
        reason,
        Some(
            BuildReason::Autostart | BuildReason::Autostop | BuildReason::Dormancy | BuildReason::Autodelete
        )
    );
    initiator == UserId::PREBUILDS || by_rule
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prebuilds_and_rules_are_automatic_people_are_not() {
        let person = UserId::random();
        assert!(is_automatic(UserId::PREBUILDS, None));
        assert!(is_automatic(UserId::PREBUILDS, Some(BuildReason::Initiator)));
        assert!(!is_automatic(person, None));
        let automatic: Vec<_> =
            BuildReason::ALL.into_iter().filter(|reason| is_automatic(person, Some(*reason))).collect();
        assert_eq!(
            automatic,
            [BuildReason::Autostart, BuildReason::Autostop, BuildReason::Dormancy, BuildReason::Autodelete]
        );
    }
}
