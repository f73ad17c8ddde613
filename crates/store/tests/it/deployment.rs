//! Rows of the deployment as a whole: hints between servers, server processes, counts, secrets and the audit log.

use std::slice;

use coder_domain::build::Transition;
use coder_domain::ids::{OrganizationId, UserId};
use coder_domain::secret::Secret;
use coder_store::audit::{self, AuditFilter};
use coder_store::changes::{self, Change};
use coder_store::replicas::{self, Replica};
use coder_store::{Error, Tx, counts, jobs, quiet_hours, server_secrets, settings, users, workspaces};
use uuid::Uuid;

use crate::fixture::{Fixture, at, new_user, on_both_engines};
use crate::workspaces::{end, new_build, new_workspace, template};

on_both_engines!(
    hints_are_numbered_in_the_order_of_their_commits,
    servers_see_those_that_still_run,
    workspaces_are_counted_by_their_latest_build,
    active_users_are_counted,
    a_secret_is_made_once,
    quiet_hours_belong_to_a_user,
    audit_entries_are_selected_by_each_field,
    the_deployment_has_one_id,
);

async fn hints_are_numbered_in_the_order_of_their_commits(fixture: Fixture) {
    let mut tx = fixture.store.begin().await.unwrap();
    assert_eq!(changes::find_last(&mut tx).await.unwrap(), 0);
    for (hint, second) in [("a", 1), ("b", 2), ("c", 3)] {
        changes::insert(&mut tx, hint, at(second)).await.unwrap();
    }
    tx.commit().await.unwrap();
    let mut tx = fixture.store.begin().await.unwrap();
    changes::insert(&mut tx, "never", at(4)).await.unwrap();
    tx.rollback().await;
    let mut tx = fixture.store.single().await.unwrap();
    let change = |position, hint: &str| Change { position, hint: hint.to_owned() };
    let all = [change(1, "a"), change(2, "b"), change(3, "c")];
    assert_eq!(changes::find_last(&mut tx).await.unwrap(), 3);
    for (position, limit, found) in [(0, 10, &all[..]), (0, 2, &all[..2]), (1, 1, &all[1..2]), (3, 10, &[])] {
        assert_eq!(changes::list_since(&mut tx, position, limit).await.unwrap(), found, "{position} {limit}");
    }
    assert_eq!(changes::purge(&mut tx, at(1)).await.unwrap(), 0);
    assert_eq!(changes::purge(&mut tx, at(3)).await.unwrap(), 2);
    assert_eq!(changes::list_since(&mut tx, 0, 10).await.unwrap(), all[2..]);
    assert_eq!(changes::find_last(&mut tx).await.unwrap(), 3, "a purge takes no number back");
}

async fn servers_see_those_that_still_run(fixture: Fixture) {
    let mut tx = fixture.store.single().await.unwrap();
    for (id, url, second) in
        [("a", "http://a", 10), ("b", "http://b", 20), ("c", "http://c", 30), ("a", "http://a:1", 40)]
    {
        replicas::renew(&mut tx, id, url, at(second)).await.unwrap();
    }
    let replica = |id: &str, url: &str| Replica { id: id.to_owned(), relay_url: url.to_owned() };
    let [a, b, c] = [replica("a", "http://a:1"), replica("b", "http://b"), replica("c", "http://c")];
    for (own, since, limit, found) in [
        ("x", 0, 9, vec![a.clone(), c.clone(), b.clone()]),
        ("a", 0, 9, vec![c.clone(), b.clone()]),
        ("b", 30, 9, vec![a.clone(), c.clone()]),
        ("x", 31, 9, vec![a.clone()]),
        ("x", 0, 2, vec![a.clone(), c.clone()]),
    ] {
        let listed = replicas::list_others(&mut tx, own, at(since), limit).await.unwrap();
        assert_eq!(listed, found, "{own} since {since}");
    }
    assert_eq!(replicas::purge(&mut tx, at(20)).await.unwrap(), 0);
    assert_eq!(replicas::purge(&mut tx, at(31)).await.unwrap(), 2);
    assert_eq!(replicas::list_others(&mut tx, "x", at(0), 9).await.unwrap(), slice::from_ref(&a));
    replicas::remove(&mut tx, "b").await.unwrap();
    assert_eq!(replicas::list_others(&mut tx, "x", at(0), 9).await.unwrap(), [a]);
    replicas::remove(&mut tx, "a").await.unwrap();
    assert_eq!(replicas::list_others(&mut tx, "x", at(0), 9).await.unwrap(), []);
}

async fn workspaces_are_counted_by_their_latest_build(fixture: Fixture) {
    let template = template(&fixture).await;
    let mut made = Vec::new();
    for name in ["one", "two", "three", "four"] {
        let workspace = new_workspace(&fixture, &template, name).await.id;
        let (_, job, _) = new_build(&fixture, &template, workspace, Transition::Start).await.unwrap();
        made.push((workspace, job));
    }
    end(&fixture, made[0].1).await;
    end(&fixture, made[1].1).await;
    end(&fixture, made[3].1).await;
    new_build(&fixture, &template, made[0].0, Transition::Stop).await.unwrap();
    let mut tx = fixture.store.single().await.unwrap();
    jobs::cancel(&mut tx, made[2].1, None, at(90)).await.unwrap();
    let by_status = async |tx: &mut Tx| {
        let mut found = counts::workspaces_by_status(tx).await.unwrap();
        found.sort();
        found
    };
    let count = |status: &str, total| (status.to_owned(), total);
    assert_eq!(by_status(&mut tx).await, [count("canceled", 1), count("pending", 1), count("succeeded", 2)]);
    let largest = counts::latest_builds(&mut tx, 9).await.unwrap();
    let found: Vec<_> =
        largest.iter().map(|group| (group.transition, group.status.as_str(), group.total)).collect();
    assert_eq!(found.len(), 3);
    assert_eq!(found[0], (Transition::Start, "succeeded", 2));
    assert!(found[1..].contains(&(Transition::Stop, "pending", 1)), "{found:?}");
    assert!(found[1..].contains(&(Transition::Start, "canceled", 1)), "{found:?}");
    let names = &largest[0];
    assert_eq!(
        (names.template_name.as_str(), names.template_version.as_str(), names.workspace_owner.as_str()),
        ("docker", "v1", "ada")
    );
    assert_eq!(counts::latest_builds(&mut tx, 1).await.unwrap(), largest[..1]);
    workspaces::delete(&mut tx, made[3].0, at(91)).await.unwrap();
    workspaces::delete(&mut tx, made[2].0, at(91)).await.unwrap();
    assert_eq!(by_status(&mut tx).await, [count("pending", 1), count("succeeded", 1)]);
    assert_eq!(counts::latest_builds(&mut tx, 9).await.unwrap().len(), 2);
}

async fn active_users_are_counted(fixture: Fixture) {
    let (bob, gone, unseen) = (new_user("bob"), new_user("gone"), new_user("unseen"));
    let mut tx = fixture.store.single().await.unwrap();
    for user in [&bob, &gone, &unseen] {
        users::insert(&mut tx, user).await.unwrap();
    }
    for (user, second) in [(fixture.user, 5), (bob.id, 9), (gone.id, 9), (UserId::PREBUILDS, 9)] {
        users::update_seen(&mut tx, user, at(second)).await.unwrap();
    }
    users::delete(&mut tx, gone.id, at(10)).await.unwrap();
    for (since, active) in [(0, 2), (5, 2), (6, 1), (9, 1), (10, 0)] {
        assert_eq!(counts::active_users(&mut tx, at(since)).await.unwrap(), active, "since {since}");
    }
}

async fn a_secret_is_made_once(fixture: Fixture) {
    let mut tx = fixture.store.single().await.unwrap();
    assert!(server_secrets::find(&mut tx, "cookies").await.unwrap().is_none());
    for (name, secret, kept) in
        [("cookies", "first", "first"), ("cookies", "second", "first"), ("relays", "third", "third")]
    {
        let found = server_secrets::find_or_insert(&mut tx, name, &Secret::new(secret)).await.unwrap();
        assert_eq!(found.expose(), kept);
        assert_eq!(server_secrets::find(&mut tx, name).await.unwrap().unwrap().expose(), kept);
    }
}

async fn quiet_hours_belong_to_a_user(fixture: Fixture) {
    let mut tx = fixture.store.single().await.unwrap();
    assert_eq!(quiet_hours::find(&mut tx, fixture.user).await.unwrap(), None);
    for schedule in ["CRON_TZ=UTC 0 0 * * *", "CRON_TZ=UTC 30 2 * * *"] {
        quiet_hours::upsert(&mut tx, fixture.user, schedule).await.unwrap();
        let found = quiet_hours::find(&mut tx, fixture.user).await.unwrap();
        assert_eq!(found.as_deref(), Some(schedule));
    }
    assert_eq!(quiet_hours::find(&mut tx, UserId::PREBUILDS).await.unwrap(), None);
    let missing = quiet_hours::upsert(&mut tx, UserId::random(), "").await;
    assert!(matches!(missing, Err(Error::Reference(_))), "{missing:?}");
}

/// An entry whose fields all differ from those of other numbers.
fn entry(number: u128) -> audit::Entry {
    let text = |field: &str| format!("{field} {number}");
    audit::Entry {
        id: Uuid::from_u128(number),
        created_at: at(i64::try_from(number).unwrap() * 10),
        user_id: UserId(Uuid::from_u128(100 + number)),
        organization_id: OrganizationId(Uuid::from_u128(200 + number)),
        ip: text("address"),
        user_agent: text("agent"),
        resource_type: text("type"),
        resource_id: Uuid::from_u128(300 + number),
        resource_target: text("target"),
        resource_icon: text("icon"),
        action: text("action"),
        diff: serde_json::json!({ "name": ["", text("new")] }),
        status_code: 200 + i64::try_from(number).unwrap(),
        additional_fields: serde_json::json!({ "build_reason": text("reason") }),
        request_id: Uuid::from_u128(400 + number),
    }
}

async fn audit_entries_are_selected_by_each_field(fixture: Fixture) {
    let entries = [entry(1), entry(2), entry(3)];
    let mut tx = fixture.store.single().await.unwrap();
    for entry in &entries {
        audit::insert(&mut tx, entry).await.unwrap();
    }
    let any = AuditFilter::default;
    let of = &entries[1];
    for filter in [
        AuditFilter { organization_id: Some(of.organization_id), ..any() },
        AuditFilter { user_id: Some(of.user_id), ..any() },
        AuditFilter { resource_type: Some(of.resource_type.clone()), ..any() },
        AuditFilter { resource_id: Some(of.resource_id), ..any() },
        AuditFilter { resource_target: Some(of.resource_target.clone()), ..any() },
        AuditFilter { action: Some(of.action.clone()), ..any() },
        AuditFilter { request_id: Some(of.request_id), ..any() },
        AuditFilter { build_reason: Some("reason 2".to_owned()), ..any() },
        AuditFilter { since: Some(at(20)), until: Some(at(30)), ..any() },
    ] {
        assert_eq!(audit::list(&mut tx, &filter, 9, 0).await.unwrap(), slice::from_ref(of), "{filter:?}");
        assert_eq!(audit::count(&mut tx, &filter).await.unwrap(), 1, "{filter:?}");
    }
    let [first, second, third] = entries;
    let newest_first = [third.clone(), second, first];
    assert_eq!(audit::list(&mut tx, &any(), 9, 0).await.unwrap(), newest_first);
    assert_eq!(audit::list(&mut tx, &any(), 1, 1).await.unwrap(), newest_first[1..2]);
    assert_eq!(audit::count(&mut tx, &any()).await.unwrap(), 3);
    assert_eq!(audit::purge(&mut tx, at(10)).await.unwrap(), 0);
    assert_eq!(audit::purge(&mut tx, at(30)).await.unwrap(), 2);
    assert_eq!(audit::list(&mut tx, &any(), 9, 0).await.unwrap(), [third]);
}

async fn the_deployment_has_one_id(fixture: Fixture) {
    let mut tx = fixture.store.single().await.unwrap();
    let id = settings::deployment_id(&mut tx).await.unwrap();
    assert_eq!(settings::find(&mut tx, settings::DEPLOYMENT_ID).await.unwrap(), Some(id.clone()));
    let kept = settings::find_or_insert(&mut tx, settings::DEPLOYMENT_ID, "another").await.unwrap();
    assert_eq!(kept, id);
    drop(tx);
    let other = Fixture::sqlite().await;
    assert_ne!(settings::deployment_id(&mut other.store.reader().await.unwrap()).await.unwrap(), id);
}
