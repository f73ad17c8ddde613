//! Queue positions in both official orders.

use std::collections::BTreeMap;

use coder_domain::ids::{JobId, OrganizationId, UserId};
use coder_domain::queue::model;
use coder_domain::tags::{DaemonCapabilities, TagSet};
use coder_store::jobs::queue::{self, QueuePosition, WaitingDaemon};
use coder_store::{jobs, tag_sets};

use crate::fixture::{Fixture, on_both_engines};

on_both_engines!(
    published_positions,
    global_positions,
    acquired_job_has_no_queue_position,
    a_long_queue_is_counted_quickly,
    ranks_agree_with_the_pure_ranking,
    daemons_that_cannot_take_a_job_do_not_count,
);

/// `a1b2` as a set; an empty text is the empty set.
fn set(text: &str) -> TagSet {
    let letters: Vec<char> = text.chars().collect();
    TagSet::from_stored(
        letters.chunks(2).map(|pair| (pair[0].to_string(), pair[1].to_string())).collect::<BTreeMap<_, _>>(),
    )
}

async fn takers(fixture: &Fixture, daemons: &[&str]) -> Vec<WaitingDaemon> {
    let sets = tag_sets::list_since(&mut fixture.store.reader().await.unwrap(), 0).await.unwrap();
    let taker = |tags: TagSet| WaitingDaemon {
        organization_id: fixture.organization,
        provisioners: vec!["terraform".to_owned()],
        tag_sets: sets.iter().filter(|job| tags.satisfies(&job.tags)).map(|job| job.id).collect(),
    };
    daemons.iter().map(|daemon| taker(set(daemon))).collect()
}

async fn place(fixture: &Fixture, id: JobId, takers: &[WaitingDaemon]) -> (i64, i64) {
    let job = fixture.get_job(id).await;
    let QueuePosition { position, size } =
        queue::position(&mut fixture.store.reader().await.unwrap(), &job, takers).await.unwrap();
    (position, size)
}

type Case = (&'static [&'static str], &'static [&'static str], &'static [(i64, i64)]);

/// scheduling-and-auth 1.6: jobs oldest first, online daemons, position and size of each.
const TABLE: &[Case] = &[
    (&["a1b2", "a1", "a1c3"], &["a1b2", "a1"], &[(1, 2), (1, 2), (0, 0)]),
    (&["a1b2", "a1", "a1c3"], &["a1b2", "a1", "a1b2c3"], &[(1, 3), (1, 3), (3, 3)]),
    (&["", "", "a1b2", "a1", "a1c3"], &["a1b2", "a1", "a1b2c3"], &[(1, 5), (2, 5), (3, 5), (3, 5), (5, 5)]),
    (&["", "a1", "b2"], &[], &[(0, 0), (0, 0), (0, 0)]),
    (&["", "a1", "b2"], &["", "a1", "b2"], &[(1, 2), (2, 2), (2, 2)]),
    (&["c3", "", "a1", "b2"], &["", "a1", "b2"], &[(0, 0), (1, 2), (2, 2), (2, 2)]),
];

async fn published_positions(fixture: Fixture) {
    for (jobs, daemons, want) in TABLE {
        let mut ids = Vec::new();
        for tags in *jobs {
            ids.push(fixture.job(&set(tags)).await);
        }
        let takers = takers(&fixture, daemons).await;
        let mut found = Vec::new();
        for id in &ids {
            found.push(place(&fixture, *id, &takers).await);
        }
        assert_eq!(&found, want, "{jobs:?} {daemons:?}");
        for id in ids {
            jobs::cancel(&mut fixture.store.single().await.unwrap(), id, None, fixture.tick()).await.unwrap();
        }
    }
}

async fn global_positions(fixture: Fixture) {
    let mut prebuild = fixture.new_job(&set("a1"));
    prebuild.initiator_id = UserId::PREBUILDS;
    let now = fixture.tick();
    fixture.store.write(async |tx| jobs::insert(tx, &prebuild, now).await).await.unwrap();
    let mut ids = vec![prebuild.id];
    for tags in ["a1", "b2", "c3"] {
        ids.push(fixture.job(&set(tags)).await);
    }
    let check = async |asked: &[JobId], want: &[(JobId, i64)]| {
        let found = queue::positions(&mut fixture.store.reader().await.unwrap(), asked).await.unwrap();
        assert_eq!(found, want.iter().copied().collect());
    };
    check(&ids, &[(ids[0], 4), (ids[1], 1), (ids[2], 2), (ids[3], 3)]).await;
    check(&ids[..2], &[(ids[0], 4), (ids[1], 1)]).await;
    check(&[], &[]).await;
    assert_eq!(queue::count(&mut fixture.store.reader().await.unwrap()).await.unwrap(), 4);
    jobs::cancel(&mut fixture.store.single().await.unwrap(), ids[1], None, fixture.tick()).await.unwrap();
    check(&ids, &[(ids[0], 3), (ids[2], 1), (ids[3], 2)]).await;
    check(&ids[..2], &[(ids[0], 3)]).await;
}

async fn acquired_job_has_no_queue_position(fixture: Fixture) {
    let job = fixture.job(&set("a1")).await;
    let daemon = fixture.daemon("one", &set("a1")).await;
    let takers = takers(&fixture, &["a1"]).await;
    assert_eq!(place(&fixture, job, &takers).await, (1, 1));
    let waiting = [fixture.job(&set("a1")).await, fixture.job(&set("a1")).await];
    assert_eq!(fixture.claim(daemon, &[1]).await, Some(job));
    assert_eq!(place(&fixture, job, &takers).await, (0, 0), "though others wait");
    assert_eq!(place(&fixture, waiting[1], &takers).await, (2, 2));
}

/// Not a benchmark: this only detects quadratic plans, with 3,000 waiting jobs of 30 tag sets.
async fn a_long_queue_is_counted_quickly(fixture: Fixture) {
    let sets: Vec<_> = (0..30).map(|number| crate::fixture::tags(&[("set", &number.to_string())])).collect();
    let mut last = None;
    for _ in 0..10 {
        let batch: Vec<_> = (0..300).map(|number| fixture.new_job(&sets[number % sets.len()])).collect();
        let now = fixture.tick();
        fixture
            .store
            .write(async |tx| {
                for job in &batch {
                    jobs::insert(tx, job, now).await?;
                }
                Ok::<_, coder_store::Error>(())
            })
            .await
            .unwrap();
        last = batch.last().map(|job| job.id);
    }
    let started = std::time::Instant::now();
    let job = fixture.get_job(last.unwrap()).await;
    let taker = WaitingDaemon {
        organization_id: fixture.organization,
        provisioners: vec!["terraform".to_owned()],
        tag_sets: (1..=15).chain([job.tag_set_id]).collect(),
    };
    let mut tx = fixture.store.reader().await.unwrap();
    let place = queue::position(&mut tx, &job, &[taker]).await.unwrap();
    assert_eq!(place.size, 1600);
    assert!(place.position > 1400);
    let daemon = fixture.daemon("one", &sets[29]).await;
    assert!(fixture.claim(daemon, &[30, 29, 28]).await.is_some());
    assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
}

/// Jobs of all ages, with ties and across all levels of buckets, some of them canceled or acquired: both orders equal
/// those that `coder_domain::queue` computes from the whole list.
async fn ranks_agree_with_the_pure_ranking(fixture: Fixture) {
    let sets = ["a1", "a1b2", "b2", "c3"].map(set);
    let mut waiting = Vec::new();
    for number in 0_i64..160 {
        let mut job = fixture.new_job(&sets[usize::try_from(number % 4).unwrap()]);
        if number % 5 == 0 {
            job.initiator_id = UserId::PREBUILDS;
        }
        // Distances of microseconds, seconds, minutes, hours and days, unordered.
        let distance = [0, 1, 900_000, 70_000_000, 5_000_000_000, 90_000_000_000];
        let micros = (number * 7919 % 160) * distance[usize::try_from(number % 6).unwrap()];
        let now = crate::fixture::at(0).checked_add(jiff::SignedDuration::from_micros(micros)).unwrap();
        fixture.store.write(async |tx| jobs::insert(tx, &job, now).await).await.unwrap();
        waiting.push(job.id);
    }
    for number in (0..120).step_by(7) {
        let mut tx = fixture.store.single().await.unwrap();
        jobs::cancel(&mut tx, waiting[number], None, fixture.tick()).await.unwrap();
    }
    let daemon = fixture.daemon("one", &sets[1]).await;
    for _ in 0..15 {
        fixture.claim(daemon, &[1, 2, 3]).await.unwrap();
    }
    let mut rows = Vec::new();
    for id in &waiting {
        rows.push(fixture.get_job(*id).await);
    }
    rows.retain(|job| job.status() == coder_domain::job::Status::Pending);
    let pure: Vec<_> = rows
        .iter()
        .map(|job| model::PendingJob {
            id: job.id,
            organization: job.organization_id,
            provisioner: &job.provisioner,
            tags: &job.tags,
            prebuild: job.prebuild,
            created_at: job.created_at,
        })
        .collect();
    let mut tx = fixture.store.reader().await.unwrap();
    let overall = model::overall(&pure);
    let positions = queue::positions(&mut tx, &waiting).await.unwrap();
    assert_eq!(positions.len(), rows.len());
    for (job, place) in rows.iter().zip(&overall) {
        assert_eq!(positions[&job.id], i64::try_from(place.position).unwrap(), "{job:?}");
    }
    assert_eq!(queue::count(&mut tx).await.unwrap(), i64::try_from(rows.len()).unwrap());

    let names = ["a1b2", "a1", "c3", "a1b2c3"];
    let types = ["terraform".to_owned()];
    let offered = names.map(set);
    let offers: Vec<_> = offered
        .iter()
        .map(|tags| DaemonCapabilities { organization: fixture.organization, provisioners: &types, tags })
        .collect();
    let takers = takers(&fixture, &names).await;
    for (job, want) in rows.iter().zip(model::by_daemon(&pure, &offers)) {
        let found = queue::position(&mut tx, job, &takers).await.unwrap();
        let found = (u64::try_from(found.position).unwrap(), u64::try_from(found.size).unwrap());
        assert_eq!(found, (want.position, want.size), "{job:?}");
    }
    drop(tx);
    // No rows are left when the queue is empty.
    while fixture.claim(daemon, &[1, 2, 3, 4]).await.is_some() {}
    let later = crate::fixture::at(100_000_000);
    let mut tx = fixture.store.single().await.unwrap();
    assert!(jobs::queue_tables::purge(&mut tx, later).await.unwrap() > 0);
    assert_eq!(queue::count(&mut tx).await.unwrap(), 0);
    drop(tx);
    fixture
        .database()
        .execute("insert into queue_counts select '', '', 0, false, 9, 0, 0, count(*) from queue_counts")
        .await;
    let left = coder_store::check::check(&fixture.store).await.unwrap();
    assert!(left.iter().all(|found| !found.invariant.contains("queue")), "{left:?}");
}

async fn daemons_that_cannot_take_a_job_do_not_count(fixture: Fixture) {
    let first = fixture.job(&set("")).await;
    let second = fixture.job(&set("")).await;
    let [able] = takers(&fixture, &[""]).await.try_into().unwrap();
    let foreign = WaitingDaemon { organization_id: OrganizationId(first.0), ..able.clone() };
    let without_program = WaitingDaemon { provisioners: vec!["echo".to_owned()], ..able.clone() };
    let with_other_tags = WaitingDaemon { tag_sets: Default::default(), ..able.clone() };
    for unable in [foreign, without_program, with_other_tags] {
        assert_eq!(place(&fixture, second, std::slice::from_ref(&unable)).await, (0, 0), "{unable:?}");
        assert_eq!(place(&fixture, second, &[unable, able.clone()]).await, (2, 2));
    }
}
