//! Journals of states and numbered log lines: repeated messages are accepted, and late ones are refused.

use coder_domain::build::Transition;
use coder_domain::ids::JobId;
use coder_domain::key::Sha256Digest;
use coder_domain::tags::TagSet;
use coder_store::jobs::journals::{self, JournalEntry, PutOutcome, StateVersion};
use coder_store::jobs::logs::{Level, NewLine, Source};
use coder_store::workspaces::builds;
use coder_store::{Error, Tx, jobs};
use jiff::Timestamp;

use crate::fixture::{Fixture, at, on_both_engines};
use crate::templates::{new_template, new_version};
use crate::workspaces::{end, new_build, new_workspace};

on_both_engines!(the_newest_state_is_kept, a_repeated_batch_is_stored_once);

async fn put(
    tx: &mut Tx,
    job: JobId,
    entry: &JournalEntry,
    base: Option<&StateVersion>,
    now: Timestamp,
) -> coder_store::Result<PutOutcome> {
    journals::put(tx, job, &entry.version, entry.state.clone(), base, now).await
}

fn entry(serial: i64, lineage: &str, text: &str) -> JournalEntry {
    let version = StateVersion { serial, lineage: lineage.to_owned(), sha256: Sha256Digest::of(text) };
    JournalEntry { version, cipher: String::new(), state: text.as_bytes().to_vec() }
}

async fn the_newest_state_is_kept(fixture: Fixture) {
    let version = new_version(&fixture, "v1").await;
    let template = new_template(&fixture, "docker", &version).await;
    end(&fixture, version.job_id).await;
    let workspace = new_workspace(&fixture, &template, "dev").await.id;
    let (build, job, _) = new_build(&fixture, &template, workspace, Transition::Start).await.unwrap();
    let mut tx = fixture.store.begin().await.unwrap();
    let base = entry(3, "l", "base").version;
    let kept = |serial| PutOutcome { kept: true, serial };
    let old = |serial| PutOutcome { kept: false, serial };
    assert!(!journals::apply(&mut tx, job, build).await.unwrap(), "nothing to apply");
    for (entry, want) in [
        (entry(2, "l", "old"), old(3)),
        (entry(3, "l", "base"), old(3)),
        (entry(9, "other", "x"), old(3)),
        (entry(3, "l", "same serial, other bytes"), kept(3)),
        (entry(5, "l", "newer"), kept(5)),
        (entry(5, "l", "newer"), kept(5)),
        (entry(4, "l", "late"), old(5)),
        (entry(9, "other", "x"), old(5)),
    ] {
        assert_eq!(put(&mut tx, job, &entry, Some(&base), at(5)).await.unwrap(), want, "{entry:?}");
    }
    let found = journals::find(&mut tx, job).await.unwrap().unwrap();
    assert_eq!(found, entry(5, "l", "newer"));
    assert!(!format!("{found:?}").contains("110, 101"), "states hold secrets");
    assert!(journals::apply(&mut tx, job, build).await.unwrap());
    assert_eq!(builds::find_state(&mut tx, build).await.unwrap().as_deref(), Some(b"newer".as_slice()));
    journals::delete(&mut tx, job).await.unwrap();
    journals::delete(&mut tx, job).await.expect("there may be none");
    assert_eq!(journals::find(&mut tx, job).await.unwrap(), None);
    // A job that started without a state accepts any lineage at first, and then only that one.
    assert_eq!(put(&mut tx, job, &entry(1, "new", "a"), None, at(6)).await.unwrap(), kept(1));
    assert_eq!(put(&mut tx, job, &entry(8, "l", "b"), None, at(6)).await.unwrap(), old(1));
    tx.commit().await.unwrap();
    end(&fixture, job).await;
    let mut tx = fixture.store.single().await.unwrap();
    assert_eq!(journals::purge(&mut tx, at(0)).await.unwrap(), 0);
    assert_eq!(journals::purge(&mut tx, at(100_000)).await.unwrap(), 1);
}

fn lines(texts: &[&str]) -> Vec<NewLine> {
    let line = |text: &&str| NewLine {
        created_at: at(1),
        source: Source::Provisioner,
        level: Level::Info,
        stage: String::new(),
        output: (*text).to_owned(),
    };
    texts.iter().map(line).collect()
}

async fn stored(fixture: &Fixture, job: JobId) -> Vec<String> {
    let mut tx = fixture.store.reader().await.unwrap();
    let lines = jobs::logs::list(&mut tx, job, 0, 100, 1 << 20).await.unwrap();
    lines.into_iter().map(|line| line.line.output).collect()
}

async fn a_repeated_batch_is_stored_once(fixture: Fixture) {
    let daemon = fixture.daemon("one", &TagSet::untagged()).await;
    let job = fixture.job(&TagSet::untagged()).await;
    fixture.claim_as(daemon, Some(Sha256Digest::of("s")), &[1]).await.unwrap();
    let holder = jobs::Holder::session(daemon, 1);
    let send = async |first: i64, texts: &[&str], cap: i64| {
        let mut tx = fixture.store.begin().await.unwrap();
        let done = jobs::logs::append_numbered(&mut tx, job, holder, first, &lines(texts), cap, at(9)).await;
        tx.commit().await.unwrap();
        done.map(|done| (done.next_sequence, done.appended.overflowed))
    };
    assert_eq!(send(1, &["a", "a"], 100).await.unwrap(), (3, false));
    assert_eq!(send(1, &["a", "a"], 100).await.unwrap(), (3, false), "the answer was lost");
    assert_eq!(
        send(2, &["x", "b", "c"], 100).await.unwrap(),
        (5, false),
        "only what is new, whatever its text"
    );
    assert_eq!(send(7, &["z"], 100).await.unwrap(), (5, false), "a gap");
    assert_eq!(send(0, &["z"], 100).await.unwrap(), (5, false));
    assert_eq!(send(i64::MAX, &["z"], 100).await.unwrap(), (5, false));
    assert_eq!(send(i64::MIN, &["z"], 100).await.unwrap(), (5, false));
    assert_eq!(send(5, &[], 100).await.unwrap(), (5, false));
    assert_eq!(stored(&fixture, job).await, ["a", "a", "b", "c"]);
    // A line of the server has no daemon number.
    let mut tx = fixture.store.begin().await.unwrap();
    jobs::logs::append_system(&mut tx, job, &lines(&["server"])).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(send(5, &["d"], 100).await.unwrap(), (6, false));
    assert_eq!(send(6, &["0123456789"], 12).await.unwrap(), (7, true), "acknowledged, not kept");
    assert_eq!(send(7, &["f", "g"], 12).await.unwrap(), (9, true));
    assert_eq!(send(7, &["f", "g"], 12).await.unwrap(), (9, true));
    let found = stored(&fixture, job).await;
    assert_eq!(found[..6], ["a", "a", "b", "c", "server", "d"]);
    assert_eq!(found.len(), 7, "and the notice");
    let late = send(9, &["h"], 12);
    let mut tx = fixture.store.begin().await.unwrap();
    jobs::complete(&mut tx, job, holder, at(10)).await.unwrap();
    tx.commit().await.unwrap();
    assert!(matches!(late.await, Err(Error::Stale { .. })));
}
