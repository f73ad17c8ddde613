//! Conditions of a status, and their summary.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

pub const CONTROL_PLANE: &str = "ControlPlaneReady";
pub const ACCESS: &str = "OperatorAccessReady";
pub const ENTITLED: &str = "ExternalProvisionersEntitled";
pub const KEY: &str = "ProvisionerKeyReady";
pub const SECRET: &str = "ProvisionerKeySecretReady";
pub const RBAC: &str = "WorkspacePermissionsReady";
pub const WORKLOAD: &str = "DeploymentReady";
pub const DAEMONS: &str = "DaemonsConnected";
pub const PROGRESSING: &str = "Progressing";
pub const READY: &str = "Ready";

/// The conditions that decide about `Ready`, the first causes first.
const PARTS: [&str; 7] = [CONTROL_PLANE, ACCESS, ENTITLED, KEY, SECRET, RBAC, WORKLOAD];

/// What became of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: &'static str,
    pub is_true: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Finding {
    #[must_use]
    pub fn yes(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, is_true: true, reason, message: message.into() }
    }

    #[must_use]
    pub fn no(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, is_true: false, reason, message: message.into() }
    }
}

/// Enters a finding. Returns whether status or reason changed, which is when an Event is worth writing.
pub fn set(
    conditions: &mut Vec<Condition>,
    finding: &Finding,
    generation: Option<i64>,
    now: Timestamp,
) -> bool {
    let status = if finding.is_true { "True" } else { "False" };
    let message: String = finding.message.chars().take(32_000).collect();
    // The API has seconds; a finer time would differ from what is read back.
    let now = Time(Timestamp::from_second(now.as_second()).expect("whole seconds of an instant"));
    let Some(found) = conditions.iter_mut().find(|condition| condition.type_ == finding.kind) else {
        conditions.push(Condition {
            type_: finding.kind.to_owned(),
            status: status.to_owned(),
            reason: finding.reason.to_owned(),
            message,
            observed_generation: generation,
            last_transition_time: now,
        });
        return true;
    };
    let is_news = found.status != status || found.reason != finding.reason;
    if found.status != status {
        found.last_transition_time = now;
    }
    status.clone_into(&mut found.status);
    finding.reason.clone_into(&mut found.reason);
    found.message = message;
    found.observed_generation = generation;
    is_news
}

/// Removes a condition that does not apply any more.
pub fn clear(conditions: &mut Vec<Condition>, kind: &str) {
    conditions.retain(|condition| condition.type_ != kind);
}

/// `Ready`: false with the reason of the first part that is not, true when all known parts are.
#[must_use]
pub fn summary(conditions: &[Condition]) -> Finding {
    let first = PARTS.iter().find_map(|part| {
        conditions.iter().find(|condition| condition.type_ == *part && condition.status != "True")
    });
    match first {
        Some(cause) => {
            let part = PARTS.iter().find(|part| **part == cause.type_).copied().unwrap_or_default();
            Finding::no(READY, part, cause.message.clone())
        }
        None if !conditions.iter().any(|condition| condition.type_ == WORKLOAD) => {
            Finding::no(READY, "Pending", "the pool is being set up")
        }
        None => Finding::yes(READY, "AllPartsReady", "the pool can run jobs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_transition_time_changes_with_the_status_only() {
        let mut list = Vec::new();
        assert!(set(&mut list, &Finding::no(KEY, "RateLimited", "later"), Some(1), at(1)));
        assert!(set(&mut list, &Finding::no(KEY, "ProvisionerKeyFailed", "no"), Some(1), at(2)));
        assert_eq!(list[0].last_transition_time, Time(at(1)));
        assert!(!set(&mut list, &Finding::no(KEY, "ProvisionerKeyFailed", "no, still"), Some(2), at(3)));
        assert!(set(&mut list, &Finding::yes(KEY, "ProvisionerKeyReady", ""), Some(2), at(4)));
        assert_eq!((list.len(), list[0].last_transition_time.clone()), (1, Time(at(4))));
    }

    #[test]
    fn the_summary_names_the_first_cause() {
        let mut list = Vec::new();
        assert_eq!(summary(&list).reason, "Pending");
        set(&mut list, &Finding::no(WORKLOAD, "NoReplicasReady", "0 of 1"), None, at(0));
        set(&mut list, &Finding::no(ACCESS, "OperatorTokenInvalid", "refused"), None, at(0));
        let found = summary(&list);
        assert_eq!((found.is_true, found.reason, found.message.as_str()), (false, ACCESS, "refused"));
        set(&mut list, &Finding::yes(ACCESS, "OperatorAccessReady", ""), None, at(0));
        assert_eq!(summary(&list).reason, WORKLOAD);
        set(&mut list, &Finding::yes(WORKLOAD, "ScaledToZero", ""), None, at(0));
        assert!(summary(&list).is_true);
    }

    #[test]
    fn times_have_whole_seconds() {
        let mut list = Vec::new();
        let now = Timestamp::from_microsecond(1_500_000).unwrap();
        set(&mut list, &Finding::yes(KEY, "ProvisionerKeyReady", ""), None, now);
        assert_eq!(list[0].last_transition_time, Time(at(1)));
    }
}
