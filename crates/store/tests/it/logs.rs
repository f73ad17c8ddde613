//! Job logs: numbering, cost, cap, pages and lines of any size.

use coder_domain::ids::{DaemonId, JobId};
use coder_domain::tags::TagSet;
use coder_store::jobs::logs::{DEFAULT_CAP_BYTES, Level, NewLine, Source};
use coder_store::{Error, check, jobs};

use crate::fixture::{Fixture, at, on_both_engines};

on_both_engines!(
    lines_are_numbered_from_one,
    a_batch_costs_two_statements,
    the_cap_is_announced_once,
    pages_are_bounded_and_complete,
    only_the_owner_appends,
    the_server_appends_to_ended_jobs,
);

fn line(output: &str) -> NewLine {
    NewLine {
        created_at: at(1),
        source: Source::Provisioner,
        level: Level::Info,
        stage: "Planning".to_owned(),
        output: output.to_owned(),
    }
}

async fn running(fixture: &Fixture) -> (JobId, DaemonId) {
    let daemon = fixture.daemon("one", &TagSet::untagged()).await;
    let job = fixture.job(&TagSet::untagged()).await;
    assert_eq!(fixture.claim(daemon, &[1]).await, Some(job));
    (job, daemon)
}

async fn append(
    fixture: &Fixture,
    job: JobId,
    daemon: DaemonId,
    lines: &[NewLine],
    cap: i64,
) -> jobs::logs::AppendOutcome {
    let now = fixture.tick();
    fixture.store.write(async |tx| jobs::logs::append(tx, job, daemon, lines, cap, now).await).await.unwrap()
}

async fn all(fixture: &Fixture, job: JobId) -> Vec<jobs::logs::Line> {
    jobs::logs::list(&mut fixture.store.reader().await.unwrap(), job, 0, usize::MAX, i64::MAX).await.unwrap()
}

async fn lines_are_numbered_from_one(fixture: Fixture) {
    let (job, daemon) = running(&fixture).await;
    let first = append(&fixture, job, daemon, &[line("a"), line("b\0")], DEFAULT_CAP_BYTES).await;
    let second = append(&fixture, job, daemon, &[line("c")], DEFAULT_CAP_BYTES).await;
    assert_eq!((first.first_id, first.last_id, second.first_id, second.last_id), (1, 2, 3, 3));
    let lines = all(&fixture, job).await;
    let found: Vec<_> = lines.iter().map(|line| (line.id, line.line.output.as_str())).collect();
    assert_eq!(found, [(1, "a"), (2, "b\u{fffd}"), (3, "c")]);
    assert_eq!(lines[0].line, line("a"));
    let mut tx = fixture.store.reader().await.unwrap();
    let after = jobs::logs::list(&mut tx, job, 1, 1, i64::MAX).await.unwrap();
    assert_eq!(after.iter().map(|line| line.id).collect::<Vec<_>>(), [2], "in the middle of a batch");
    assert_eq!(jobs::logs::list(&mut tx, job, 3, 10, i64::MAX).await.unwrap(), []);
    assert_eq!(jobs::logs::find_last(&mut tx, job).await.unwrap().unwrap().id, 3);
    assert_eq!(fixture.get_job(job).await.logs_bytes, 4);
}

async fn a_batch_costs_two_statements(fixture: Fixture) {
    let (job, daemon) = running(&fixture).await;
    let lines: Vec<_> = (0..1000).map(|number| line(&format!("line {number}"))).collect();
    let before = fixture.store.statement_counts();
    append(&fixture, job, daemon, &lines, DEFAULT_CAP_BYTES).await;
    assert_eq!(fixture.store.statement_counts().work - before.work, 2);
    append(&fixture, job, daemon, &[], DEFAULT_CAP_BYTES).await;
    assert_eq!(fixture.store.statement_counts().work - before.work, 3, "a bare heartbeat");
    assert_eq!(all(&fixture, job).await.len(), 1000);
}

async fn the_cap_is_announced_once(fixture: Fixture) {
    let (job, daemon) = running(&fixture).await;
    append(&fixture, job, daemon, &[line("12345")], 12).await;
    let over = append(&fixture, job, daemon, &[line("678"), line("too long for it"), line("x")], 12).await;
    assert_eq!((over.first_id, over.last_id, over.overflowed), (2, 3, true));
    let silent = append(&fixture, job, daemon, &[line("more")], 12).await;
    assert_eq!((silent.first_id, silent.last_id, silent.overflowed), (4, 3, true));
    let lines = all(&fixture, job).await;
    let texts: Vec<_> = lines.iter().map(|line| line.line.output.as_str()).collect();
    assert_eq!(texts[..2], ["12345", "678"]);
    assert_eq!(
        (texts.len(), lines[2].line.level, lines[2].line.source),
        (3, Level::Warn, Source::ProvisionerDaemon)
    );
    assert!(texts[2].contains("12 bytes"), "{}", texts[2]);
    let row = fixture.get_job(job).await;
    assert!(row.logs_overflowed);
    assert_eq!(row.updated_at, at(row.updated_at.as_second() - at(0).as_second()));
    let broken = check::check(&fixture.store).await.unwrap();
    assert!(broken.iter().all(|violation| !violation.invariant.contains("log")), "{broken:?}");
}

async fn pages_are_bounded_and_complete(fixture: Fixture) {
    let (job, daemon) = running(&fixture).await;
    // Lines of up to a megabyte, more rows than one page reads, and batches that are split.
    let mut sent = 0;
    for batch in 0..90 {
        let size = if batch % 30 == 0 { 1 << 20 } else { 10 };
        let lines: Vec<_> =
            (0..3).map(|number| line(&format!("{batch}.{number} {}", "x".repeat(size)))).collect();
        append(&fixture, job, daemon, &lines, DEFAULT_CAP_BYTES).await;
        sent += lines.len();
    }
    let mut tx = fixture.store.reader().await.unwrap();
    let (mut after, mut found) = (0, Vec::new());
    loop {
        let page = jobs::logs::list(&mut tx, job, after, 20, 2 << 20).await.unwrap();
        let bytes: usize = page.iter().map(|line| line.line.output.len()).sum();
        assert!(page.len() <= 20 && bytes < 4 << 20, "{} lines, {bytes} bytes", page.len());
        let Some(last) = page.last() else { break };
        after = last.id;
        found.extend(page.into_iter().map(|line| line.id));
    }
    assert_eq!(found, (1..=i64::try_from(sent).unwrap()).collect::<Vec<_>>());
    assert_eq!(
        jobs::logs::purge(&mut fixture.store.single().await.unwrap(), job).await.unwrap(),
        96,
        "split rows"
    );
}

async fn only_the_owner_appends(fixture: Fixture) {
    let (job, daemon) = running(&fixture).await;
    let other = fixture.daemon("two", &TagSet::untagged()).await;
    let mut tx = fixture.store.begin().await.unwrap();
    let refused = jobs::logs::append(&mut tx, job, other, &[line("a")], DEFAULT_CAP_BYTES, at(5)).await;
    assert!(matches!(refused, Err(Error::Stale { .. })));
    jobs::cancel(&mut tx, job, None, at(6)).await.unwrap();
    let appended =
        jobs::logs::append(&mut tx, job, daemon, &[line("a")], DEFAULT_CAP_BYTES, at(7)).await.unwrap();
    assert!(appended.cancel_requested);
    jobs::complete(&mut tx, job, daemon, at(8)).await.unwrap();
    let late = jobs::logs::append(&mut tx, job, daemon, &[line("a")], DEFAULT_CAP_BYTES, at(9)).await;
    assert!(matches!(late, Err(Error::Stale { .. })), "late lines are refused");
    tx.commit().await.unwrap();
}

async fn the_server_appends_to_ended_jobs(fixture: Fixture) {
    let (job, daemon) = running(&fixture).await;
    let mut tx = fixture.store.begin().await.unwrap();
    jobs::complete(&mut tx, job, daemon, at(8)).await.unwrap();
    let appended = jobs::logs::append_system(&mut tx, job, &[line("reaped"), line("")]).await.unwrap();
    assert_eq!((appended.first_id, appended.last_id), (1, 2));
    tx.commit().await.unwrap();
    assert_eq!(all(&fixture, job).await.len(), 2);
}
