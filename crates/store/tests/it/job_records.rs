//! Rows about jobs beside the job's own: uploads, logs, progress, counts of waiting jobs, and the cleanup of the queue.

use std::slice;

use coder_domain::ids::{BuildId, DaemonId, FileId, JobId, OrganizationId};
use coder_domain::job::{Status, Type};
use coder_domain::key::Sha256Digest;
use coder_domain::tags::TagSet;
use coder_store::jobs::logs::{self, AppendOutcome, DEFAULT_CAP_BYTES, Level, Line, LogEnd, NewLine, Source};
use coder_store::jobs::progress::{self, Progress};
use coder_store::jobs::{self, Holder, Job, backlog, queue_tables, requirements, uploads};
use coder_store::{Document, Error, Tx, files, tag_sets};
use uuid::Uuid;

use crate::fixture::{Fixture, at, on_both_engines, tags};

on_both_engines!(
    every_field_of_a_job_is_stored,
    a_job_gets_the_tag_set_that_its_caller_knows,
    uploads_of_a_job_are_bounded_and_found_by_content,
    the_program_and_the_result_come_from_the_holder,
    progress_and_leases_of_held_jobs,
    waiting_jobs_are_counted_by_what_they_need,
    one_claim_in_many_removes_empty_rows_of_the_queue,
    lines_follow_the_end_that_was_read,
    every_answer_to_an_append_names_the_lines_it_stored,
    a_log_is_cut_at_its_cap_and_its_counters_stay_true,
    a_page_begins_after_any_line,
    lines_of_all_kinds_come_back,
);

async fn held(fixture: &Fixture, session: Option<Sha256Digest>) -> (JobId, DaemonId) {
    let daemon = fixture.daemon("one", &TagSet::untagged()).await;
    let job = fixture.job(&TagSet::untagged()).await;
    assert_eq!(fixture.claim_as(daemon, session, &[1]).await, Some(job));
    (job, daemon)
}

async fn every_field_of_a_job_is_stored(fixture: Fixture) {
    let new = jobs::NewJob {
        automatic: true,
        kind: Type::WorkspaceBuild,
        provisioner: "echo".to_owned(),
        workspace_build_id: Some(BuildId::random()),
        input: Document(serde_json::json!({ "value": 1 })),
        trace_metadata: [("traceparent".to_owned(), "00-1".to_owned())].into(),
        ..fixture.new_job(&tags(&[("site", "a")]))
    };
    fixture.store.write(async |tx| jobs::insert(tx, &new, at(7)).await).await.unwrap();
    let expected = Job {
        id: new.id,
        organization_id: new.organization_id,
        initiator_id: new.initiator_id,
        kind: new.kind,
        provisioner: new.provisioner.clone(),
        file_id: new.file_id,
        tag_set_id: 1,
        tags: new.tags.clone(),
        prebuild: false,
        automatic: true,
        template_version_id: new.template_version_id,
        workspace_build_id: new.workspace_build_id,
        input: new.input.clone(),
        trace_metadata: new.trace_metadata.clone(),
        created_at: at(7),
        updated_at: at(7),
        started_at: None,
        canceled_at: None,
        completed_at: None,
        error: String::new(),
        error_code: String::new(),
        worker_id: None,
        session_hash: None,
        token_hash: None,
        attempt: 0,
        lost_at: None,
        logs_sequence: 0,
        logs_last_id: 0,
        logs_bytes: 0,
        logs_overflowed: false,
        program_product: String::new(),
        program_version: String::new(),
    };
    let mut tx = fixture.store.single().await.unwrap();
    assert_eq!(jobs::get(&mut tx, new.id).await.unwrap(), expected);
    assert_eq!(jobs::find(&mut tx, new.id).await.unwrap(), Some(expected.clone()));
    let found = jobs::find_many(&mut tx, &[JobId::random(), new.id]).await.unwrap();
    assert_eq!(found, slice::from_ref(&expected));
    assert!(jobs::get(&mut tx, JobId::random()).await.unwrap_err().is_not_found());
    let input = Document(serde_json::json!({ "value": 2 }));
    jobs::update_input(&mut tx, new.id, &input).await.unwrap();
    assert_eq!(jobs::get(&mut tx, new.id).await.unwrap(), Job { input: input.clone(), ..expected });
    let missing = jobs::update_input(&mut tx, JobId::random(), &input).await;
    assert!(matches!(missing, Err(Error::Stale { .. })), "{missing:?}");
    drop(tx);
    let lonely = jobs::NewJob { file_id: FileId::random(), ..fixture.new_job(&TagSet::untagged()) };
    let mut tx = fixture.store.begin().await.unwrap();
    let refused = match jobs::insert(&mut tx, &lonely, at(8)).await {
        Ok(()) => tx.commit().await,
        refused => refused,
    };
    assert!(matches!(refused, Err(Error::Reference(_))), "{refused:?}");
}

async fn a_job_gets_the_tag_set_that_its_caller_knows(fixture: Fixture) {
    let sets = [TagSet::untagged(), tags(&[("site", "a")])];
    let mut known = Vec::new();
    for set in &sets {
        known.push(fixture.store.write(async |tx| tag_sets::intern(tx, set).await).await.unwrap());
    }
    for (set, id, expected) in
        [(&sets[1], Some(known[1]), 2), (&sets[1], None, 2), (&sets[0], Some(known[0]), 1)]
    {
        let new = fixture.new_job(set);
        let now = fixture.tick();
        let insert = async |tx: &mut Tx| jobs::insert_with_tag_set(tx, &new, id, now).await;
        fixture.store.write(insert).await.unwrap();
        let job = fixture.get_job(new.id).await;
        assert_eq!((job.tag_set_id, &job.tags), (expected, set));
    }
    let daemon = fixture.daemon("one", &sets[1]).await;
    assert!(fixture.claim(daemon, &[2]).await.is_some());
    assert!(fixture.claim(daemon, &[2]).await.is_some());
    assert_eq!(fixture.claim(daemon, &[2]).await, None);
}

async fn store_file(fixture: &Fixture, content: &str) -> FileId {
    let new = files::NewFile {
        hash: files::hash(content.as_bytes()),
        size: content.len() as u64,
        created_by: fixture.user,
        mimetype: "application/x-tar",
    };
    let insert = async |tx: &mut Tx| files::insert(tx, &new, &mut content.as_bytes(), at(1)).await;
    fixture.store.write(insert).await.unwrap().0.id
}

async fn uploads_of_a_job_are_bounded_and_found_by_content(fixture: Fixture) {
    let (job, daemon) = held(&fixture, None).await;
    let other = fixture.job(&TagSet::untagged()).await;
    let mut stored = Vec::new();
    for number in 0..=uploads::MAX_UPLOADS {
        stored.push(store_file(&fixture, &format!("modules {number}")).await);
    }
    let hash = |number: usize| files::hash(format!("modules {number}").as_bytes());
    let (last, kept) = stored.split_last().unwrap();
    let mut tx = fixture.store.single().await.unwrap();
    assert_eq!(uploads::find(&mut tx, job, &hash(0)).await.unwrap(), None);
    for (number, file) in kept.iter().enumerate() {
        assert!(uploads::has_room(&mut tx, job, &hash(number)).await.unwrap());
        assert!(uploads::insert(&mut tx, job, *file).await.unwrap());
        assert_eq!(uploads::find(&mut tx, job, &hash(number)).await.unwrap(), Some(*file));
    }
    assert!(!uploads::has_room(&mut tx, job, &hash(kept.len())).await.unwrap());
    assert!(!uploads::insert(&mut tx, job, *last).await.unwrap(), "one too many");
    assert_eq!(uploads::find(&mut tx, job, &hash(kept.len())).await.unwrap(), None);
    assert!(uploads::has_room(&mut tx, job, &hash(3)).await.unwrap(), "it is there already");
    assert!(uploads::insert(&mut tx, job, kept[3]).await.unwrap());
    assert!(uploads::has_room(&mut tx, other, &hash(0)).await.unwrap(), "another job");
    assert!(uploads::insert(&mut tx, other, kept[0]).await.unwrap());
    let missing = uploads::insert(&mut tx, other, FileId::random()).await;
    assert!(matches!(missing, Err(Error::Reference(_))), "{missing:?}");
    jobs::complete(&mut tx, job, daemon, at(90)).await.unwrap();
    assert_eq!(uploads::purge(&mut tx, at(90)).await.unwrap(), 0);
    assert_eq!(uploads::purge(&mut tx, at(91)).await.unwrap(), u64::try_from(kept.len()).unwrap());
    assert_eq!(uploads::find(&mut tx, job, &hash(0)).await.unwrap(), None);
    assert_eq!(uploads::find(&mut tx, other, &hash(0)).await.unwrap(), Some(kept[0]), "its job goes on");
    drop(tx);
    let organizations = async |file| {
        files::list_organizations(&mut fixture.store.reader().await.unwrap(), file).await.unwrap()
    };
    assert_eq!(organizations(fixture.file).await, [fixture.organization], "once for both jobs");
    assert_eq!(organizations(*last).await, []);
}

async fn the_program_and_the_result_come_from_the_holder(fixture: Fixture) {
    let session = Sha256Digest::of("session");
    let (job, daemon) = held(&fixture, Some(session)).await;
    let holder = Holder::session(daemon, 1);
    let result = Document(serde_json::json!({ "result": true }));
    let mut tx = fixture.store.single().await.unwrap();
    for stranger in [Holder::from(daemon), Holder::session(daemon, 2), Holder::session(DaemonId::random(), 1)]
    {
        let refused = jobs::update_program(&mut tx, job, stranger, "opentofu", "1.9").await;
        assert!(matches!(refused, Err(Error::Stale { .. })), "{refused:?}");
        let refused = jobs::complete_with_input(&mut tx, job, stranger, &result, "", at(80)).await;
        assert!(matches!(refused, Err(Error::Stale { .. })), "{refused:?}");
    }
    jobs::update_program(&mut tx, job, holder, "opentofu", "1.9.0").await.unwrap();
    let row = jobs::get(&mut tx, job).await.unwrap();
    assert_eq!((row.program_product.as_str(), row.program_version.as_str()), ("opentofu", "1.9.0"));
    jobs::complete_with_input(&mut tx, job, holder, &result, "no such parameter", at(80)).await.unwrap();
    let row = jobs::get(&mut tx, job).await.unwrap();
    assert_eq!((row.status(), row.completed_at, row.updated_at), (Status::Failed, Some(at(80)), at(80)));
    assert_eq!((&row.input, row.error.as_str()), (&result, "no such parameter (daemon one)"));
    assert!(jobs::update_program(&mut tx, job, holder, "terraform", "1").await.is_err(), "it has ended");
}

async fn progress_and_leases_of_held_jobs(fixture: Fixture) {
    let session = Sha256Digest::of("session");
    let (first, daemon) = held(&fixture, Some(session)).await;
    let second = fixture.job(&TagSet::untagged()).await;
    assert_eq!(fixture.claim(daemon, &[1]).await, Some(second));
    let waiting = fixture.job(&TagSet::untagged()).await;
    let mut tx = fixture.store.single().await.unwrap();
    jobs::cancel(&mut tx, second, None, at(60)).await.unwrap();
    jobs::update_token(&mut tx, first, daemon, session, Sha256Digest::of("token")).await.unwrap();
    logs::append_system(&mut tx, second, &[line("a"), line("b")]).await.unwrap();
    let started = async |tx: &mut Tx, id| jobs::get(tx, id).await.unwrap().started_at;
    let mut expected = vec![
        (
            first,
            Progress {
                logs_last_id: 0,
                started_at: started(&mut tx, first).await,
                canceled_at: None,
                completed_at: None,
            },
        ),
        (
            second,
            Progress {
                logs_last_id: 2,
                started_at: started(&mut tx, second).await,
                canceled_at: Some(at(60)),
                completed_at: None,
            },
        ),
        (waiting, Progress { logs_last_id: 0, started_at: None, canceled_at: None, completed_at: None }),
    ];
    let stopped: Vec<_> = expected.iter().map(|(_, progress)| progress.is_stopped()).collect();
    assert_eq!(stopped, [false, true, false]);
    expected.sort_by_key(|(id, _)| *id);
    let mut found = progress::list(&mut tx, &[waiting, second, JobId::random(), first]).await.unwrap();
    found.sort_by_key(|(id, _)| *id);
    assert_eq!(found, expected);

    let lease = async |tx: &mut Tx, id| jobs::find_held(tx, id, daemon).await.unwrap();
    let leases = jobs::list_held(&mut tx, daemon).await.unwrap();
    assert_eq!(leases, [lease(&mut tx, first).await.unwrap(), lease(&mut tx, second).await.unwrap()]);
    assert_eq!((leases[0].id, leases[0].session_hash), (first, Some(session)));
    assert_eq!((leases[0].token_hash, leases[0].attempt), (Some(Sha256Digest::of("token")), 1));
    assert_eq!((leases[1].id, leases[1].canceled_at, leases[1].session_hash), (second, Some(at(60)), None));
    assert_eq!(lease(&mut tx, waiting).await, None);
    assert_eq!(jobs::find_held(&mut tx, first, DaemonId::random()).await.unwrap(), None);
    assert_eq!(jobs::list_of_daemon(&mut tx, daemon).await.unwrap(), [first, second]);
    jobs::complete(&mut tx, second, daemon, at(70)).await.unwrap();
    assert_eq!(jobs::list_held(&mut tx, daemon).await.unwrap(), leases[..1]);
    assert_eq!(jobs::list_held(&mut tx, DaemonId::random()).await.unwrap(), []);
    assert_eq!(lease(&mut tx, second).await.unwrap().completed_at, Some(at(70)));
    let (_, ended) = progress::list(&mut tx, &[second]).await.unwrap()[0].clone();
    assert!(ended.is_stopped() && Progress { canceled_at: None, ..ended }.is_stopped());
    assert_eq!(jobs::update_lost(&mut tx, daemon, &[], at(80)).await.unwrap(), 0);
    let lost = [(first, Some(1)), (second, None)];
    assert_eq!(
        jobs::update_lost(&mut tx, daemon, &lost, at(80)).await.unwrap(),
        1,
        "the other one has ended"
    );
    assert_eq!(jobs::get(&mut tx, first).await.unwrap().lost_at, Some(at(80)));
}

async fn waiting_jobs_are_counted_by_what_they_need(fixture: Fixture) {
    let site = tags(&[("site", "a")]);
    let mut tx = fixture.store.reader().await.unwrap();
    assert_eq!(backlog::list(&mut tx).await.unwrap(), []);
    assert_eq!(requirements::list(&mut tx).await.unwrap(), []);
    drop(tx);
    let mut created = Vec::new();
    for set in [&site, &TagSet::untagged(), &site] {
        let job = fixture.job(set).await;
        created.push(fixture.get_job(job).await.created_at);
    }
    let daemon = fixture.daemon("one", &TagSet::untagged()).await;
    let sort = |mut found: Vec<backlog::Backlog>| {
        found.sort_by_key(|group| group.oldest_at);
        found
    };
    let group = |tags: &TagSet, waiting, oldest: usize| backlog::Backlog {
        organization_id: fixture.organization,
        tags: tags.clone(),
        waiting,
        oldest_at: Some(created[oldest]),
    };
    let need = |tag_set_id| requirements::JobRequirements {
        organization_id: fixture.organization,
        tag_set_id,
        provisioner: "terraform".to_owned(),
    };
    let mut tx = fixture.store.reader().await.unwrap();
    let found = sort(backlog::list(&mut tx).await.unwrap());
    assert_eq!(found, [group(&site, 2, 0), group(&TagSet::untagged(), 1, 1)]);
    let mut needs = requirements::list(&mut tx).await.unwrap();
    needs.sort_by_key(|need| need.tag_set_id);
    assert_eq!(needs, [need(1), need(2)]);
    drop(tx);
    fixture.claim(daemon, &[2]).await.unwrap();
    fixture.claim(daemon, &[1]).await.unwrap();
    let mut tx = fixture.store.reader().await.unwrap();
    assert_eq!(backlog::list(&mut tx).await.unwrap(), [group(&site, 1, 2)]);
    assert_eq!(requirements::list(&mut tx).await.unwrap(), [need(1)]);
}

/// Which claims do so depends on the id of the job, so that no claim counts.
async fn one_claim_in_many_removes_empty_rows_of_the_queue(fixture: Fixture) {
    let daemon = fixture.daemon("one", &TagSet::untagged()).await;
    let mut second = 10;
    for (number, removes) in [
        (0, true),
        (1, false),
        (0x0200, false),
        (0x03ff, false),
        (0x0400, true),
        (0x0401, false),
        (0xfc00, true),
        (0xffff, false),
        (0x1_0400, true),
    ] {
        let claim = async |id, now| {
            let job = jobs::NewJob { id: JobId(id), ..fixture.new_job(&TagSet::untagged()) };
            fixture.store.write(async |tx| jobs::insert(tx, &job, at(now)).await).await.unwrap();
            let request = jobs::ClaimRequest {
                organization_id: fixture.organization,
                provisioners: &["terraform".to_owned()],
                tag_sets: &[1],
                daemon,
                session: None,
            };
            let mut tx = fixture.store.single().await.unwrap();
            jobs::claim(&mut tx, &request, at(now)).await.unwrap().unwrap().job
        };
        // The first job leaves rows that are empty and old when the second one is claimed.
        let old = claim(Uuid::from_u128(u128::try_from(second).unwrap() << 32 | 1), second).await;
        let new =
            claim(Uuid::from_u128(u128::try_from(second).unwrap() << 64 | number), second + 10_000).await;
        assert_ne!(old, new);
        let mut tx = fixture.store.single().await.unwrap();
        let left = queue_tables::purge(&mut tx, at(second + 10_000)).await.unwrap();
        assert_eq!(left == 0, removes, "{number:x}: {left} rows were left");
        second += 100_000;
    }
}

fn line(output: &str) -> NewLine {
    NewLine {
        created_at: at(1),
        source: Source::Provisioner,
        level: Level::Info,
        stage: "Planning".to_owned(),
        output: output.to_owned(),
    }
}

async fn outputs(fixture: &Fixture, job: JobId) -> Vec<(i64, String)> {
    let mut tx = fixture.store.reader().await.unwrap();
    let lines = logs::list(&mut tx, job, 0, usize::MAX, i64::MAX).await.unwrap();
    lines.into_iter().map(|line| (line.id, line.line.output)).collect()
}

async fn lines_follow_the_end_that_was_read(fixture: Fixture) {
    let (job, daemon) = held(&fixture, None).await;
    let find_end = async |holder: DaemonId| {
        logs::find_end(&mut fixture.store.reader().await.unwrap(), job, holder).await.unwrap()
    };
    let after = async |end: &LogEnd, lines: &[NewLine], cap| {
        let append = async |tx: &mut Tx| logs::append_after(tx, job, daemon, end, lines, cap, at(50)).await;
        fixture.store.write(append).await
    };
    let row = fixture.get_job(job).await;
    let mut end = LogEnd {
        kind: row.kind,
        template_version_id: row.template_version_id,
        logs_last_id: 0,
        cancel_requested: false,
    };
    assert_eq!(find_end(daemon).await, Some(end.clone()));
    assert_eq!(find_end(DaemonId::random()).await, None);
    after(&end, &[line("ab"), line("cd")], 100).await.unwrap();
    let repeated = after(&end, &[line("ef")], 100).await;
    assert!(matches!(repeated, Err(Error::Stale { .. })), "the log has grown since: {repeated:?}");
    end.logs_last_id = 2;
    assert_eq!(find_end(daemon).await, Some(end.clone()));
    let too_long = after(&end, &[line("ef")], 5).await;
    assert!(matches!(too_long, Err(Error::Stale { .. })), "{too_long:?}");
    after(&end, &[line("ef")], 6).await.unwrap();
    end.logs_last_id = 3;
    let row = fixture.get_job(job).await;
    assert_eq!((row.logs_last_id, row.logs_bytes, row.updated_at), (3, 6, at(50)));
    jobs::cancel(&mut fixture.store.single().await.unwrap(), job, None, at(60)).await.unwrap();
    let canceled = after(&end, &[line("gh")], 100).await;
    assert!(matches!(canceled, Err(Error::Stale { .. })), "the daemon must learn of it: {canceled:?}");
    end.cancel_requested = true;
    assert_eq!(find_end(daemon).await, Some(end.clone()));
    after(&end, &[line("gh")], 100).await.unwrap();
    let expected = [(1, "ab"), (2, "cd"), (3, "ef"), (4, "gh")].map(|(id, text)| (id, text.to_owned()));
    assert_eq!(outputs(&fixture, job).await, expected);
    jobs::complete(&mut fixture.store.single().await.unwrap(), job, daemon, at(70)).await.unwrap();
    assert_eq!(find_end(daemon).await, None, "it has ended");
}

async fn every_answer_to_an_append_names_the_lines_it_stored(fixture: Fixture) {
    let (job, daemon) = held(&fixture, Some(Sha256Digest::of("s"))).await;
    let holder = Holder::session(daemon, 1);
    let send = async |first: i64, count: usize| {
        let lines: Vec<_> = (0..count).map(|number| line(&format!("{first}+{number}"))).collect();
        let mut tx = fixture.store.begin().await.unwrap();
        let done = logs::append_numbered(&mut tx, job, holder, first, &lines, 1000, at(9)).await.unwrap();
        tx.commit().await.unwrap();
        let AppendOutcome { first_id, last_id, overflowed, cancel_requested } = done.appended;
        assert!(!overflowed && !cancel_requested);
        (done.next_sequence, first_id, last_id)
    };
    let append = async |count: usize| {
        let lines = vec![line("x"); count];
        let mut tx = fixture.store.begin().await.unwrap();
        let done = logs::append(&mut tx, job, holder, &lines, 1000, at(9)).await.unwrap();
        tx.commit().await.unwrap();
        (done.first_id, done.last_id)
    };
    let system = async |count: usize| {
        let mut tx = fixture.store.begin().await.unwrap();
        let done = logs::append_system(&mut tx, job, &vec![line("y"); count]).await.unwrap();
        tx.commit().await.unwrap();
        assert!(!done.overflowed && !done.cancel_requested);
        (done.first_id, done.last_id)
    };
    assert_eq!(append(0).await, (1, 0));
    assert_eq!(system(0).await, (1, 0));
    assert_eq!(system(3).await, (1, 3));
    assert_eq!(append(2).await, (4, 5));
    assert_eq!(send(1, 3).await, (4, 6, 8));
    assert_eq!(send(1, 3).await, (4, 9, 8), "all are known");
    assert_eq!(send(2, 4).await, (6, 9, 10), "two are known");
    assert_eq!(send(6, 1).await, (7, 11, 11));
    assert_eq!(send(9, 1).await, (7, 12, 11), "a gap");
    assert_eq!(append(0).await, (12, 11));
    assert_eq!(system(2).await, (12, 13));
    assert_eq!(send(7, 2).await, (9, 14, 15));
    let row = fixture.get_job(job).await;
    assert_eq!((row.logs_last_id, row.logs_sequence), (15, 8));
    assert_eq!(outputs(&fixture, job).await.len(), 15);
    jobs::cancel(&mut fixture.store.single().await.unwrap(), job, None, at(60)).await.unwrap();
    let mut tx = fixture.store.begin().await.unwrap();
    assert!(logs::append_system(&mut tx, job, &[line("z")]).await.unwrap().cancel_requested);
    let late = logs::append_numbered(&mut tx, job, holder, 1, &[line("z")], 1000, at(9)).await.unwrap();
    assert!(late.appended.cancel_requested, "also where nothing is stored");
    let missing = logs::append_system(&mut tx, JobId::random(), &[line("z")]).await;
    assert!(matches!(missing, Err(Error::Stale { .. })), "{missing:?}");
}

async fn a_log_is_cut_at_its_cap_and_its_counters_stay_true(fixture: Fixture) {
    let daemon = fixture.daemon("one", &TagSet::untagged()).await;
    // The cap, batches of lengths of lines, and how many lines of the last batch are kept.
    for (cap, batches, kept) in [
        (10, &[&[10][..]][..], None),
        (10, &[&[4, 6]], None),
        (10, &[&[4], &[6]], None),
        (10, &[&[4], &[7]], Some(0)),
        (10, &[&[4], &[6, 1]], Some(1)),
        (10, &[&[4], &[2, 4, 1, 1]], Some(2)),
        (10, &[&[11]], Some(0)),
        (10, &[&[3], &[3], &[3, 2, 1]], Some(1)),
        (0, &[&[1]], Some(0)),
        (0, &[&[0, 0]], None),
    ] {
        let job = fixture.job(&TagSet::untagged()).await;
        assert_eq!(fixture.claim(daemon, &[1]).await, Some(job));
        let (mut last, mut bytes) = (0, 0);
        for (number, batch) in batches.iter().enumerate() {
            let lines: Vec<_> = batch.iter().map(|length| line(&"x".repeat(*length))).collect();
            let append = async |tx: &mut Tx| logs::append(tx, job, daemon, &lines, cap, at(77)).await;
            let done = fixture.store.write(append).await.unwrap();
            let cut = kept.filter(|_| number + 1 == batches.len());
            let stored = cut.map_or(batch.len(), |kept| kept + 1);
            assert_eq!(done.first_id, last + 1, "{cap} {batches:?}");
            last += i64::try_from(stored).unwrap();
            assert_eq!((done.last_id, done.overflowed), (last, cut.is_some()), "{cap} {batches:?}");
            let counted: usize = batch.iter().take(cut.unwrap_or(batch.len())).sum();
            bytes += i64::try_from(counted).unwrap();
            let mut tx = fixture.store.reader().await.unwrap();
            let notice = logs::find_last(&mut tx, job).await.unwrap().unwrap();
            assert_eq!(notice.id, last);
            if cut.is_some() {
                assert_eq!((notice.line.created_at, notice.line.stage.as_str()), (at(77), "Planning"));
                assert!(notice.line.output.starts_with(&format!("log output exceeds {cap} bytes")));
                bytes += i64::try_from(notice.line.output.len()).unwrap();
            }
            let row = jobs::get(&mut tx, job).await.unwrap();
            assert_eq!((row.logs_last_id, row.logs_bytes), (last, bytes), "{cap} {batches:?}");
        }
        let found = outputs(&fixture, job).await;
        assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), (1..=last).collect::<Vec<_>>());
    }
}

async fn a_page_begins_after_any_line(fixture: Fixture) {
    let (job, daemon) = held(&fixture, None).await;
    // Rows of one line, of several, and long ones, of which a row holds two at most.
    for lengths in [&[1][..], &[2; 5], &[100 << 10; 5], &[300 << 10], &[3, 300 << 10, 3]] {
        let lines: Vec<_> = lengths.iter().map(|length| line(&"x".repeat(*length))).collect();
        let append =
            async |tx: &mut Tx| logs::append(tx, job, daemon, &lines, DEFAULT_CAP_BYTES, at(5)).await;
        fixture.store.write(append).await.unwrap();
    }
    let mut tx = fixture.store.single().await.unwrap();
    for after in -1..=15 {
        for limit in [1, 2, 100] {
            let page = logs::list(&mut tx, job, after, limit, i64::MAX).await.unwrap();
            let ids: Vec<_> = page.iter().map(|line| line.id).collect();
            let expected: Vec<_> = (after.max(0) + 1..=15).take(limit).collect();
            assert_eq!(ids, expected, "{limit} after {after}");
        }
        let row = logs::list(&mut tx, job, after, 100, 0).await.unwrap();
        assert_eq!(row.is_empty(), after == 15, "at least one row after {after}");
    }
    assert_eq!(logs::find_last(&mut tx, job).await.unwrap().unwrap().id, 15);
    // 1, 1, 3 (of two, two and one line), 1, and 3 because the long line fills a row alone.
    assert_eq!(logs::purge(&mut tx, job).await.unwrap(), 9);
    assert_eq!(logs::list(&mut tx, job, 0, 100, i64::MAX).await.unwrap(), []);
    assert_eq!(logs::find_last(&mut tx, job).await.unwrap(), None);
}

async fn lines_of_all_kinds_come_back(fixture: Fixture) {
    let (job, daemon) = held(&fixture, None).await;
    let mut lines = Vec::new();
    for (level, word) in [
        (Level::Trace, "trace"),
        (Level::Debug, "debug"),
        (Level::Info, "info"),
        (Level::Warn, "warn"),
        (Level::Error, "error"),
    ] {
        assert_eq!(level.as_str(), word);
        assert_eq!(serde_json::to_value(level).unwrap(), word);
        for source in [Source::Provisioner, Source::ProvisionerDaemon] {
            let number = i64::try_from(lines.len()).unwrap();
            let stage = format!("stage {number}");
            lines.push(NewLine { created_at: at(number), source, level, stage, output: word.repeat(200) });
        }
    }
    let append = async |tx: &mut Tx| logs::append(tx, job, daemon, &lines, DEFAULT_CAP_BYTES, at(5)).await;
    fixture.store.write(append).await.unwrap();
    let mut tx = fixture.store.reader().await.unwrap();
    let found = logs::list(&mut tx, job, 0, 100, i64::MAX).await.unwrap();
    let expected: Vec<_> = lines.into_iter().zip(1..).map(|(line, id)| Line { id, line }).collect();
    assert_eq!(found, expected);
    assert_eq!(logs::find_last(&mut tx, job).await.unwrap(), expected.last().cloned());
    assert_eq!(logs::find_last(&mut tx, JobId::random()).await.unwrap(), None);
    assert_eq!(logs::list(&mut tx, JobId::random(), 0, 100, i64::MAX).await.unwrap(), []);
}

/// Stands for a claim of another server that always takes the chosen job first.
const RIVAL: &str = "create trigger rival before update of started_us on provisioner_jobs
    begin select raise(ignore); end";

#[tokio::test]
async fn a_claim_that_others_always_outrun_ends_without_a_job() {
    let fixture = Fixture::sqlite().await;
    let daemon = fixture.daemon("one", &TagSet::untagged()).await;
    let job = fixture.job(&TagSet::untagged()).await;
    fixture.database().execute(RIVAL).await;
    assert_eq!(fixture.claim(daemon, &[1]).await, None);
    // Inside a transaction of its caller a claim cannot begin again.
    let request = jobs::ClaimRequest {
        organization_id: fixture.organization,
        provisioners: &["terraform".to_owned()],
        tag_sets: &[1],
        daemon,
        session: None,
    };
    let mut tx = fixture.store.begin().await.unwrap();
    let outrun = jobs::claim(&mut tx, &request, at(9)).await;
    assert!(matches!(outrun, Err(Error::Stale { .. })), "{outrun:?}");
    tx.rollback().await;
    fixture.database().execute("drop trigger rival").await;
    assert_eq!(fixture.claim(daemon, &[1]).await, Some(job));
    let mut tx = fixture.store.reader().await.unwrap();
    assert_eq!(jobs::list_in_organization(&mut tx, OrganizationId::NIL).await.unwrap(), []);
}

/// Rows of one bucket that are too many would make every queue position slow.
#[tokio::test]
async fn the_counts_of_a_bucket_are_in_four_rows() {
    let fixture = Fixture::sqlite().await;
    let insert = async |tx: &mut Tx| {
        for number in (0..=255).step_by(5) {
            let id = JobId(Uuid::from_u128(number));
            let job = jobs::NewJob { id, ..fixture.new_job(&TagSet::untagged()) };
            jobs::insert(tx, &job, at(7)).await?;
        }
        Ok::<_, Error>(())
    };
    fixture.store.write(insert).await.unwrap();
    let coder_store::Location::Sqlite(path) = &fixture.database().location else { panic!("a file") };
    let conn = rusqlite::Connection::open(path).unwrap();
    let shards = "select count(distinct shard), max(shard), sum(total) from queue_counts where level = 1
        and organization_id = ''";
    let found = conn.query_row(shards, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    assert_eq!(found.unwrap(), (4, 3, 52));
}
