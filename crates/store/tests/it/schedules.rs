//! What the schedule task reads and writes.

use coder_domain::build::Transition;
use coder_domain::ids::{BuildId, WorkspaceId};
use coder_domain::schedule::deadline::Deadlines;
use coder_store::workspaces::schedules::{self, TemplateChange};
use coder_store::workspaces::{self, Workspace};
use coder_store::{Error, templates};
use jiff::Timestamp;

use crate::fixture::{Fixture, at, on_both_engines};
use crate::workspaces::{end, new_build, new_workspace, template};

on_both_engines!(
    deadlines_are_moved_ahead_limited_and_set,
    the_task_looks_at_what_changed_and_not_twice,
    a_change_of_a_template_reaches_its_workspaces_alone,
);

/// The order in which changes are looked at: before everything that is due, the latest first.
fn changed(now: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(-now.as_microsecond()).unwrap()
}

async fn deadlines_are_moved_ahead_limited_and_set(fixture: Fixture) {
    let template = template(&fixture).await;
    let workspace = new_workspace(&fixture, &template, "dev").await.id;
    let (build, job, _) = new_build(&fixture, &template, workspace, Transition::Start).await.unwrap();
    let limits = |deadline, max| Deadlines { deadline: Some(at(deadline)), max_deadline: Some(at(max)) };
    let mut tx = fixture.store.single().await.unwrap();
    schedules::update_deadlines(&mut tx, &[(build, limits(100, 200))], at(5)).await.unwrap();
    schedules::update_deadlines(&mut tx, &[], at(5)).await.unwrap();
    assert!(schedules::list_started(&mut tx, &[workspace]).await.unwrap().is_empty(), "it has not ended yet");
    assert!(schedules::list_limited(&mut tx, template.id).await.unwrap().is_empty());
    drop(tx);
    end(&fixture, job).await;

    let mut tx = fixture.store.single().await.unwrap();
    let started = schedules::list_started(&mut tx, &[workspace, WorkspaceId::random()]).await.unwrap();
    let [started] = &started[..] else { panic!("one is started: {started:?}") };
    assert_eq!((started.workspace_id, started.build_id), (workspace, build));
    assert_eq!((started.deadline_at, started.max_deadline_at), (at(100), Some(at(200))));
    assert_eq!((started.ttl_ms, &started.autostart_schedule), (Some(60_000), &None));
    let limited = schedules::list_limited(&mut tx, template.id).await.unwrap();
    let [limited] = &limited[..] else { panic!("one is started: {limited:?}") };
    assert_eq!((limited.build_id, limited.deadline_at, &limited.quiet_hours), (build, Some(at(100)), &None));

    for (extended, found) in [(90, 100), (100, 100), (120, 120)] {
        schedules::extend(&mut tx, &[(build, at(extended))], at(6)).await.unwrap();
        let started = schedules::list_started(&mut tx, &[workspace]).await.unwrap();
        assert_eq!(started[0].deadline_at, at(found), "extended to {extended}");
    }
    schedules::update_deadline(&mut tx, build, at(50), at(7)).await.unwrap();
    assert_eq!(schedules::list_started(&mut tx, &[workspace]).await.unwrap()[0].deadline_at, at(50));
    let missing = schedules::update_deadline(&mut tx, BuildId::random(), at(50), at(7)).await;
    assert!(matches!(missing, Err(Error::Stale { .. })), "{missing:?}");
    drop(tx);

    let (_, job, _) = new_build(&fixture, &template, workspace, Transition::Stop).await.unwrap();
    end(&fixture, job).await;
    let mut tx = fixture.store.single().await.unwrap();
    assert!(schedules::list_started(&mut tx, &[workspace]).await.unwrap().is_empty());
    assert!(schedules::list_limited(&mut tx, template.id).await.unwrap().is_empty());
}

async fn the_task_looks_at_what_changed_and_not_twice(fixture: Fixture) {
    let template = template(&fixture).await;
    let first = new_workspace(&fixture, &template, "first").await.id;
    let second = new_workspace(&fixture, &template, "second").await.id;
    let mut tx = fixture.store.single().await.unwrap();
    schedules::build_inserted(&mut tx, first, at(10), Some(at(7))).await.unwrap();
    schedules::build_inserted(&mut tx, second, at(11), None).await.unwrap();
    let find = async |tx: &mut _, id| workspaces::find(tx, id).await.unwrap().unwrap();
    assert_eq!(find(&mut tx, first).await.last_used_at, at(7));
    assert_eq!(find(&mut tx, second).await.last_used_at, at(1), "no person has started it");
    for (now, limit, due) in
        [(9, 9, &[][..]), (10, 9, &[first]), (11, 9, &[first, second]), (11, 1, &[first])]
    {
        assert_eq!(schedules::list_due(&mut tx, at(now), limit).await.unwrap(), due, "at {now}");
    }
    assert_eq!(schedules::find_next_due(&mut tx).await.unwrap(), Some(at(10)));

    assert!(!schedules::update_due(&mut tx, first, Some(at(20)), "note", at(9)).await.unwrap());
    assert_eq!(find(&mut tx, first).await.schedule_note, "", "something changed since it was read");
    assert!(schedules::update_due(&mut tx, first, Some(at(20)), "note", at(10)).await.unwrap());
    assert_eq!(find(&mut tx, first).await.schedule_note, "note");
    assert_eq!(schedules::find_next_due(&mut tx).await.unwrap(), Some(at(11)));
    assert!(schedules::update_due(&mut tx, second, None, "", at(11)).await.unwrap());
    assert_eq!(schedules::find_next_due(&mut tx).await.unwrap(), Some(at(20)));

    schedules::look_again(&mut tx, first, at(30)).await.unwrap();
    assert_eq!(find(&mut tx, first).await.schedule_note, "");
    assert_eq!(schedules::list_due(&mut tx, at(0), 9).await.unwrap(), [first]);
    schedules::update_credentials(&mut tx, first, Some("{}".to_owned())).await.unwrap();
    let schedule = schedules::find(&mut tx, first).await.unwrap().unwrap();
    assert_eq!((schedule.due_at, schedule.credentials.as_deref()), (Some(changed(at(30))), Some("{}")));
    assert!(!schedule.owner_deleted);
    let missing = schedules::update_credentials(&mut tx, WorkspaceId::random(), None).await;
    assert!(matches!(missing, Err(Error::Stale { .. })), "{missing:?}");
    assert!(schedules::find(&mut tx, WorkspaceId::random()).await.unwrap().is_none());

    schedules::owner_changed(&mut tx, fixture.user, at(40)).await.unwrap();
    assert_eq!(schedules::find_next_due(&mut tx).await.unwrap(), Some(changed(at(40))));
    schedules::clock_changed(&mut tx, at(50)).await.unwrap();
    for id in [first, second] {
        assert_eq!(schedules::find(&mut tx, id).await.unwrap().unwrap().due_at, Some(changed(at(50))));
    }
    workspaces::delete(&mut tx, first, at(60)).await.unwrap();
    assert_eq!(schedules::list_due(&mut tx, at(99), 9).await.unwrap(), [second]);
    assert!(schedules::find(&mut tx, first).await.unwrap().is_none(), "it is deleted");
}

async fn a_change_of_a_template_reaches_its_workspaces_alone(fixture: Fixture) {
    let template = template(&fixture).await;
    let used = new_workspace(&fixture, &template, "used").await;
    let dormant = new_workspace(&fixture, &template, "dormant").await;
    let dormant = Workspace { dormant_at: Some(at(5)), ..dormant };
    let mut tx = fixture.store.single().await.unwrap();
    workspaces::update(&mut tx, &dormant).await.unwrap();
    let change = |time_til_deletion_ms, restart_dormancy, mark_used| TemplateChange {
        time_til_deletion_ms,
        restart_dormancy,
        mark_used,
    };
    let other = coder_domain::ids::TemplateId::random();
    assert!(templates::find(&mut tx, other).await.unwrap().is_none());
    schedules::template_changed(&mut tx, other, change(2_000, true, true), at(8)).await.unwrap();
    for (changes, dormant_at, deleting_at, used_at) in [
        (change(0, false, false), 5, None, 1),
        (change(2_000, false, false), 5, Some(7), 1),
        (change(2_000, true, false), 10, Some(12), 1),
        (change(0, false, true), 10, None, 10),
    ] {
        schedules::template_changed(&mut tx, template.id, changes, at(10)).await.unwrap();
        let found = workspaces::find(&mut tx, dormant.id).await.unwrap().unwrap();
        assert_eq!(
            (found.dormant_at, found.deleting_at),
            (Some(at(dormant_at)), deleting_at.map(at)),
            "{changes:?}"
        );
        let found = workspaces::find(&mut tx, used.id).await.unwrap().unwrap();
        assert_eq!((found.dormant_at, found.deleting_at), (None, None), "{changes:?}");
        assert_eq!(found.last_used_at, at(used_at), "{changes:?}");
        let schedule = schedules::find(&mut tx, used.id).await.unwrap().unwrap();
        assert_eq!(schedule.due_at, Some(changed(at(10))));
    }
}
