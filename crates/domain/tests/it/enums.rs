//! The texts of enums: unique, the same in JSON, and read back.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::str::FromStr;

use coder_domain::build::{BuildReason, Transition, WorkspaceStatus};
use coder_domain::job::{Status, Type, UnknownVariant};
use serde::Serialize;

fn check<T>(all: &[T], text: impl Fn(&T) -> &'static str)
where
    T: Debug + PartialEq + Serialize + FromStr<Err = UnknownVariant>,
{
    let texts: BTreeSet<_> = all.iter().map(&text).collect();
    assert_eq!(texts.len(), all.len(), "two variants have one text: {all:?}");
    for variant in all {
        assert_eq!(text(variant).parse::<T>().as_ref(), Ok(variant));
        assert_eq!(serde_json::to_value(variant).expect("a text"), text(variant));
    }
    let unknown = "other".parse::<T>().expect_err("no variant");
    assert!(unknown.value == "other" && unknown.to_string().starts_with("unknown "), "{unknown}");
}

#[test]
fn variants_have_one_text() {
    check(&Type::ALL, |kind| kind.as_str());
    check(&Status::ALL, |status| status.as_str());
    check(&Transition::ALL, |transition| transition.as_str());
    check(&WorkspaceStatus::ALL, |status| status.as_str());
    check(&BuildReason::ALL, |reason| reason.as_str());
}

#[test]
fn clients_may_say_how_they_started_a_build_and_nothing_else() {
    let allowed: Vec<_> = BuildReason::ALL
        .into_iter()
        .filter(|reason| reason.may_be_requested())
        .map(BuildReason::as_str)
        .collect();
    assert_eq!(allowed, ["dashboard", "cli", "ssh_connection", "vscode_connection", "jetbrains_connection"]);
}

#[test]
fn only_ended_jobs_are_inactive() {
    let active: Vec<_> = Status::ALL.into_iter().filter(|status| status.is_active()).collect();
    assert_eq!(active, [Status::Pending, Status::Running, Status::Canceling]);
}

/// JOB-4, row by row.
#[test]
fn a_workspace_has_the_status_of_its_latest_build() {
    use WorkspaceStatus as Workspace;
    let rows = [
        (Status::Pending, [Workspace::Pending; 3]),
        (Status::Running, [Workspace::Starting, Workspace::Stopping, Workspace::Deleting]),
        (Status::Succeeded, [Workspace::Running, Workspace::Stopped, Workspace::Deleted]),
        (Status::Canceling, [Workspace::Canceling; 3]),
        (Status::Canceled, [Workspace::Canceled; 3]),
        (Status::Failed, [Workspace::Failed; 3]),
    ];
    for (job, expected) in rows {
        assert_eq!(Transition::ALL.map(|transition| Workspace::of(transition, job)), expected, "{job}");
    }
}
