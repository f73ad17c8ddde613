//! Job rows: stored fields, lists with filters, cancels, heartbeats, and stale jobs.

use coder_domain::ids::JobId;
use coder_domain::job::lifecycle::Guard;
use coder_domain::job::{Status, Type};
use coder_domain::key::Sha256Digest;
use coder_domain::tags::TagSet;
use coder_store::jobs::list::JobFilter;
use coder_store::jobs::{self, timings};
use coder_store::jobs::{ExpectedStatus, Holder, NewJob};
use coder_store::{Document, Error};

use crate::fixture::{Fixture, at, on_both_engines, tags};

on_both_engines!(
    everything_is_stored,
    lists_are_filtered,
    cancel_respects_what_is_expected,
    only_the_owner_sends_heartbeats,
    silent_jobs_are_found_and_ended_once,
    a_session_fences_a_job,
    the_token_that_a_session_shows_stays_good_until_a_newer_one_is_used,
    message_of_an_official_daemon_ends_its_loss,
    timings_keep_their_order,
    orphan_deletes_end_without_a_daemon,
);

async fn everything_is_stored(fixture: Fixture) {
    let new = NewJob {
        kind: Type::TemplateVersionDryRun,
        input: Document(serde_json::json!({"workspace_name": "dev"})),
        trace_metadata: [("traceparent".to_owned(), "00-1".to_owned())].into(),
        ..fixture.new_job(&tags(&[("site", "a")]))
    };
    fixture.store.write(async |tx| jobs::insert(tx, &new, at(7)).await).await.unwrap();
    let job = fixture.get_job(new.id).await;
    assert_eq!((job.kind, &job.tags, job.created_at, job.updated_at), (new.kind, &new.tags, at(7), at(7)));
    assert_eq!((&job.input, &job.trace_metadata), (&new.input, &new.trace_metadata));
    assert_eq!((job.template_version_id, job.status()), (new.template_version_id, Status::Pending));
    assert!(!format!("{job:?}").contains("dev"), "the input may hold secrets");
    let mut tx = fixture.store.begin().await.unwrap();
    jobs::update_input(&mut tx, new.id, &Document::default()).await.unwrap();
    assert_eq!(
        jobs::find_many(&mut tx, &[new.id, JobId::random()]).await.unwrap()[0].input,
        Document::default()
    );
    assert_eq!(jobs::find(&mut tx, JobId::random()).await.unwrap(), None);
    tx.commit().await.unwrap();
}

async fn lists_are_filtered(fixture: Fixture) {
    let daemon = fixture.daemon("one", &TagSet::untagged()).await;
    let first = fixture.job(&TagSet::untagged()).await;
    let second = fixture.job(&tags(&[("site", "a")])).await;
    let third = fixture.job(&TagSet::untagged()).await;
    assert_eq!(fixture.claim(daemon, &[1]).await, Some(first));
    let check = async |filter: JobFilter, limit, want: &[JobId]| {
        let listed =
            jobs::list::list(&mut fixture.store.reader().await.unwrap(), &filter, limit).await.unwrap();
        assert_eq!(listed.iter().map(|row| row.job.id).collect::<Vec<_>>(), want, "{filter:?}");
        listed
    };
    let listed = check(JobFilter::default(), 50, &[third, second, first]).await;
    assert_eq!(listed[2].metadata.worker_name, "one");
    assert_eq!(listed[0].metadata.worker_name, "");
    check(JobFilter::default(), 2, &[third, second]).await;
    check(
        JobFilter { organization_id: Some(fixture.organization), ..JobFilter::default() },
        50,
        &[third, second, first],
    )
    .await;
    check(JobFilter { status: Some(vec![Status::Running]), ..JobFilter::default() }, 50, &[first]).await;
    check(JobFilter { status: Some(vec![]), ..JobFilter::default() }, 50, &[]).await;
    check(JobFilter { ids: Some(vec![first, third]), ..JobFilter::default() }, 50, &[third, first]).await;
    check(JobFilter { tag_sets: Some(vec![2, 9]), ..JobFilter::default() }, 50, &[second]).await;
    check(JobFilter { initiator_id: Some(fixture.user), ..JobFilter::default() }, 1, &[third]).await;
    check(
        JobFilter { initiator_id: Some(coder_domain::ids::UserId::PREBUILDS), ..JobFilter::default() },
        1,
        &[],
    )
    .await;
}

async fn cancel_respects_what_is_expected(fixture: Fixture) {
    let daemon = fixture.daemon("one", &TagSet::untagged()).await;
    let cancel = async |job, expected| {
        jobs::cancel(&mut fixture.store.single().await.unwrap(), job, expected, fixture.tick()).await
    };
    let waiting = fixture.job(&TagSet::untagged()).await;
    assert!(matches!(cancel(waiting, Some(ExpectedStatus::Running)).await, Err(Error::Stale { .. })));
    assert!(cancel(waiting, Some(ExpectedStatus::Pending)).await.unwrap(), "ended at once");
    assert!(matches!(cancel(waiting, None).await, Err(Error::Stale { .. })), "has ended");

    let running = fixture.job(&TagSet::untagged()).await;
    assert_eq!(fixture.claim(daemon, &[1]).await, Some(running));
    assert!(matches!(cancel(running, Some(ExpectedStatus::Pending)).await, Err(Error::Stale { .. })));
    assert!(!cancel(running, Some(ExpectedStatus::Running)).await.unwrap(), "the daemon ends it");
    assert!(matches!(cancel(running, None).await, Err(Error::Stale { .. })), "canceled before");
    assert_eq!(fixture.get_job(running).await.status(), Status::Canceling);
    let alive =
        jobs::update_alive(&mut fixture.store.single().await.unwrap(), running, daemon, fixture.tick()).await;
    assert!(alive.unwrap(), "the owner learns of the cancel");
}

async fn only_the_owner_sends_heartbeats(fixture: Fixture) {
    let owner = fixture.daemon("one", &TagSet::untagged()).await;
    let other = fixture.daemon("two", &TagSet::untagged()).await;
    let job = fixture.job(&TagSet::untagged()).await;
    let alive = async |daemon| {
        jobs::update_alive(&mut fixture.store.single().await.unwrap(), job, daemon, at(50)).await
    };
    assert!(matches!(alive(owner).await, Err(Error::Stale { .. })), "nobody has it yet");
    assert_eq!(fixture.claim(owner, &[1]).await, Some(job));
    assert!(!alive(owner).await.unwrap());
    assert_eq!(fixture.get_job(job).await.updated_at, at(50));
    assert!(matches!(alive(other).await, Err(Error::Stale { .. })));
    let mut tx = fixture.store.begin().await.unwrap();
    assert_eq!(jobs::list_of_daemon(&mut tx, owner).await.unwrap(), [job]);
    assert!(matches!(jobs::complete(&mut tx, job, other, at(51)).await, Err(Error::Stale { .. })));
    jobs::fail(&mut tx, job, owner, "boom", "CODE", at(52)).await.unwrap();
    assert!(
        matches!(jobs::complete(&mut tx, job, owner, at(53)).await, Err(Error::Stale { .. })),
        "ended once"
    );
    assert_eq!(jobs::list_of_daemon(&mut tx, owner).await.unwrap(), []);
    tx.commit().await.unwrap();
    assert!(matches!(alive(owner).await, Err(Error::Stale { .. })), "late messages are refused");
    let job = fixture.get_job(job).await;
    assert_eq!(
        (job.status(), job.error.as_str(), job.error_code.as_str()),
        (Status::Failed, "boom (daemon one)", "CODE")
    );
}

async fn silent_jobs_are_found_and_ended_once(fixture: Fixture) {
    let daemon = fixture.daemon("one", &TagSet::untagged()).await;
    let running = fixture.job(&TagSet::untagged()).await;
    assert_eq!(fixture.claim(daemon, &[1]).await, Some(running));
    let waiting = fixture.job(&TagSet::untagged()).await;
    let find = async |running_before, pending_before, limit| {
        let mut tx = fixture.store.reader().await.unwrap();
        let mut found = jobs::reap::list_candidates(&mut tx, at(running_before), at(pending_before), limit)
            .await
            .unwrap();
        found.sort();
        found
    };
    let mut both = vec![running, waiting];
    both.sort();
    assert_eq!(find(0, 0, 10).await, []);
    assert_eq!(find(1000, 0, 10).await, [running]);
    assert_eq!(find(0, 1000, 10).await, [waiting]);
    assert_eq!(find(1000, 1000, 10).await, both);
    assert_eq!(find(1000, 1000, 1).await.len(), 1);

    let mut tx = fixture.store.begin().await.unwrap();
    let seen = jobs::get(&mut tx, running).await.unwrap().updated_at;
    jobs::update_alive(&mut tx, running, daemon, at(500)).await.unwrap();
    let moved = jobs::give_up(&mut tx, running, Guard::SilentSince(seen), "hung", at(600)).await;
    assert!(matches!(moved, Err(Error::Stale { .. })), "it gave a heartbeat in between");
    jobs::give_up(&mut tx, running, Guard::SilentSince(at(500)), "hung", at(600)).await.unwrap();
    jobs::give_up(&mut tx, waiting, Guard::Pending, "pending", at(600)).await.unwrap();
    let job = jobs::get(&mut tx, waiting).await.unwrap();
    assert_eq!(
        (job.started_at, job.completed_at, job.status()),
        (Some(at(600)), Some(at(600)), Status::Failed)
    );
    assert!(jobs::complete(&mut tx, running, daemon, at(601)).await.is_err());
    tx.commit().await.unwrap();
    assert_eq!(find(1000, 1000, 10).await, []);
}

async fn a_session_fences_a_job(fixture: Fixture) {
    let daemon = fixture.daemon("one", &TagSet::untagged()).await;
    let job = fixture.job(&TagSet::untagged()).await;
    let session = Sha256Digest::of("session");
    assert_eq!(fixture.claim_as(daemon, Some(session), &[1]).await, Some(job));
    let mut tx = fixture.store.begin().await.unwrap();
    let held = jobs::update_token(&mut tx, job, daemon, session, Sha256Digest::of("token 1")).await.unwrap();
    assert_eq!((held.attempt, held.token_hash), (1, Some(Sha256Digest::of("token 1"))));
    let foreign =
        jobs::update_token(&mut tx, job, daemon, Sha256Digest::of("other"), Sha256Digest::of("token x"))
            .await;
    assert!(matches!(foreign, Err(Error::Stale { .. })), "another session of the same name");

    let first = Holder::session(daemon, 1);
    let official = jobs::update_alive(&mut tx, job, daemon, at(50)).await;
    assert!(matches!(official, Err(Error::Stale { .. })), "an official daemon of the same name");
    assert!(!jobs::update_alive(&mut tx, job, first, at(50)).await.unwrap());
    assert_eq!(jobs::update_lost(&mut tx, daemon, &[(job, Some(1))], at(60)).await.unwrap(), 1);
    assert_eq!(jobs::get(&mut tx, job).await.unwrap().lost_at, Some(at(60)));
    // A late message of the ended connection does not end the loss.
    assert!(!jobs::update_alive(&mut tx, job, first, at(61)).await.unwrap());
    assert_eq!(jobs::get(&mut tx, job).await.unwrap().lost_at, Some(at(60)));

    let (shown, new) = (Some(Sha256Digest::of("token 1")), Sha256Digest::of("token 2"));
    let back = jobs::resume(&mut tx, job, daemon, session, shown, new, at(70)).await.unwrap();
    assert_eq!((back.attempt, back.token_hash, back.logs_sequence), (2, Some(new), 0));
    assert_eq!(back.previous_token_hash, shown, "it may not know the new one yet");
    jobs::update_token_used(&mut tx, job, first).await.unwrap();
    let held = jobs::find_held(&mut tx, job, daemon).await.unwrap().unwrap();
    assert_eq!(held.previous_token_hash, shown, "a former holder uses nothing");
    jobs::update_token_used(&mut tx, job, Holder::session(daemon, 2)).await.unwrap();
    let held = jobs::find_held(&mut tx, job, daemon).await.unwrap().unwrap();
    assert_eq!(held.previous_token_hash, None);
    assert_eq!(jobs::get(&mut tx, job).await.unwrap().lost_at, None);
    // Messages of the former connection change nothing, nor does its end.
    assert_eq!(jobs::update_lost(&mut tx, daemon, &[(job, Some(1)), (job, None)], at(71)).await.unwrap(), 0);
    assert!(jobs::update_alive(&mut tx, job, first, at(71)).await.is_err());
    assert!(jobs::fail(&mut tx, job, first, "late", "", at(71)).await.is_err());
    assert!(jobs::complete(&mut tx, job, daemon, at(71)).await.is_err());
    jobs::complete(&mut tx, job, Holder::session(daemon, 2), at(72)).await.unwrap();
    assert!(jobs::resume(&mut tx, job, daemon, session, None, new, at(73)).await.is_err());
    let held = jobs::find_held(&mut tx, job, daemon).await.unwrap().unwrap();
    assert_eq!((held.completed_at, held.token_hash), (Some(at(72)), Some(new)));
    tx.commit().await.unwrap();
}

/// Several responses in a row can be lost. The daemon knows the token that it presents.
async fn the_token_that_a_session_shows_stays_good_until_a_newer_one_is_used(fixture: Fixture) {
    let daemon = fixture.daemon("one", &TagSet::untagged()).await;
    let job = fixture.job(&TagSet::untagged()).await;
    let session = Sha256Digest::of("session");
    fixture.claim_as(daemon, Some(session), &[1]).await.unwrap();
    let mut tx = fixture.store.begin().await.unwrap();
    let token = |number: i32| Sha256Digest::of(&format!("token {number}"));
    jobs::update_token(&mut tx, job, daemon, session, token(1)).await.unwrap();
    for (shown, new, previous) in [
        (Some(1), 2, 1),
        (Some(1), 3, 1), // the answer with 2 never arrived
        (Some(3), 4, 3), // the one with 3 did
        (None, 5, 3),
        (Some(9), 6, 3), // nonsense
    ] {
        let (shown, new) = (shown.map(token), token(new));
        let back = jobs::resume(&mut tx, job, daemon, session, shown, new, at(70)).await.unwrap();
        assert_eq!(back.previous_token_hash, Some(token(previous)), "{shown:?}");
    }
    tx.commit().await.unwrap();
}

/// An official daemon does not announce that it has reconnected. Its next message shows it.
async fn message_of_an_official_daemon_ends_its_loss(fixture: Fixture) {
    let daemon = fixture.daemon("one", &TagSet::untagged()).await;
    let job = fixture.job(&TagSet::untagged()).await;
    fixture.claim(daemon, &[1]).await.unwrap();
    let mut tx = fixture.store.begin().await.unwrap();
    assert_eq!(jobs::update_lost(&mut tx, daemon, &[(job, None)], at(60)).await.unwrap(), 1);
    assert_eq!(jobs::update_lost(&mut tx, daemon, &[(job, None)], at(61)).await.unwrap(), 0, "lost already");
    assert!(!jobs::update_alive(&mut tx, job, daemon, at(62)).await.unwrap());
    assert_eq!(jobs::get(&mut tx, job).await.unwrap().lost_at, None);
    tx.commit().await.unwrap();
}

async fn timings_keep_their_order(fixture: Fixture) {
    let job = fixture.job(&TagSet::untagged()).await;
    let timing = |stage: &str, second| timings::Timing {
        stage: stage.to_owned(),
        source: "coder".to_owned(),
        action: "read".to_owned(),
        resource: "data.coder_workspace.me".to_owned(),
        started_at: at(second),
        ended_at: at(second + 1),
    };
    let reported = vec![timing("plan", 3), timing("apply", 1)];
    let mut tx = fixture.store.begin().await.unwrap();
    timings::insert(&mut tx, job, &[]).await.unwrap();
    timings::insert(&mut tx, job, &reported).await.unwrap();
    assert_eq!(timings::list(&mut tx, job).await.unwrap(), reported);
    tx.commit().await.unwrap();
}

async fn orphan_deletes_end_without_a_daemon(fixture: Fixture) {
    let job = fixture.job(&TagSet::untagged()).await;
    let mut tx = fixture.store.begin().await.unwrap();
    jobs::finish_unclaimed(&mut tx, job, "", at(9)).await.unwrap();
    assert!(jobs::finish_unclaimed(&mut tx, job, "", at(9)).await.is_err());
    assert_eq!(jobs::get(&mut tx, job).await.unwrap().status(), Status::Succeeded);
    tx.commit().await.unwrap();
}
