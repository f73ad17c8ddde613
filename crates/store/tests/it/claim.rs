//! Claiming: order, tags, guards, and many claimers at once.

use std::collections::HashSet;
use std::sync::Arc;

use coder_domain::ids::{DaemonId, JobId, OrganizationId, UserId};
use coder_domain::job::Status;
use coder_domain::key::Hashed;
use coder_domain::tags::TagSet;
use coder_store::{Error, jobs, tag_sets};
use tokio::task::JoinSet;

use crate::fixture::{Fixture, on_both_engines, tags};

on_both_engines!(
    people_before_prebuilds_and_oldest_first,
    only_matching_jobs_are_claimed,
    canceled_jobs_are_not_claimed,
    many_claimers_no_job_twice_none_lost,
    new_tag_sets_are_seen_by_readers_in_order,
);

async fn people_before_prebuilds_and_oldest_first(fixture: Fixture) {
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
    let sets = tag_sets::since(&mut fixture.store.reader().await.unwrap(), 0).await.unwrap();
    assert_eq!(sets.iter().map(|set| set.id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(sets[1].tags, tags(&[("site", "b")]));

    let claim = async |organization_id, provisioner: &str, tag_sets: &[i64]| {
        let provisioners = ["echo".to_owned(), provisioner.to_owned()];
        let claim = jobs::Claim {
            organization_id,
            provisioners: &provisioners,
            tag_sets,
            daemon,
            session: Some(Hashed::of("n")),
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
    assert_eq!(fixture.get_job(first).await.session_hash, Some(Hashed::of("n")));
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

async fn many_claimers_no_job_twice_none_lost(fixture: Fixture) {
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
            // Overlapping wishes, so that claimers look at each other's rows.
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

/// A reader that remembers the greatest id it has seen must never miss a set that is committed later.
async fn new_tag_sets_are_seen_by_readers_in_order(fixture: Fixture) {
    const WRITERS: usize = 8;
    const EACH: usize = 12;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = fixture.store.clone();
        writers.spawn(async move {
            for number in 0..EACH {
                // Every second set is shared with a neighbour.
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
        let new = tag_sets::since(&mut fixture.store.reader().await.unwrap(), last).await.unwrap();
        seen.extend(new.into_iter().map(|set| set.id));
        if ended {
            break;
        }
        while let Some(done) = writers.try_join_next() {
            done.unwrap();
        }
        tokio::task::yield_now().await;
    }
    let total = i64::try_from(WRITERS * EACH / 2 + WRITERS / 2 * EACH / 2).unwrap();
    assert_eq!(seen, (1..=total).collect::<Vec<_>>());
}
