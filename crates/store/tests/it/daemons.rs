//! Daemon rows: identity, liveness, lists, and the jobs shown with them.

use coder_domain::ids::KeyId;
use coder_domain::tags::TagSet;
use coder_store::daemons::{DaemonFilter, Liveness, NewDaemon};
use coder_store::{Tx, daemons, jobs};

use crate::fixture::{Fixture, at, on_both_engines, tags};

/// A server to which no daemon of these tests is connected.
const OTHER_SERVER: uuid::Uuid = uuid::Uuid::from_u128(1);

on_both_engines!(
    a_daemon_keeps_its_row,
    daemons_are_listed_newest_first,
    current_and_previous_jobs,
    silent_daemons_are_purged_unless_they_own_a_job,
    unhealthy_or_draining_daemons_are_online_and_not_available,
);

fn join(fixture: &Fixture, name: &str, key_id: KeyId, tags: &TagSet) -> NewDaemon {
    NewDaemon {
        organization_id: fixture.organization,
        name: name.to_owned(),
        key_id,
        provisioners: vec!["terraform".to_owned()],
        tags: tags.clone(),
        version: "v1".to_owned(),
        api_version: "1.14".to_owned(),
    }
}

async fn a_daemon_keeps_its_row(fixture: Fixture) {
    let mut tx = fixture.store.begin().await.unwrap();
    let first =
        daemons::upsert(&mut tx, &join(&fixture, "d", KeyId::PSK, &TagSet::untagged()), at(1)).await.unwrap();
    let mut other = join(&fixture, "d", KeyId::USER_AUTH, &tags(&[("site", "a")]));
    other.version = "v2".to_owned();
    assert_eq!(daemons::upsert(&mut tx, &other, at(2)).await.unwrap(), first, "same name and owner tag");
    let row = daemons::find(&mut tx, first).await.unwrap().unwrap();
    assert_eq!((row.key_name.as_str(), row.version.as_str(), row.created_at), ("user-auth", "v2", at(1)));
    assert_eq!((row.last_seen_at, &row.tags), (Some(at(2)), &tags(&[("site", "a")])));
    let user_scoped = TagSet::canonical(fixture.user, [&[("scope".to_owned(), "user".to_owned())].into()]);
    let scoped =
        daemons::upsert(&mut tx, &join(&fixture, "d", KeyId::USER_AUTH, &user_scoped), at(3)).await.unwrap();
    assert_ne!(scoped, first, "another owner tag is another daemon");
    tx.commit().await.unwrap();
}

async fn daemons_are_listed_newest_first(fixture: Fixture) {
    let first = fixture.daemon("a", &TagSet::untagged()).await;
    let second = fixture.daemon("b", &TagSet::untagged()).await;
    let mut tx = fixture.store.begin().await.unwrap();
    let ids = |listed: Vec<daemons::Daemon>| listed.into_iter().map(|daemon| daemon.id).collect::<Vec<_>>();
    assert_eq!(ids(daemons::list(&mut tx, &DaemonFilter::default()).await.unwrap()), [second, first]);
    assert_eq!(daemons::update_seen(&mut tx, &[first], OTHER_SERVER, at(100)).await.unwrap(), 1);
    let lately = Liveness { since: at(100), until: at(200), ..Liveness::default() };
    let seen = DaemonFilter { seen: Some(lately), ..DaemonFilter::default() };
    assert_eq!(ids(daemons::list(&mut tx, &seen).await.unwrap()), [first]);
    let named = DaemonFilter {
        organization_id: Some(fixture.organization),
        ids: Some(vec![second]),
        key_id: Some(KeyId::BUILT_IN),
        ..DaemonFilter::default()
    };
    assert_eq!(ids(daemons::list(&mut tx, &named).await.unwrap()), [second]);
    tx.commit().await.unwrap();
    let counted = fixture.store.statement_counts();
    daemons::update_seen(&mut fixture.store.single().await.unwrap(), &[first, second], OTHER_SERVER, at(160))
        .await
        .unwrap();
    let after = fixture.store.statement_counts();
    assert_eq!(
        (after.heartbeats - counted.heartbeats, after.work - counted.work),
        (1, 0),
        "one for all of them"
    );
}

async fn current_and_previous_jobs(fixture: Fixture) {
    let daemon = fixture.daemon("a", &TagSet::untagged()).await;
    let mut done = Vec::new();
    for _ in 0..3 {
        fixture.job(&TagSet::untagged()).await;
        let job = fixture.claim(daemon, &[1]).await.unwrap();
        jobs::complete(&mut fixture.store.single().await.unwrap(), job, daemon, fixture.tick())
            .await
            .unwrap();
        done.push(job);
    }
    fixture.job(&TagSet::untagged()).await;
    let current = fixture.claim(daemon, &[1]).await.unwrap();
    let listed = daemons::list_jobs(&mut fixture.store.reader().await.unwrap(), &[daemon]).await.unwrap();
    let found: Vec<_> = listed.iter().map(|job| (job.id, job.is_current, job.worker_id)).collect();
    assert_eq!(found, [(current, true, daemon), (done[2], false, daemon)]);
    for listed in listed {
        let job = fixture.get_job(listed.id).await;
        assert_eq!((listed.record(), listed.started_at), (job.record(), job.started_at), "{job:?}");
    }
}

async fn silent_daemons_are_purged_unless_they_own_a_job(fixture: Fixture) {
    let busy = fixture.daemon("busy", &TagSet::untagged()).await;
    let idle = fixture.daemon("idle", &TagSet::untagged()).await;
    fixture.job(&TagSet::untagged()).await;
    fixture.claim(busy, &[1]).await.unwrap();
    let mut tx = fixture.store.begin().await.unwrap();
    assert_eq!(
        daemons::purge(&mut tx, at(1_000_000), &daemons::ConnectedDaemons::default()).await.unwrap(),
        1
    );
    assert!(daemons::find(&mut tx, busy).await.unwrap().is_some());
    assert!(daemons::find(&mut tx, idle).await.unwrap().is_none());
    tx.commit().await.unwrap();
}

async fn unhealthy_or_draining_daemons_are_online_and_not_available(fixture: Fixture) {
    let ill = fixture.daemon("ill", &TagSet::untagged()).await;
    let leaving = fixture.daemon("leaving", &TagSet::untagged()).await;
    fixture.daemon("well", &TagSet::untagged()).await;
    let mut tx = fixture.store.begin().await.unwrap();
    let seen = Liveness { since: at(0), until: at(1000), ..Liveness::default() };
    let sets = vec![coder_store::tag_sets::intern(&mut tx, &TagSet::untagged()).await.unwrap()];
    let counts = async |tx: &mut Tx| {
        let (found, _) = daemons::list_matched(tx, fixture.organization, &sets, &seen).await.unwrap();
        let [matched] = &found[..] else { panic!("one group: {found:?}") };
        (matched.daemons, matched.online, matched.available)
    };
    assert_eq!(counts(&mut tx).await, (3, 3, 3));
    daemons::update_health(&mut tx, ill, "no Terraform", "install it").await.unwrap();
    assert_eq!(counts(&mut tx).await, (3, 3, 2));
    daemons::update_slots(&mut tx, leaving, 1, 0, true).await.unwrap();
    assert_eq!(counts(&mut tx).await, (3, 3, 1));
    daemons::update_health(&mut tx, ill, "", "").await.unwrap();
    assert_eq!(counts(&mut tx).await, (3, 3, 2));
    tx.commit().await.unwrap();
}
