//! Claims: order, tags, guards and concurrent claims.

use std::collections::HashSet;
use std::sync::Arc;

use coder_domain::ids::{DaemonId, JobId, OrganizationId, UserId};
use coder_domain::job::Status;
use coder_domain::key::Sha256Digest;
use coder_domain::tags::TagSet;
use coder_store::{Error, jobs, tag_sets};
use tokio::task::JoinSet;

use crate::fixture::{Fixture, on_both_engines, tags};

on_both_engines!(
    jobs_of_people_precede_prebuilds,
    only_matching_jobs_are_claimed,
    canceled_jobs_are_not_claimed,
    concurrent_claims_take_each_job_once,
    new_tag_sets_are_seen_by_readers_in_order,
    claim_with_outdated_tag_sets_takes_no_job,
    open_jobs_are_found_by_their_session_and_by_the_token_of_their_daemon,
);

async fn jobs_of_people_precede_prebuilds(fixture: Fixture) {
    let mut people = Vec::new();
    let mut prebuilds = Vec::new();
    for _ in 0..3 {
        let mut job = fixture.new_job(&TagSet::untagged());
        job.initiator_id = UserId::PREBUILDS;
        let now = fixture.tick();
        fixture.store.write(async |tx| jobs::insert(tx, &job, now).await).await.unwrap();
        prebuilds.push(job.id);
        people.push(fixture.job(&TagSet::untagged()).await);
    }
    let daemon = fixture.daemon("one", &TagSet::untagged()).await;
    let mut order = Vec::new();
    while let Some(id) = fixture.claim(daemon, &[1]).await {
        order.push(id);
    }
    assert_eq!(order, [people, prebuilds].concat());
    let job = fixture.get_job(order[0]).await;
    assert_eq!((job.worker_id, job.status(), job.attempt), (Some(daemon), Status::Running, 1));
}

async fn only_matching_jobs_are_claimed(fixture: Fixture) {
    let first = fixture.job(&tags(&[("site", "a")])).await;
    let second = fixture.job(&tags(&[("site", "b")])).await;
    let third = fixture.job(&tags(&[("site", "a")])).await;
    let daemon = fixture.daemon("one", &tags(&[("site", "a")])).await;
    let sets = tag_sets::list_since(&mut fixture.store.reader().await.unwrap(), 0).await.unwrap();
    assert_eq!(sets.iter().map(|set| set.id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(sets[1].tags, tags(&[("site", "b")]));

    let claim = async |organization_id, provisioner: &str, tag_sets: &[i64]| {
        let provisioners = ["echo".to_owned(), provisioner.to_owned()];
        let claim = jobs::ClaimRequest {
            organization_id,
            provisioners: &provisioners,
            tag_sets,
            daemon,
            session: Some(Sha256Digest::of("n")),
        };
        jobs::claim(&mut fixture.store.single().await.unwrap(), &claim, fixture.tick())
            .await
            .unwrap()
            .map(|claimed| (claimed.job, claimed.more))
    };
    assert_eq!(claim(fixture.organization, "terraform", &[]).await, None);
    assert_eq!(claim(fixture.organization, "other", &[1]).await, None);
    assert_eq!(claim(OrganizationId::random(), "terraform", &[1]).await, None);
    assert_eq!(claim(fixture.organization, "terraform", &[2]).await, Some((second, false)));
    assert_eq!(claim(fixture.organization, "terraform", &[2, 1]).await, Some((first, true)));
    assert_eq!(claim(fixture.organization, "terraform", &[7, 2, 1]).await, Some((third, false)));
    assert_eq!(claim(fixture.organization, "terraform", &[1, 2]).await, None);
    assert_eq!(fixture.get_job(first).await.session_hash, Some(Sha256Digest::of("n")));
}

async fn canceled_jobs_are_not_claimed(fixture: Fixture) {
    let job = fixture.job(&TagSet::untagged()).await;
    let daemon = fixture.daemon("one", &TagSet::untagged()).await;
    let ended =
        jobs::cancel(&mut fixture.store.single().await.unwrap(), job, None, fixture.tick()).await.unwrap();
    assert!(ended);
    assert_eq!(fixture.claim(daemon, &[1]).await, None);
    assert_eq!(fixture.get_job(job).await.status(), Status::Canceled);
}

async fn concurrent_claims_take_each_job_once(fixture: Fixture) {
    const JOBS: usize = 300;
    const CLAIMERS: usize = 16;
    let sets = [TagSet::untagged(), tags(&[("site", "a")]), tags(&[("site", "b")])];
    let fixture = Arc::new(fixture);
    let mut wanted = HashSet::new();
    for number in 0..JOBS / 2 {
        wanted.insert(fixture.job(&sets[number % sets.len()]).await);
    }
    let posted = Arc::new(tokio::sync::Barrier::new(CLAIMERS + 1));
    let mut claimers = JoinSet::new();
    for number in 0..CLAIMERS {
        let fixture = Arc::clone(&fixture);
        let posted = Arc::clone(&posted);
        claimers.spawn(async move {
            let daemon = fixture.daemon(&format!("d{number}"), &TagSet::untagged()).await;
            // Overlapping requests, so that claimers compete for the same rows.
            let wishes: &[i64] = [&[1, 2, 3][..], &[1], &[2, 3], &[3, 1]][number % 4];
            let mut mine = Vec::new();
            drain(&fixture, daemon, wishes, &mut mine).await;
            posted.wait().await;
            drain(&fixture, daemon, &[1, 2, 3], &mut mine).await;
            (daemon, mine)
        });
    }
    // The other half arrives while the claimers work.
    for number in JOBS / 2..JOBS {
        wanted.insert(fixture.job(&sets[number % sets.len()]).await);
    }
    posted.wait().await;
    let mut claimed = Vec::new();
    while let Some(done) = claimers.join_next().await {
        let (daemon, mine) = done.unwrap();
        for id in &mine {
            assert_eq!(fixture.get_job(*id).await.worker_id, Some(daemon));
        }
        claimed.extend(mine);
    }
    assert_eq!(claimed.len(), JOBS, "no job twice, none lost");
    assert_eq!(claimed.into_iter().collect::<HashSet<_>>(), wanted);
}

async fn drain(fixture: &Fixture, daemon: DaemonId, wishes: &[i64], mine: &mut Vec<JobId>) {
    while let Some(id) = fixture.claim(daemon, wishes).await {
        mine.push(id);
    }
}

/// A reader that continues after the greatest id it has read must not miss a set that is committed later.
async fn new_tag_sets_are_seen_by_readers_in_order(fixture: Fixture) {
    const WRITERS: usize = 8;
    const SETS_PER_WRITER: usize = 12;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = fixture.store.clone();
        writers.spawn(async move {
            for number in 0..SETS_PER_WRITER {
                // Every second set is shared with another writer.
                let name = if number % 2 == 0 {
                    format!("{}-{number}", writer / 2)
                } else {
                    format!("{writer}-{number}")
                };
                let set = tags(&[("set", &name)]);
                coder_store::transaction!(store, Error, |tx| { tag_sets::intern(tx, &set).await }).unwrap();
            }
        });
    }
    let mut seen = Vec::new();
    loop {
        let ended = writers.is_empty();
        let last = seen.last().copied().unwrap_or(0);
        let new = tag_sets::list_since(&mut fixture.store.reader().await.unwrap(), last).await.unwrap();
        seen.extend(new.into_iter().map(|set| set.id));
        if ended {
            break;
        }
        while let Some(done) = writers.try_join_next() {
            done.unwrap();
        }
        tokio::task::yield_now().await;
    }
    let total = i64::try_from(WRITERS * SETS_PER_WRITER / 2 + WRITERS / 2 * SETS_PER_WRITER / 2).unwrap();
    assert_eq!(seen, (1..=total).collect::<Vec<_>>());
}

async fn claim_with_outdated_tag_sets_takes_no_job(fixture: Fixture) {
    let first = fixture.job(&tags(&[("site", "a")])).await;
    fixture.job(&tags(&[("site", "b")])).await;
    let daemon = fixture.daemon("one", &tags(&[("site", "a")])).await;
    let provisioners = ["terraform".to_owned()];
    let claim = async |newest| {
        let claim = jobs::ClaimRequest {
            organization_id: fixture.organization,
            provisioners: &provisioners,
            tag_sets: &[1],
            daemon,
            session: None,
        };
        let mut tx = fixture.store.single().await.unwrap();
        jobs::try_claim(&mut tx, &claim, newest, fixture.tick()).await.unwrap()
    };
    assert_eq!(claim(1).await, jobs::ClaimOutcome::NewerTagSets);
    assert_eq!(fixture.get_job(first).await.status(), Status::Pending);
    let taken = jobs::ClaimedJob { job: first, more: false };
    assert_eq!(claim(2).await, jobs::ClaimOutcome::Job(taken), "2 is the newest");
    assert_eq!(claim(2).await, jobs::ClaimOutcome::Nothing);
    assert_eq!(claim(1).await, jobs::ClaimOutcome::NewerTagSets, "also where nothing waits");
}

async fn open_jobs_are_found_by_their_session_and_by_the_token_of_their_daemon(fixture: Fixture) {
    let join = |name: &str| coder_store::daemons::NewDaemon {
        organization_id: fixture.organization,
        name: name.to_owned(),
        key_id: coder_domain::ids::KeyId::USER_AUTH,
        provisioners: vec!["terraform".to_owned()],
        tags: TagSet::untagged(),
        version: String::new(),
        api_version: "1.14".to_owned(),
    };
    let mut held = Vec::new();
    for (name, token) in [("a", "t1"), ("b", "t2")] {
        let arrival =
            coder_store::daemons::JoinContext { token: Some(token.to_owned()), ..Default::default() };
        let mut tx = fixture.store.begin().await.unwrap();
        let joined = coder_store::daemons::join(&mut tx, &join(name), &arrival, fixture.tick()).await;
        let daemon = joined.unwrap().id;
        tx.commit().await.unwrap();
        fixture.job(&TagSet::untagged()).await;
        let job = fixture.claim_as(daemon, Some(Sha256Digest::of(name)), &[1]).await.unwrap();
        held.push((daemon, job));
    }
    let find = async |session: &str, token: &str| {
        let mut tx = fixture.store.reader().await.unwrap();
        let of_session = jobs::list_of_session(&mut tx, Sha256Digest::of(session)).await.unwrap();
        (of_session, jobs::list_of_token(&mut tx, token).await.unwrap())
    };
    assert_eq!(find("a", "t1").await, (vec![held[0].1], vec![held[0].1]));
    assert_eq!(find("b", "t2").await, (vec![held[1].1], vec![held[1].1]));
    assert_eq!(find("c", "t3").await, (vec![], vec![]));
    let in_organization = async |organization| {
        let mut tx = fixture.store.reader().await.unwrap();
        let mut found = jobs::list_in_organization(&mut tx, organization).await.unwrap();
        found.sort();
        found
    };
    let mut both = vec![held[0].1, held[1].1];
    both.sort();
    assert_eq!(in_organization(fixture.organization).await, both);
    assert_eq!(in_organization(OrganizationId(held[0].1.0)).await, []);
    let holder = jobs::Holder { daemon: held[0].0, epoch: Some(1) };
    jobs::complete(&mut fixture.store.single().await.unwrap(), held[0].1, holder, fixture.tick())
        .await
        .unwrap();
    assert_eq!(find("a", "t1").await, (vec![], vec![]), "it has ended");
    assert_eq!(in_organization(fixture.organization).await, [held[1].1]);
}

/// A transaction that locks the sub-queue and then the job causes a deadlock, in which Postgres ends the claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_postgres_ends_for_a_deadlock_is_tried_again() {
    use sqlx::{Connection as _, Executor as _, Row as _};
    let Some(fixture) = Fixture::postgres().await else { return };
    let fixture = Arc::new(fixture);
    let job = fixture.job(&TagSet::untagged()).await;
    let daemon = fixture.daemon("one", &TagSet::untagged()).await;
    let coder_store::Location::Postgres(url) = &fixture.database().location else { panic!("Postgres") };
    let mut rival = sqlx::PgConnection::connect(url.expose()).await.unwrap();
    // The other transaction does not detect deadlocks, so that Postgres ends the claim.
    rival.execute("set deadlock_timeout = '60s'").await.unwrap();
    rival.execute("begin; update queue_lines set turn = turn").await.unwrap();
    let pid: i32 = rival.fetch_one("select pg_backend_pid()").await.unwrap().get(0);
    let claiming = tokio::spawn({
        let fixture = Arc::clone(&fixture);
        async move { fixture.claim(daemon, &[1]).await }
    });
    let mut watch = sqlx::PgConnection::connect(url.expose()).await.unwrap();
    let blocked = "select count(*) from pg_stat_activity where $1 = any(pg_blocking_pids(pid))";
    while sqlx::query(blocked).bind(pid).fetch_one(&mut watch).await.unwrap().get::<i64, _>(0) == 0 {
        tokio::task::yield_now().await;
    }
    rival.execute("update provisioner_jobs set updated_us = updated_us; commit").await.unwrap();
    assert_eq!(claiming.await.unwrap(), Some(job));
    rival.close().await.unwrap();
}
