//! Messages of daemons are not trusted: every call with the id of another daemon's job, an ended job, a forged id, and excessive
//! lengths is refused and changes nothing.

use std::collections::BTreeSet;

use bytes::Bytes;
use coder_domain::ids::{FileId, OrganizationId};
use coder_domain::job::Type;
use coder_store::jobs::NewJob;
use coder_store::{Document, organizations};
use coder_wire::extension::Journal;
use coder_wire::extension::messages::{HealthReport, SlotsReport, Verdict};
use coder_wire::messages::provisioner::DataUploadType;
use coder_wire::messages::provisionerd::{CommitQuotaRequest, failed_job};

use super::daemon_process::{DaemonConnection, JoinOptions, held, log};
use super::*;
use crate::harness::on_both_engines;

/// Calls with a job id. The others have a separate test below.
const OF_JOBS: [&str; 10] = [
    "CommitQuota",
    "UpdateJob",
    "FailJob",
    "CompleteJob",
    "Attach",
    "Hold",
    "Logs",
    "Journal",
    "Salvage",
    "ReportProgram",
];
/// Calls without a job id: they only wait, or they are checked against the jobs that the daemon holds.
const OTHER_CALLS: [&str; 7] = [
    "AcquireJob",
    "AcquireJobWithCancel",
    "UploadFile",
    "DownloadFile",
    "ReportSlots",
    "ReportHealth",
    "Notices",
];

/// Makes a call about a job. Returns the error text of the refusal.
async fn refusal(
    server: &TestServer,
    rpc: &str,
    connection: &DaemonConnection,
    id: &str,
    token: &Bytes,
) -> Option<String> {
    let job_id = id.to_owned();
    match rpc {
        "CommitQuota" => connection
            .calls
            .commit_quota(&CommitQuotaRequest { job_id, daily_cost: 1 })
            .await
            .err()
            .map(|error| error.to_string()),
        "UpdateJob" => {
            let request = UpdateJobRequest {
                job_id,
                logs: vec![line("forged")],
                readme: b"forged".as_slice().into(),
                ..UpdateJobRequest::default()
            };
            connection.calls.update_job(&request).await.err().map(|error| error.to_string())
        }
        "FailJob" => {
            let build = failed_job::WorkspaceBuild { state: b"forged".as_slice().into(), timings: vec![] };
            let r#type = Some(failed_job::Type::WorkspaceBuild(build));
            let failed = FailedJob { job_id, error: "forged".to_owned(), r#type, ..FailedJob::default() };
            connection.calls.fail_job(&failed).await.err().map(|error| error.to_string())
        }
        "CompleteJob" => {
            let import = completed_job::TemplateImport {
                start_resources: vec![resource("forged")],
                ..completed_job::TemplateImport::default()
            };
            let r#type = Some(completed_job::Type::TemplateImport(import));
            connection
                .calls
                .complete_job(&CompletedJob { job_id, r#type })
                .await
                .err()
                .map(|error| error.to_string())
        }
        "Attach" => {
            // On a separate connection, with the session of another daemon or an unknown one.
            let other = DaemonConnection::open(&server.app, JoinOptions::default()).await;
            let job = coder_wire::extension::messages::HeldJob { job_id, ..held(JobId::random(), token) };
            match other.attach(&Bytes::from(vec![3; 32]), vec![job]).await {
                Ok(answer) => {
                    let is_lost = answer.jobs.iter().all(|verdict| verdict.verdict() == Verdict::Lost);
                    is_lost.then(|| answer.jobs.iter().map(|verdict| verdict.reason.as_str()).collect())
                }
                Err(error) => Some(error.to_string()),
            }
        }
        "Hold" => {
            let request = coder_wire::extension::messages::HoldRequest { job_id };
            connection.ext.hold(&request).await.err().map(|error| error.to_string())
        }
        "Logs" => {
            let request = coder_wire::extension::messages::LogsRequest {
                job_id,
                token: token.clone(),
                first_sequence: 1,
                lines: vec![line("forged")],
            };
            connection.ext.logs(&request).await.err().map(|error| error.to_string())
        }
        "Journal" | "Salvage" => {
            let journal = Journal {
                job_id,
                token: token.clone(),
                serial: 99,
                lineage: "a".to_owned(),
                state: Bytes::from_static(b"{}"),
            };
            let sent = if rpc == "Journal" {
                connection.ext.journal(&journal).await
            } else {
                connection.ext.salvage(&journal).await
            };
            sent.err().map(|error| error.to_string())
        }
        "ReportProgram" => {
            let report = coder_wire::extension::messages::ProgramReport {
                job_id,
                token: token.clone(),
                product: "terraform".to_owned(),
                version: "9.9.9".to_owned(),
            };
            connection.ext.report_program(&report).await.err().map(|error| error.to_string())
        }
        other => panic!("no case for {other}"),
    }
}

/// A job of another organization.
async fn foreign(server: &TestServer, owner: &str, file: FileId) -> JobId {
    let now = server.app.now();
    let id = OrganizationId::random();
    let organization = organizations::Organization {
        id,
        name: format!("o-{}", &id.to_string()[24..]),
        display_name: String::new(),
        description: String::new(),
        icon: String::new(),
        is_default: false,
        created_at: now,
        updated_at: now,
    };
    let job = NewJob {
        id: JobId::random(),
        organization_id: organization.id,
        initiator_id: server.user_id(owner).await,
        automatic: false,
        kind: Type::TemplateVersionDryRun,
        provisioner: "terraform".to_owned(),
        file_id: file,
        tags: TagSet::untagged(),
        template_version_id: None,
        workspace_build_id: None,
        input: Document::default(),
        trace_metadata: BTreeMap::new(),
    };
    let mut tx = server.app.store.begin().await.unwrap();
    organizations::insert(&mut tx, &organization).await.unwrap();
    jobs::insert(&mut tx, &job, now).await.unwrap();
    tx.commit().await.unwrap();
    job.id
}

/// How a name or a secret in a message is checked.
#[derive(Debug)]
enum Proof {
    /// Only the server sends it.
    Ours,
    /// Must be a job that the connection holds. Tested by the matrix of this file.
    Job,
    /// A secret that the server created for this job or session. Tested by the matrix of this file.
    Secret,
    /// Compared with the content in the same message.
    Content,
    /// `files_are_for_jobs_that_need_them`, `a_hash_of_somebody_elses_file_gives_no_file`.
    File,
    /// Stored as content of the template. It refers to no object of the server: the server creates the ids of rows.
    Words,
    /// Messages between an official daemon and its Terraform process, which no peer of the server sends.
    Unused,
}

/// Every field that identifies or proves something, in messages of both directions.
const NAMES: [(&str, Proof); 52] = {
    use Proof::{Content, File, Job, Ours, Secret, Unused, Words};
    [
        ("InstanceIdentityAuth.instance_id", Words),
        ("ExternalAuthProviderResource.id", Words),
        ("ExternalAuthProvider.id", Ours),
        ("ExternalAuthProvider.access_token", Ours),
        ("Agent.id", Words),
        ("Agent.token", Words),
        ("Agent.instance_id", Words),
        ("App.id", Words),
        ("Role.org_id", Ours),
        ("RunningAgentAuthToken.agent_id", Ours),
        ("RunningAgentAuthToken.token", Ours),
        ("AITaskSidebarApp.id", Words),
        ("AITask.id", Words),
        ("AITask.app_id", Words),
        ("Metadata.workspace_id", Ours),
        ("Metadata.workspace_owner_id", Ours),
        ("Metadata.workspace_owner_oidc_access_token", Ours),
        ("Metadata.workspace_owner_session_token", Ours),
        ("Metadata.template_id", Ours),
        ("Metadata.workspace_build_id", Ours),
        ("Metadata.task_id", Ours),
        ("Metadata.template_version_id", Ours),
        ("Config.template_id", Unused),
        ("Config.template_version_id", Unused),
        ("InitRequest.initial_module_tar_hash", Unused),
        ("InitComplete.module_files_hash", Unused),
        ("DataUpload.data_hash", Content),
        ("ChunkPiece.full_data_hash", Content),
        ("WorkspaceBuild.workspace_build_id", Ours),
        ("AcquiredJob.job_id", Ours),
        ("FailedJob.job_id", Job),
        ("TemplateImport.module_files_hash", File),
        ("CompletedJob.job_id", Job),
        ("UpdateJobRequest.job_id", Job),
        ("CommitQuotaRequest.job_id", Job),
        ("FileRequest.file_id", File),
        ("HeldJob.job_id", Job),
        ("HeldJob.token", Secret),
        ("AttachRequest.session", Secret),
        ("JobVerdict.job_id", Ours),
        ("JobVerdict.token", Ours),
        ("AttachResponse.session", Ours),
        ("HoldRequest.job_id", Job),
        ("HoldResponse.token", Ours),
        ("LogsRequest.job_id", Job),
        ("LogsRequest.token", Secret),
        ("JournalHeader.job_id", Job),
        ("JournalHeader.token", Secret),
        ("ProgramReport.job_id", Job),
        ("ProgramReport.token", Secret),
        ("JobCancel.job_id", Ours),
        ("JobRevoked.job_id", Ours),
    ]
};

/// Every field of the protocol files that identifies something is in this list, with its check.
#[test]
fn every_name_in_a_message_has_its_proof() {
    let protos = [
        include_str!("../../../../../proto/provisioner.proto"),
        include_str!("../../../../../proto/provisionerd.proto"),
        include_str!("../../../../../proto/provisionerext.proto"),
    ];
    let mut found = BTreeSet::new();
    for text in protos {
        let mut messages = Vec::new();
        for line in text.lines() {
            let words: Vec<_> = line.split_whitespace().take_while(|word| !word.starts_with("//")).collect();
            match words[..] {
                ["message" | "enum" | "service" | "oneof", name, "{"] => messages.push((words[0], name)),
                ["message" | "enum" | "service" | "oneof", _, "{", ..] => {}
                ["}"] => {
                    messages.pop();
                }
                ["string" | "bytes", name, "=", ..]
                | ["optional" | "repeated", "string" | "bytes", name, "=", ..] => {
                    let last = name.rsplit('_').next().unwrap();
                    if matches!(last, "id" | "hash" | "token" | "session") {
                        let message = messages.iter().rev().find(|(kind, _)| *kind == "message").unwrap().1;
                        found.insert(format!("{message}.{name}"));
                    }
                }
                _ => {}
            }
        }
    }
    let known: BTreeSet<_> = NAMES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, known);
}

#[tokio::test]
async fn a_hash_of_somebody_elses_file_gives_no_file() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let (version, posted) = import(&server, &owner, json!({})).await;
    let daemon = Daemon::untagged(&server, "d").await;
    daemon.take(posted).await;
    // The hash of a template's source is not secret, and the source is stored.
    let sources = crate::harness::tar(&[("main.tf", "resource {}")]);
    for hash in [coder_wire::file::hash(&sources).to_vec(), vec![0; 32], vec![0; 31], vec![0; 1 << 20]] {
        let import = completed_job::TemplateImport { module_files_hash: hash, ..Default::default() };
        let r#type = Some(completed_job::Type::TemplateImport(import));
        let outcome = daemon.calls.complete_job(&CompletedJob { job_id: posted.to_string(), r#type }).await;
        assert!(refused(outcome).len() < 1000);
    }
    let mut tx = server.app.store.reader().await.unwrap();
    assert_eq!(
        coder_store::templates::version_details::find_module_file(&mut tx, version).await.unwrap(),
        None
    );
    drop(tx);
    assert_eq!(status(&job(&server, posted).await), Status::Running);
}

#[test]
fn the_matrix_has_every_call() {
    let protos = [
        include_str!("../../../../../proto/provisionerd.proto"),
        include_str!("../../../../../proto/provisionerext.proto"),
    ];
    let named = protos.iter().flat_map(|text| text.lines());
    let named = named.filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
    let named: BTreeSet<_> = named.collect();
    let covered: BTreeSet<_> = OF_JOBS.into_iter().chain(OTHER_CALLS).collect();
    assert_eq!(named, covered);
}

on_both_engines! {
    async fn every_call_about_somebody_elses_job_is_refused_and_changes_nothing(server: TestServer) {
        let owner = server.owner().await;
        // The forger's own job.
        let own = import(&server, &owner, json!({})).await.1;
        let (forger, _) = DaemonConnection::fresh(&server.app, "d").await;
        forger.take(own).await;
        let token = forger.hold(own).await.unwrap().token;
        // The attacked jobs: of another daemon with and without a session, ended, waiting, and of another organization.
        let ours = import(&server, &owner, json!({})).await.1;
        let (holder, _) = DaemonConnection::fresh(&server.app, "holder").await;
        holder.take(ours).await;
        let its_token = holder.hold(ours).await.unwrap().token;
        let theirs = import(&server, &owner, json!({})).await.1;
        let official = Daemon::untagged(&server, "official").await;
        official.take(theirs).await;
        let ended = import(&server, &owner, json!({})).await.1;
        forger.take(ended).await;
        let old_token = forger.hold(ended).await.unwrap().token;
        forger.calls.complete_job(&import_result(ended, vec![])).await.unwrap();
        let file = job(&server, own).await.file_id;
        let elsewhere = foreign(&server, &owner, file).await;
        let waiting = import(&server, &owner, json!({})).await.1;

        let victims = [ours, theirs, ended, elsewhere, waiting];
        let look = async || {
            let mut rows = Vec::new();
            for id in victims.into_iter().chain([own]) {
                rows.push((job(&server, id).await, log(&server.app, id).await));
            }
            rows
        };
        let before = look().await;
        let absurd = "9".repeat(1 << 20);
        let forged = [String::new(), "nonsense".to_owned(), JobId::random().to_string(), "\0".to_owned(), absurd];
        let tokens = [token.clone(), its_token, old_token, Bytes::new(), vec![7; 64].into(), vec![7; 1 << 20].into()];
        for rpc in OF_JOBS {
            let named = victims.iter().map(ToString::to_string).chain(forged.iter().cloned());
            for id in named {
                for token in &tokens {
                    // Messages of the holder itself are accepted.
                    let short: String = id.chars().take(40).collect();
                    let said = refusal(&server, rpc, &forger, &id, token).await;
                    assert!(said.is_some(), "{rpc} {short:?}");
                    if !matches!(rpc, "Logs" | "Journal" | "Salvage" | "Attach") {
                        break;
                    }
                }
            }
        }
        assert_eq!(look().await, before);
        forger.update(own).await.unwrap();
        holder.update(ours).await.unwrap();
        official.update(theirs, 0).await.unwrap();
    }
}

on_both_engines! {
    /// Daemons do not learn whether a job of another organization exists or how far it is. The daemon of one user does
    /// not learn this about jobs of other users.
    async fn a_refusal_tells_nothing_of_a_job_that_the_daemon_may_not_know(server: TestServer) {
        let owner = server.owner().await;
        let file = server.file(&owner).await;
        let member = server.user(&owner, "dev", &[]).await;
        let member = server.user_id(&member).await;
        let (mut elsewhere, mut here) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            elsewhere.push(foreign(&server, &owner, file).await);
            here.push(import(&server, &owner, json!({ "environment": "none" })).await.1);
        }
        for jobs in [&elsewhere, &here] {
            // The first one waits, the second one runs, the third one has ended.
            let worker = DaemonId::random();
            let running = format!("started_us = 1, worker_id = '{worker}'");
            server.execute(&format!("update provisioner_jobs set {running} where id = '{}'", jobs[1])).await;
            server.execute(&format!("update provisioner_jobs set {running} where id = '{}'", jobs[2])).await;
            let ended = "completed_us = 2, error = 'secret'";
            server.execute(&format!("update provisioner_jobs set {ended} where id = '{}'", jobs[2])).await;
        }
        let (shared, _) = DaemonConnection::fresh(&server.app, "shared").await;
        let scope = BTreeMap::from([("scope".to_owned(), "user".to_owned())]);
        let tags = TagSet::canonical(member, [&scope]);
        let options = JoinOptions { name: "personal", user: Some(member), tags, ..JoinOptions::default() };
        let personal = DaemonConnection::open(&server.app, options).await;
        personal.attach(&Bytes::new(), vec![]).await.unwrap();
        let token = Bytes::from(vec![7; 64]);
        let nothing = JobId::random();
        for (connection, hidden) in [(&shared, elsewhere.clone()), (&personal, [elsewhere, here].concat())] {
            for rpc in OF_JOBS {
                let said = async |id: JobId| {
                    let said = refusal(&server, rpc, connection, &id.to_string(), &token).await;
                    said.unwrap_or_else(|| panic!("{rpc} was accepted")).replace(&id.to_string(), "ID")
                };
                let want = said(nothing).await;
                for id in &hidden {
                    assert_eq!(said(*id).await, want, "{rpc}");
                }
            }
        }
    }
}

#[tokio::test]
async fn files_are_for_jobs_that_need_them_and_numbers_are_bounded() {
    use DataUploadType::UploadTypeModuleFiles as MODULES;
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let (connection, _) = DaemonConnection::fresh(&server.app, "d").await;
    let data = Bytes::from_static(b"modules");
    assert!(connection.calls.upload_file(MODULES, data.clone()).await.is_err(), "the daemon holds no import");
    let sources = server.file(&owner).await.to_string();
    let absurd = "9".repeat(1 << 20);
    for file in [sources.as_str(), "", "nonsense", "00000000-0000-0000-0000-000000000009", &absurd] {
        assert!(connection.calls.download_file(file, MODULES).await.is_err());
    }
    let report = SlotsReport { slots: u32::MAX, busy: u32::MAX, draining: true };
    assert!(connection.ext.report_slots(&report).await.is_err());
    let at_most = |problem: usize, detail: usize| HealthReport {
        problem: "p".repeat(problem),
        detail: "d".repeat(detail),
    };
    for absurd in [
        at_most(65, 0),
        at_most(1, 1025),
        at_most(1 << 20, 1 << 20),
        HealthReport { problem: String::new(), detail: "without a problem".to_owned() },
        HealthReport { problem: "red\u{1b}[31m".to_owned(), detail: String::new() },
        HealthReport { problem: "x".to_owned(), detail: "two\nlines".to_owned() },
    ] {
        assert!(connection.ext.report_health(&absurd).await.is_err());
    }
    let row =
        daemons::find(&mut server.app.store.reader().await.unwrap(), connection.id).await.unwrap().unwrap();
    assert_eq!((row.slots, row.busy, row.draining), (1, 0, false));
    assert_eq!((row.problem.as_str(), row.problem_detail.as_str()), ("", ""));
    connection.ext.report_health(&at_most(64, 1024)).await.unwrap();
    // Extension calls do not exist for a daemon without granted extensions.
    let official = Daemon::untagged(&server, "official").await;
    let ext = coder_wire::extension::Client::new(official.calls.session().clone());
    assert!(
        ext.hold(&coder_wire::extension::messages::HoldRequest { job_id: JobId::random().to_string() })
            .await
            .is_err()
    );
    assert!(ext.notifications().await.unwrap().next().await.is_err());
}
