//! The inputs of the reaper and the explanation: stale, lost and unserved jobs, and facts about daemons.

use coder_domain::explain::{KeyState, Presence};
use coder_domain::ids::{JobId, KeyId};
use coder_domain::job::lifecycle::Guard;
use coder_domain::key::Sha256Digest;
use coder_domain::tags::TagSet;
use coder_store::jobs::reap;
use coder_store::{daemons, jobs, keys};

use crate::fixture::{Fixture, at, on_both_engines, tags};

on_both_engines!(
    all_silent_jobs_are_reached_page_by_page,
    lost_jobs_end_by_when_they_were_lost,
    waiting_jobs_are_grouped_by_requirements,
    facts_of_daemons,
);

async fn held(fixture: &Fixture, count: usize, session: Option<Sha256Digest>) -> Vec<JobId> {
    let daemon = fixture.daemon("one", &TagSet::untagged()).await;
    let mut jobs = Vec::new();
    for _ in 0..count {
        fixture.job(&TagSet::untagged()).await;
        jobs.push(fixture.claim_as(daemon, session, &[1]).await.unwrap());
    }
    jobs
}

async fn all_silent_jobs_are_reached_page_by_page(fixture: Fixture) {
    let jobs = held(&fixture, 25, None).await;
    fixture.job(&TagSet::untagged()).await;
    let mut tx = fixture.store.reader().await.unwrap();
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = reap::list_stale(&mut tx, at(10_000), after, 10).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some((last.updated_at, last.id));
        found.extend(page.into_iter().map(|job| job.id));
    }
    assert_eq!(found, jobs, "the longest silent first, waiting ones not among them");
    let oldest = fixture.get_job(jobs[0]).await.updated_at;
    assert_eq!(reap::list_stale(&mut tx, oldest, None, 10).await.unwrap(), []);
}

async fn lost_jobs_end_by_when_they_were_lost(fixture: Fixture) {
    let jobs = held(&fixture, 3, Some(Sha256Digest::of("s"))).await;
    let daemon = fixture.get_job(jobs[0]).await.worker_id.unwrap();
    let mut tx = fixture.store.begin().await.unwrap();
    for (job, second) in [(jobs[0], 200), (jobs[1], 100)] {
        jobs::update_lost(&mut tx, daemon, &[(job, Some(1))], at(second)).await.unwrap();
    }
    let give_up = async |tx: &mut coder_store::Tx, since| {
        let condition = Guard::LostSince(at(since));
        jobs::give_up(tx, jobs[1], condition, "daemon lost", at(400)).await
    };
    assert!(give_up(&mut tx, 99).await.is_err(), "it came back and was lost again");
    give_up(&mut tx, 100).await.unwrap();
    tx.commit().await.unwrap();
    let mut lost = Vec::new();
    for job in &jobs {
        let job = fixture.get_job(*job).await;
        lost.push((job.completed_at.is_some(), job.lost_at));
    }
    assert_eq!(lost, [(false, Some(at(200))), (true, None), (false, None)]);
}

async fn waiting_jobs_are_grouped_by_requirements(fixture: Fixture) {
    let (a, b) = (tags(&[("site", "a")]), tags(&[("site", "b")]));
    let mut ids = Vec::new();
    for set in [&a, &b, &a] {
        ids.push(fixture.job(set).await);
    }
    let created = fixture.get_job(ids[0]).await.created_at;
    let mut tx = fixture.store.reader().await.unwrap();
    assert_eq!(reap::list_waiting(&mut tx, created).await.unwrap(), []);
    let groups = reap::list_waiting(&mut tx, at(10_000)).await.unwrap();
    let told: Vec<_> = groups.iter().map(|group| (&group.tags, group.waiting)).collect();
    assert_eq!(told, [(&a, 2), (&b, 1)]);
    assert_eq!(groups[0].oldest_at, created);
}

async fn facts_of_daemons(fixture: Fixture) {
    let key = keys::Key::new(KeyId::random(), fixture.organization, "edge".to_owned(), tags(&[]), at(1));
    let mut tx = fixture.store.begin().await.unwrap();
    keys::insert(&mut tx, &key, Sha256Digest::of("secret")).await.unwrap();
    tx.commit().await.unwrap();
    let first = fixture.daemon("first", &TagSet::untagged()).await;
    let join = daemons::NewDaemon {
        organization_id: fixture.organization,
        name: "second".to_owned(),
        key_id: key.id,
        provisioners: vec!["terraform".to_owned()],
        tags: tags(&[("site", "a")]),
        version: String::new(),
        api_version: "1.14".to_owned(),
    };
    let mut tx = fixture.store.begin().await.unwrap();
    let second = daemons::upsert(&mut tx, &join, at(100)).await.unwrap();
    daemons::update_slots(&mut tx, second, 4, 1, true).await.unwrap();
    tx.commit().await.unwrap();
    for _ in 0..2 {
        fixture.job(&TagSet::untagged()).await;
        fixture.claim(first, &[1]).await.unwrap();
    }
    let mut tx = fixture.store.begin().await.unwrap();
    let facts = daemons::facts::list(&mut tx, fixture.organization, 10).await.unwrap();
    assert_eq!(facts.iter().map(|daemon| daemon.id).collect::<Vec<_>>(), [second, first]);
    assert_eq!((facts[0].busy, facts[0].slots, facts[0].draining), (0, 4, true));
    assert_eq!((facts[1].busy, facts[1].slots, facts[1].draining), (2, 1, false));
    let oldest = fixture_started(&mut tx, first).await;
    assert_eq!((facts[0].oldest_running_since, facts[1].oldest_running_since), (None, oldest));
    let daemon = facts[1].daemon(Presence::Connected, at(200));
    assert_eq!((daemon.key, daemon.busy, daemon.slots), (KeyState::None, 2, 1));
    assert_eq!(facts[0].key(at(200)), KeyState::Live);
    keys::update_expiry(&mut tx, key.id, Some(at(150))).await.unwrap();
    let facts = daemons::facts::list(&mut tx, fixture.organization, 1).await.unwrap();
    assert_eq!(facts.len(), 1);
    assert_eq!((facts[0].key(at(149)), facts[0].key(at(150))), (KeyState::Live, KeyState::Expired(at(150))));
    keys::revoke(&mut tx, fixture.organization, "edge", at(160)).await.unwrap();
    let facts = daemons::facts::list(&mut tx, fixture.organization, 1).await.unwrap();
    assert_eq!(facts[0].key(at(170)), KeyState::Revoked(at(160)), "still told, though no list shows it");
    tx.commit().await.unwrap();
}

async fn fixture_started(
    tx: &mut coder_store::Tx,
    daemon: coder_domain::ids::DaemonId,
) -> Option<jiff::Timestamp> {
    jobs::list_held(tx, daemon).await.unwrap()[0].started_at
}
