//! Extensions: jobs that survive a lost connection, states that are sent while Terraform works, and
//! notifications of the server.

use std::path::Path;
use std::time::Duration;

use coder_testkit::wait::eventually;
use coder_wire::extension::messages::notification::Notification as Kind;
use coder_wire::extension::messages::{Drain, JobCancel, JobRevoked, SlotsReport, Verdict};
use coder_wire::extension::{Extension, Extensions};

use crate::fake_server::{Record, Server};
use crate::fixture::{PLAIN, Running, start, tar};

/// Prints a line, waits for a file, and prints more lines.
fn waiting(release: &Path) -> String {
    let release = release.display();
    format!(
        "resource \"terraform_data\" \"first\" {{ input = \"made\" }}\n\
         resource \"terraform_data\" \"a\" {{\n  depends_on = [terraform_data.first]\n  provisioner \"local-exec\" {{\n    \
         command = \"echo waiting; for i in 1 2 3; do echo same; done; until test -e {release}; do sleep 0.05; done; for i in 1 2 3; do echo same; done; echo released\"\n  }}\n}}\n"
    )
}

/// A daemon in the middle of an apply, with granted extensions; the file releases it.
async fn in_mid_apply(granted: Extensions) -> (Server, Running, std::path::PathBuf, String) {
    let server = Server::new();
    server.extended().grant(granted);
    let running = Running::start(&server);
    let release = running.dir.path().join("release");
    let job = start(tar(&[("main.tf", &waiting(&release))]));
    let id = job.job_id.clone();
    server.give(job);
    server.wait_for("the provisioner", |record| record.has_line("(local-exec): waiting")).await;
    (server, running, release, id)
}

fn same(record: &Record) -> usize {
    record.lines().filter(|line| line.output.ends_with("(local-exec): same")).count()
}

/// The log of each job is the same with all extensions, with none, and without any single one.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_on_over_a_cut_with_each_extension_refused_singly() {
    coder_requirements::require!(Terraform);
    let singly = Extension::ALL.map(|extension| Extensions::ALL.without(extension));
    for granted in singly.into_iter().chain([Extensions::ALL, Extensions::NONE]) {
        let (server, running, release, id) = in_mid_apply(granted).await;
        server.go_down().await;
        running.status.wait_for(|status| !status.connected).await.unwrap();
        std::fs::write(&release, "").unwrap();
        server.come_back();
        let (record, _) = server.completed().await;
        assert!(record.has_line("(local-exec): released"), "{granted:?}");
        assert_eq!(record.completed.len(), 1, "{granted:?}");
        // Without sequence numbers a batch that was cut may be stored twice: the official rule.
        let lines = same(&record);
        assert!(if granted.has(Extension::Logs) { lines == 6 } else { lines >= 6 }, "{granted:?}: {lines}");
        assert_eq!(record.numbered > 0, granted.has(Extension::Logs), "{granted:?}");
        assert_eq!(!record.journals.is_empty(), granted.has(Extension::Journal), "{granted:?}");
        assert_eq!(!record.slots.is_empty(), granted.has(Extension::Slots), "{granted:?}");
        assert_eq!(record.programs.len(), usize::from(granted.has(Extension::Program)), "{granted:?}");
        assert!(record.programs.iter().all(|report| report.job_id == id && report.product == "terraform"));
        let asked = record.attaches.iter().flat_map(|attach| &attach.jobs).any(|job| job.job_id == id);
        assert_eq!(asked, granted.has(Extension::Resume), "{granted:?}");
        assert_eq!(running.status.get().reconnects, 1, "{granted:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_is_presented_again_and_the_token_that_counts_is_the_newest() {
    coder_requirements::require!(Terraform);
    let (server, running, release, id) = in_mid_apply(Extensions::ALL).await;
    for count in 1..=3 {
        server.cut().await;
        running.status.wait_for(|status| status.connected && status.reconnects == count).await.unwrap();
    }
    std::fs::write(&release, "").unwrap();
    let (record, _) = server.completed().await;
    assert!(record.attaches[0].session.is_empty() && record.attaches[0].jobs.is_empty());
    for (index, attach) in record.attaches[1..].iter().enumerate() {
        assert_eq!(attach.session, vec![1; 32]);
        assert_eq!(
            (attach.jobs[0].job_id.as_str(), attach.jobs[0].token.as_ref()),
            (id.as_str(), format!("token {index}").as_bytes())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_whose_acknowledgement_was_lost_are_stored_once() {
    coder_requirements::require!(Terraform);
    let (server, _running, release, _) = in_mid_apply(Extensions::ALL).await;
    server.extended().lose_answers(3);
    std::fs::write(&release, "").unwrap();
    let (record, _) = server.completed().await;
    assert_eq!(same(&record), 6, "identical lines included");
    let numbered: usize = record.updates.iter().map(|update| update.logs.len()).sum();
    assert_eq!(numbered, record.numbered, "no line came twice, and none by another way");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_is_recorded_already_is_thrown_away() {
    coder_requirements::require!(Terraform);
    let (server, mut running, release, id) = in_mid_apply(Extensions::ALL).await;
    server.go_down().await;
    std::fs::write(&release, "").unwrap();
    server.extended().end(&id, Verdict::Ended, "completed");
    server.come_back();
    running.status.wait_for(|status| status.jobs.is_empty()).await.unwrap();
    running.shutdown.drain();
    running.ended().await.unwrap();
    assert!(!server.record().is_over(), "nothing is reported");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_job_is_interrupted_and_its_state_is_salvaged() {
    coder_requirements::require!(Terraform);
    let (server, running, _release, id) = in_mid_apply(Extensions::ALL).await;
    server.go_down().await;
    server.extended().end(&id, Verdict::Lost, "daemon lost");
    server.come_back();
    let record = server.wait_for("the state", |record| !record.salvages.is_empty()).await;
    let salvaged = &record.salvages[0];
    assert_eq!(salvaged.job_id, id);
    assert!(String::from_utf8_lossy(&salvaged.state).contains("\"made\""));
    running.status.wait_for(|status| status.jobs.is_empty()).await.unwrap();
    assert!(!server.record().is_over(), "nothing is reported");
    assert_eq!(running.sessions(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_job_leaves_its_state_on_this_machine() {
    coder_requirements::require!(Terraform);
    let (server, running, _release, id) = in_mid_apply(Extensions::ALL.without(Extension::Journal)).await;
    let revoked = JobRevoked { job_id: id, reason: "the key was deleted".to_owned() };
    server.extended().say(Kind::JobRevoked(revoked));
    running.status.wait_for(|status| status.jobs.is_empty()).await.unwrap();
    assert!(!server.record().is_over(), "nothing is reported");
    assert_eq!(running.sessions(), 1, "the state is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_arrives_at_once_and_a_forced_one_kills() {
    coder_requirements::require!(Terraform);
    for force in [false, true] {
        let (server, running, _release, id) = in_mid_apply(Extensions::ALL).await;
        // A notification for an unknown job has no effect.
        let other = JobCancel { job_id: "other".to_owned(), reason: String::new(), force: true };
        server.extended().say(Kind::JobCancel(other));
        server.extended().say(Kind::JobCancel(JobCancel { job_id: id, reason: "user".to_owned(), force }));
        let (_, failed) = server.failed().await;
        let wanted = if force { "terraform apply: signal 9" } else { "terraform apply: exit status 1" };
        assert!(failed.error.starts_with(wanted), "{}", failed.error);
        running.status.wait_for(|status| status.jobs.is_empty()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_was_asked_for_while_away_arrives_with_the_verdict() {
    coder_requirements::require!(Terraform);
    let (server, _running, _release, id) = in_mid_apply(Extensions::NONE.with(Extension::Resume)).await;
    server.extended().cancel(&id);
    server.cut().await;
    let (_, failed) = server.failed().await;
    assert!(failed.error.starts_with("terraform apply: exit status 1"), "{}", failed.error);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_can_ask_for_a_drain_and_sees_the_slots() {
    coder_requirements::require!(Terraform);
    let (server, mut running, release, _) = in_mid_apply(Extensions::ALL).await;
    server.extended().say(Kind::Drain(Drain { reason: "maintenance".to_owned() }));
    let record =
        server.wait_for("the report", |record| record.slots.iter().any(|report| report.draining)).await;
    assert_eq!(record.slots.last(), Some(&SlotsReport { slots: 1, busy: 1, draining: true }));
    assert!(
        record.slots.windows(2).all(|pair| pair[0] != pair[1]),
        "only changes are reported: {:?}",
        record.slots
    );
    server.give(start(tar(&[("main.tf", PLAIN)])));
    std::fs::write(&release, "").unwrap();
    running.ended().await.unwrap();
    assert_eq!((server.record().completed.len(), server.record().acquires), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_away_for_longer_than_the_grace_ends_its_job() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    server.extended().grant(Extensions::ALL);
    *server.extended().grace_ms.lock().unwrap() = 500;
    let running = Running::start(&server);
    let release = running.dir.path().join("release");
    server.give(start(tar(&[("main.tf", &waiting(&release))])));
    server.wait_for("the provisioner", |record| record.has_line("(local-exec): waiting")).await;
    server.go_down().await;
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    while running.at_work() > 0 {
        assert!(tokio::time::Instant::now() < until, "the job is ended");
        tokio::task::yield_now().await;
    }
    server.come_back();
    let (_, failed) = server.failed().await;
    assert!(failed.error.starts_with("send periodic update: no connection"), "{}", failed.error);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_for_one_job_ends_after_it() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    let mut running = Running::with(&server, |config, _| config.once = true);
    for _ in 0..2 {
        server.give(start(tar(&[("main.tf", PLAIN)])));
    }
    running.ended().await.unwrap();
    assert_eq!((server.record().completed.len(), server.record().acquires), (1, 1));
}

/// How often a connection is cut; 50 for the long form.
fn cuts() -> usize {
    std::env::var("CODER_TEST_CUTS").ok().and_then(|count| count.parse().ok()).unwrap_or(8)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_cuts_lose_no_line_and_repeat_none() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    server.extended().grant(Extensions::ALL);
    let running = Running::start(&server);
    let (end, progress) = (running.dir.path().join("end"), running.dir.path().join("progress"));
    let template = format!(
        "resource \"terraform_data\" \"a\" {{\n  provisioner \"local-exec\" {{\n    command = \"i=0; until test -e {}; do i=$((i+1)); echo line $i; echo same; printf . >> {}; sleep 0.01; done; echo total $i\"\n  }}\n}}\n",
        end.display(),
        progress.display()
    );
    let printed = || std::fs::metadata(&progress).map_or(0, |file| file.len());
    server.give(start(tar(&[("main.tf", &template)])));
    server.wait_for("the provisioner", |record| record.has_line("(local-exec): line 1")).await;
    for count in 1..=cuts() {
        // At points that are spread over the lines of a batch, which is sent every 250 ms.
        let point = printed() + count as u64 * 7 % 25;
        eventually("further lines", || printed() >= point).await;
        server.cut().await;
        let reached =
            |status: &coder_provisioner::Status| status.connected && status.reconnects >= count as u64;
        running.status.wait_for(reached).await.unwrap();
    }
    std::fs::write(&end, "").unwrap();
    let (record, _) = server.completed().await;
    let said: Vec<&str> = record
        .lines()
        .filter_map(|line| line.output.split_once("(local-exec): ").map(|(_, said)| said))
        .collect();
    let total = said.last().and_then(|line| line.strip_prefix("total ")).unwrap().parse::<usize>().unwrap();
    let wanted = (1..=total).flat_map(|index| [format!("line {index}"), "same".to_owned()]);
    let lines: Vec<&str> = said[1..said.len() - 1].to_vec();
    assert_eq!(lines, wanted.collect::<Vec<_>>(), "first {:?}", said[0]);
}
