//! What is due for one workspace, and when to look at it again. The order of the checks is that of the official server
//! (scheduling-and-auth 3.7).

use jiff::{SignedDuration, Timestamp};

use super::cron::Schedule;
use super::deadline::next_autostart;
use super::rules::TemplateRules;
use crate::build::{BuildReason, Transition};
use crate::job::Status;

/// A workspace with a build under way is looked at again after this time. The end of a build need not wake anybody.
const BUILD_CHECK: SignedDuration = SignedDuration::from_secs(30);
/// A deletion that failed is tried again after this time.
const DELETE_AGAIN: SignedDuration = SignedDuration::from_hours(24);
/// Limits of the time after which an action that could not be done is tried again.
const RETRY: (SignedDuration, SignedDuration) = (SignedDuration::from_mins(1), SignedDuration::from_hours(1));

/// The state of the account of a workspace's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerStatus {
    Active,
    /// The account was never used, or not for long.
    Dormant,
    Suspended,
}

/// The latest build of a workspace.
#[derive(Clone, Copy, Debug)]
pub struct LastBuild {
    pub transition: Transition,
    pub status: Status,
    pub created_at: Timestamp,
    /// None while its job has not ended.
    pub ended_at: Option<Timestamp>,
    pub deadline: Option<Timestamp>,
}

/// Everything that decides about one workspace.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub rules: &'a TemplateRules,
    pub owner: OwnerStatus,
    pub build: LastBuild,
    /// Its own schedule.
    pub autostart: Option<&'a Schedule>,
    pub last_used_at: Timestamp,
    pub dormant_at: Option<Timestamp>,
    pub deleting_at: Option<Timestamp>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduledAction {
    Start,
    Stop,
    /// Mark it as dormant; `stop` it too when it is started.
    Dormancy {
        stop: bool,
    },
    Delete,
}

impl ScheduledAction {
    /// The build that it needs.
    #[must_use]
    pub const fn build(self) -> Option<(Transition, BuildReason)> {
        match self {
            Self::Start => Some((Transition::Start, BuildReason::Autostart)),
            Self::Stop => Some((Transition::Stop, BuildReason::Autostop)),
            Self::Dormancy { stop: true } => Some((Transition::Stop, BuildReason::Dormancy)),
            Self::Dormancy { stop: false } => None,
            Self::Delete => Some((Transition::Delete, BuildReason::Autodelete)),
        }
    }

    /// Whether it takes something from the owner that does not come back by itself.
    #[must_use]
    pub const fn is_removal(self) -> bool {
        matches!(self, Self::Dormancy { .. } | Self::Delete)
    }

    /// For logs and people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "autostart",
            Self::Stop => "autostop",
            Self::Dormancy { .. } => "dormancy",
            Self::Delete => "deletion",
        }
    }
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The action that is due, and since when.
    pub action: Option<(ScheduledAction, Timestamp)>,
    /// When to look at the workspace again, unless something is done now; none when only a change can make something due.
    pub next_look: Option<Timestamp>,
}

/// Decides what is due now.
#[must_use]
pub fn decide(facts: &Facts<'_>, now: Timestamp) -> Decision {
    if facts.build.ended_at.is_none() {
        return Decision { action: None, next_look: now.checked_add(BUILD_CHECK).ok() };
    }
    let stops = facts.build.transition == Transition::Start;
    let dues = [
        (ScheduledAction::Stop, autostop(facts)),
        (ScheduledAction::Start, autostart(facts)),
        (ScheduledAction::Stop, failed_start(facts)),
        (ScheduledAction::Dormancy { stop: stops }, dormancy(facts)),
        (ScheduledAction::Delete, deletion(facts)),
    ];
    let dues = dues.into_iter().filter_map(|(action, due)| Some((action, due?)));
    let action = dues.clone().find(|(_, due)| *due <= now);
    Decision { action, next_look: dues.map(|(_, due)| due).min() }
}

/// When to try again what is due since `due` and could not be done: seldom, when it fails for long.
#[must_use]
pub fn next_try(due: Timestamp, now: Timestamp) -> Timestamp {
    let (least, most) = RETRY;
    let wait = (now.duration_since(due) / 4).clamp(least, most);
    now.checked_add(wait).unwrap_or(Timestamp::MAX)
}

fn has_failed(facts: &Facts<'_>) -> bool {
    facts.build.status == Status::Failed
}

fn autostop(facts: &Facts<'_>) -> Option<Timestamp> {
    if has_failed(facts) || facts.dormant_at.is_some() || facts.build.transition != Transition::Start {
        return None;
    }
    match facts.owner {
        OwnerStatus::Suspended => facts.build.ended_at,
        OwnerStatus::Active | OwnerStatus::Dormant => facts.build.deadline,
    }
}

/// The start that follows the last stop. One that was missed, because the server or all daemons were away, is made up for.
fn autostart(facts: &Facts<'_>) -> Option<Timestamp> {
    let may_start = facts.owner == OwnerStatus::Active
        && !has_failed(facts)
        && facts.dormant_at.is_none()
        && facts.build.transition == Transition::Stop;
    facts
        .autostart
        .filter(|_| may_start)
        .and_then(|schedule| next_autostart(facts.rules, schedule, facts.build.created_at))
}

fn failed_start(facts: &Facts<'_>) -> Option<Timestamp> {
    if !has_failed(facts) || facts.build.transition != Transition::Start {
        return None;
    }
    after(facts.build.ended_at?, facts.rules.failure_ttl)
}

fn dormancy(facts: &Facts<'_>) -> Option<Timestamp> {
    if facts.dormant_at.is_some() || facts.build.transition == Transition::Delete && !has_failed(facts) {
        return None;
    }
    after(facts.last_used_at, facts.rules.time_til_dormant)
}

fn deletion(facts: &Facts<'_>) -> Option<Timestamp> {
    let deleting_at = facts.deleting_at.filter(|_| facts.dormant_at.is_some())?;
    if !facts.rules.time_til_deletion.is_positive() {
        return None;
    }
    if facts.build.transition == Transition::Delete && has_failed(facts) {
        return after(facts.build.ended_at?, DELETE_AGAIN).map(|again| again.max(deleting_at));
    }
    Some(deleting_at)
}

/// None when the duration is zero, which means never.
fn after(from: Timestamp, wait: SignedDuration) -> Option<Timestamp> {
    from.checked_add(wait).ok().filter(|_| wait.is_positive())
}

/// Why a workspace with a schedule does not start by it; none when it will, or has none.
#[must_use]
pub fn why_no_autostart(facts: &Facts<'_>) -> Option<&'static str> {
    let schedule = facts.autostart?;
    if !facts.rules.allow_user_autostart {
        return Some("the template does not allow autostart");
    }
    if next_autostart(facts.rules, schedule, facts.build.created_at).is_none() {
        return Some("the template allows autostart on none of the days of the schedule");
    }
    if facts.dormant_at.is_some() {
        return Some("the workspace is dormant: start it by hand");
    }
    match facts.owner {
        OwnerStatus::Suspended => return Some("the account of the owner is suspended"),
        OwnerStatus::Dormant => return Some("the owner has not logged in for long"),
        OwnerStatus::Active => {}
    }
    if has_failed(facts) {
        return Some("the last build failed: start or stop the workspace by hand");
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::rules::tests::DEFAULT;
    use super::super::weekdays::Weekdays;
    use super::*;

    const HOUR: SignedDuration = SignedDuration::from_hours(1);
    const RULES: TemplateRules = TemplateRules {
        failure_ttl: HOUR,
        time_til_dormant: SignedDuration::from_hours(100),
        time_til_deletion: SignedDuration::from_hours(10),
        ..DEFAULT
    };

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + hours * 3600).unwrap()
    }

    fn facts(transition: Transition, status: Status) -> Facts<'static> {
        Facts {
            rules: &RULES,
            owner: OwnerStatus::Active,
            build: LastBuild {
                transition,
                status,
                created_at: at(0),
                ended_at: Some(at(0)),
                deadline: (transition == Transition::Start && status == Status::Succeeded).then(|| at(8)),
            },
            autostart: None,
            last_used_at: at(0),
            dormant_at: None,
            deleting_at: None,
        }
    }

    fn action(facts: &Facts<'_>, now: Timestamp) -> Option<ScheduledAction> {
        decide(facts, now).action.map(|(action, _)| action)
    }

    #[test]
    fn each_action_is_a_build_of_its_own_reason() {
        use {BuildReason as Because, ScheduledAction as Do};
        for (action, build, is_removal, name) in [
            (Do::Start, Some((Transition::Start, Because::Autostart)), false, "autostart"),
            (Do::Stop, Some((Transition::Stop, Because::Autostop)), false, "autostop"),
            (Do::Dormancy { stop: true }, Some((Transition::Stop, Because::Dormancy)), true, "dormancy"),
            (Do::Dormancy { stop: false }, None, true, "dormancy"),
            (Do::Delete, Some((Transition::Delete, Because::Autodelete)), true, "deletion"),
        ] {
            assert_eq!((action.build(), action.is_removal(), action.name()), (build, is_removal, name));
        }
    }

    #[test]
    fn a_started_workspace_stops_at_its_deadline() {
        let running = facts(Transition::Start, Status::Succeeded);
        assert_eq!(decide(&running, at(7)), Decision { action: None, next_look: Some(at(8)) });
        assert_eq!(decide(&running, at(8)).action, Some((ScheduledAction::Stop, at(8))));
        let unlimited = Facts { build: LastBuild { deadline: None, ..running.build }, ..running };
        assert_eq!(decide(&unlimited, at(50)), Decision { action: None, next_look: Some(at(100)) });
        assert_eq!(
            action(&Facts { owner: OwnerStatus::Suspended, ..unlimited }, at(1)),
            Some(ScheduledAction::Stop)
        );
        assert_eq!(action(&Facts { dormant_at: Some(at(1)), ..running }, at(9)), None);
    }

    #[test]
    fn a_stopped_workspace_starts_by_its_schedule() {
        let schedule = Schedule::weekly("0 * * * *").unwrap();
        let stopped = Facts { autostart: Some(&schedule), ..facts(Transition::Stop, Status::Succeeded) };
        assert_eq!(decide(&stopped, at(0)), Decision { action: None, next_look: Some(at(1)) });
        // Also when the server was away at that time.
        assert_eq!(decide(&stopped, at(50)).action, Some((ScheduledAction::Start, at(1))));
        assert_eq!(why_no_autostart(&stopped), None);
        let closed = TemplateRules { allow_user_autostart: false, ..RULES };
        let no_day = TemplateRules { autostart_days: Weekdays::NONE, ..RULES };
        for (refused, words) in [
            (Facts { owner: OwnerStatus::Suspended, ..stopped }, "suspended"),
            (Facts { owner: OwnerStatus::Dormant, ..stopped }, "logged in"),
            (Facts { dormant_at: Some(at(0)), ..stopped }, "dormant"),
            (Facts { rules: &closed, ..stopped }, "does not allow"),
            (Facts { rules: &no_day, ..stopped }, "none of the days"),
            (Facts { build: facts(Transition::Stop, Status::Failed).build, ..stopped }, "failed"),
        ] {
            assert_eq!(action(&refused, at(50)), None, "{words}");
            assert!(why_no_autostart(&refused).unwrap().contains(words), "{words}");
        }
        let running = Facts { autostart: Some(&schedule), ..facts(Transition::Start, Status::Succeeded) };
        assert_eq!(action(&running, at(1)), None);
    }

    #[test]
    fn a_failed_start_is_stopped_after_the_failure_time() {
        let failed = facts(Transition::Start, Status::Failed);
        assert_eq!(decide(&failed, at(0)), Decision { action: None, next_look: Some(at(1)) });
        assert_eq!(action(&failed, at(1)), Some(ScheduledAction::Stop));
        assert_eq!(action(&facts(Transition::Stop, Status::Failed), at(1)), None);
        assert_eq!(action(&Facts { rules: &DEFAULT, ..failed }, at(99)), None);
    }

    #[test]
    fn a_deleted_workspace_never_becomes_dormant_unless_its_delete_failed() {
        let deleted = facts(Transition::Delete, Status::Succeeded);
        assert_eq!(decide(&deleted, at(500)), Decision { action: None, next_look: None });
        let left = facts(Transition::Delete, Status::Failed);
        assert_eq!(action(&left, at(99)), None);
        assert_eq!(decide(&left, at(100)).action, Some((ScheduledAction::Dormancy { stop: false }, at(100))));
    }

    #[test]
    fn an_unused_workspace_becomes_dormant_and_is_deleted() {
        let stopped = facts(Transition::Stop, Status::Succeeded);
        assert_eq!(decide(&stopped, at(99)), Decision { action: None, next_look: Some(at(100)) });
        assert_eq!(action(&stopped, at(100)), Some(ScheduledAction::Dormancy { stop: false }));
        let running = facts(Transition::Start, Status::Succeeded);
        let running = Facts { build: LastBuild { deadline: None, ..running.build }, ..running };
        assert_eq!(action(&running, at(100)), Some(ScheduledAction::Dormancy { stop: true }));
        assert_eq!(action(&Facts { last_used_at: at(90), ..stopped }, at(100)), None);

        let dormant = Facts { dormant_at: Some(at(100)), deleting_at: Some(at(110)), ..stopped };
        assert_eq!(decide(&dormant, at(109)), Decision { action: None, next_look: Some(at(110)) });
        assert_eq!(action(&dormant, at(110)), Some(ScheduledAction::Delete));
        assert_eq!(action(&Facts { rules: &DEFAULT, ..dormant }, at(999)), None);
        let build = LastBuild { status: Status::Failed, ended_at: Some(at(109)), ..dormant.build };
        assert_eq!(action(&Facts { build, ..dormant }, at(110)), Some(ScheduledAction::Delete));
        let failed = Facts { build: facts(Transition::Delete, Status::Failed).build, ..dormant };
        let failed = Facts { build: LastBuild { ended_at: Some(at(111)), ..failed.build }, ..failed };
        assert_eq!(decide(&failed, at(134)), Decision { action: None, next_look: Some(at(135)) });
        assert_eq!(action(&failed, at(135)), Some(ScheduledAction::Delete));
    }

    #[test]
    fn nothing_is_due_while_a_build_is_under_way() {
        let running = facts(Transition::Start, Status::Running);
        let running = Facts { build: LastBuild { ended_at: None, ..running.build }, ..running };
        let decision = decide(&running, at(999));
        assert_eq!(decision, Decision { action: None, next_look: Some(at(999) + BUILD_CHECK) });
    }

    #[test]
    fn a_failed_action_is_tried_less_and_less_often() {
        assert_eq!(next_try(at(0), at(0)), at(0) + SignedDuration::from_mins(1));
        assert_eq!(next_try(at(0), at(2)), at(2) + SignedDuration::from_mins(30));
        assert_eq!(next_try(at(0), at(999)), at(1000));
        assert_eq!(next_try(at(9), at(0)), at(0) + SignedDuration::from_mins(1), "the clock was set back");
    }

    proptest! {
        /// Nothing is due before the next look, so a server that sleeps until then misses nothing.
        #[test]
        fn nothing_becomes_due_before_the_next_look(
            which in 0_usize..6, failed in proptest::bool::ANY, owner in 0_usize..3, now in -10_i64..300,
            between in 0_i64..1_000, dormant in proptest::option::of(0_i64..200), used in -10_i64..200,
        ) {
            let schedule = Schedule::weekly("CRON_TZ=America/New_York 30 2 * * 1-5").unwrap();
            let transition = Transition::ALL[which % 3];
            let status = if failed { Status::Failed } else { Status::Succeeded };
            let facts = Facts {
                owner: [OwnerStatus::Active, OwnerStatus::Dormant, OwnerStatus::Suspended][owner],
                autostart: (which > 2).then_some(&schedule),
                dormant_at: dormant.map(at),
                deleting_at: dormant.map(|hours| at(hours + 10)),
                last_used_at: at(used),
                ..facts(transition, status)
            };
            let decision = decide(&facts, at(now));
            match decision.next_look {
                None => prop_assert_eq!(action(&facts, at(1_000_000)), None),
                Some(look) => {
                    prop_assert_eq!(decision.action.is_some(), look <= at(now));
                    let earlier = at(now + between).min(look - SignedDuration::from_nanos(1));
                    prop_assert_eq!(decide(&facts, earlier).action, None);
                    prop_assert!(decide(&facts, look).action.is_some());
                }
            }
        }
    }
}
