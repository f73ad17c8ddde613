//! Waiting for jobs: immediate wake-up, one owner, and the races at the end of a wait. No background task runs here, so
//! daemons get jobs only by wake-ups.

use std::collections::HashSet;
use std::sync::Arc;

use coder_server::provisioning::dispatch::scheduler::AcquireOutcome;
use coder_server::provisioning::dispatch::wait_queue::Domain;
use coder_wire::messages::provisioner::WorkspaceTransition;
use coder_wire::messages::provisionerd::acquired_job::Type;

use super::*;
use crate::harness::{on_both_engines, tar};

on_both_engines! {
    async fn a_posted_job_wakes_a_waiting_daemon(server: TestServer) {
        let owner = server.owner().await;
        let daemon = Daemon::untagged(&server, "d").await;
        let waiting = daemon.acquire();
        let posting = async {
            // Let the daemon wait first.
            while server.app.scheduler.size().0 == 0 {
                tokio::task::yield_now().await;
            }
            import(&server, &owner, json!({})).await.1
        };
        let (got, posted) = tokio::join!(waiting, posting);
        assert_eq!(got.job_id, posted.to_string());
        let taken = job(&server, posted).await;
        assert_eq!(taken.worker_id, Some(daemon.id));
        assert_eq!(status(&taken), Status::Running);
    }

    async fn conf_12_only_matching_daemons_get_a_job(server: TestServer) {
        let owner = server.owner().await;
        let tagged = Daemon::tagged(&server, "tagged", &[("environment", "on_prem")]).await;
        let plain = Daemon::untagged(&server, "plain").await;
        let (tagged_gets, plain_gets) = (tagged.acquire(), plain.acquire());
        let posting = async {
            while server.app.scheduler.size().0 < 2 {
                tokio::task::yield_now().await;
            }
            let untagged = import(&server, &owner, json!({})).await.1;
            (untagged, import(&server, &owner, json!({"environment": "on_prem"})).await.1)
        };
        let (tagged_got, plain_got, (untagged, on_prem)) = tokio::join!(tagged_gets, plain_gets, posting);
        assert_eq!(tagged_got.job_id, on_prem.to_string());
        assert_eq!(plain_got.job_id, untagged.to_string());
    }

    async fn no_job_is_handed_out_twice_and_none_is_forgotten(server: TestServer) {
        let owner = server.owner().await;
        let mut posted = HashSet::new();
        for _ in 0..12 {
            posted.insert(import(&server, &owner, json!({})).await.1.to_string());
        }
        let mut daemons = Vec::new();
        for number in 0..12 {
            daemons.push(Daemon::untagged(&server, &format!("d{number}")).await);
        }
        let all = futures_util::future::join_all(daemons.iter().map(Daemon::acquire)).await;
        let got: HashSet<_> = all.into_iter().map(|job| job.job_id).collect();
        assert_eq!(got, posted);
    }

    async fn conf_11_a_job_canceled_while_it_waited_is_never_handed_out(server: TestServer) {
        let owner = server.owner().await;
        let (version, canceled) = import(&server, &owner, json!({})).await;
        cancel(&server, &owner, version).await;
        let next = import(&server, &owner, json!({})).await.1;
        Daemon::untagged(&server, "d").await.take(next).await;
        assert_eq!(status(&job(&server, canceled).await), Status::Canceled);
    }
}

#[tokio::test]
async fn a_canceled_wait_ends_without_a_job() {
    let server = TestServer::sqlite().await;
    let daemon = Daemon::untagged(&server, "d").await;
    let got = tokio::time::timeout(WAIT_LIMIT, daemon.calls.acquire(async {})).await.unwrap().unwrap();
    assert!(got.is_none());
    assert_eq!(server.app.scheduler.size(), (0, 0));
}

/// In either order, the daemon has the job or the job still waits.
#[tokio::test]
async fn posting_and_canceling_the_wait_at_once_loses_no_job() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let daemon = Daemon::untagged(&server, "d").await;
    for round in 0..200_u32 {
        let (cancel, canceled) = tokio::sync::oneshot::channel::<()>();
        let waiting = daemon.calls.acquire(async {
            canceled.await.ok();
        });
        let racing = async {
            let posted = import(&server, &owner, json!({})).await.1;
            for _ in 0..round % 40 {
                tokio::task::yield_now().await;
            }
            cancel.send(()).ok();
            posted
        };
        let (got, posted) = tokio::join!(waiting, racing);
        match got.unwrap() {
            Some(got) => assert_eq!(got.job_id, posted.to_string(), "round {round}"),
            None => daemon.take(posted).await,
        }
        daemon.fail(posted, "done").await.unwrap();
    }
}

/// When a wait is dropped at any moment, its job has failed or still waits. It is never running.
#[tokio::test]
async fn a_wait_dropped_at_the_claim_leaves_no_job_running() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let app = &server.app;
    let domain = Domain::new(app.default_organization, vec!["terraform".to_owned()], TagSet::untagged());
    let domain = Arc::new(domain);
    let daemon = Daemon::untagged(&server, "d").await.id;
    for round in 0..100_u32 {
        let racing = async {
            let posted = import(&server, &owner, json!({})).await.1;
            for _ in 0..round % 50 {
                tokio::task::yield_now().await;
            }
            posted
        };
        let posted = {
            let mut racing = std::pin::pin!(racing);
            tokio::select! {
                // Possibly dropped together with its claim.
                outcome = app.scheduler.acquire(&domain, daemon, std::future::pending()) => {
                    drop(outcome.unwrap());
                    racing.await
                }
                posted = racing.as_mut() => posted,
            }
        };
        let ended = async {
            until(&server, posted, |job| !job.status().is_active()).await;
        };
        match tokio::time::timeout(WAIT_LIMIT, app.scheduler.acquire(&domain, daemon, ended))
            .await
            .unwrap()
            .unwrap()
        {
            AcquireOutcome::Job(claimed) => assert_eq!(claimed.job(), posted, "it was still waiting"),
            AcquireOutcome::Canceled => {}
        }
        let failed = until(&server, posted, |job| job.status() == Status::Failed).await;
        assert!(
            failed.error.starts_with("connection to provisioner daemon broken (daemon "),
            "round {round}: {}",
            failed.error
        );
        assert_eq!(app.scheduler.size(), (0, 0));
    }
}

#[tokio::test]
async fn a_payload_over_four_mebibytes_fails_the_job_with_both_sizes() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let large = "x".repeat(5 << 20);
    let file = server
        .upload(&owner, "application/x-tar", tar(&[("main.tf", "resource {}"), ("notes.txt", &large)]))
        .await;
    let id = file.json()["hash"].as_str().unwrap().to_owned();
    let posted = server.version(&owner, json!({ "file_id": id })).await.1;
    let daemon = Daemon::untagged(&server, "d").await;
    let error = refused(
        tokio::time::timeout(WAIT_LIMIT, daemon.calls.acquire(std::future::pending())).await.unwrap(),
    );
    assert!(error.contains("request job was invalidated"), "{error}");
    let failed = job(&server, posted).await;
    assert_eq!(status(&failed), Status::Failed);
    assert!(failed.error.contains("4194304") && failed.error.contains("bytes"), "{}", failed.error);
}

/// TOK-10 and wire-protocol 5.4.
#[tokio::test]
async fn a_build_carries_its_metadata_and_a_token_that_ends_with_the_stop() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let (template, version) = server.template(&owner, "example").await;
    let (workspace, build, start) = server.workspace(&owner, template, "dev").await;
    let daemon = Daemon::untagged(&server, "d").await;
    let got = daemon.acquire().await;
    let Some(Type::WorkspaceBuild(arm)) = got.r#type else { panic!("{got:?}") };
    let metadata = arm.metadata.unwrap();
    assert_eq!(metadata.coder_url, "http://coder.test");
    assert_eq!(metadata.workspace_transition, WorkspaceTransition::Start as i32);
    assert_eq!((metadata.workspace_name.as_str(), metadata.workspace_id), ("dev", workspace.clone()));
    assert_eq!(metadata.workspace_owner, "admin");
    assert_eq!(metadata.workspace_owner_email, "admin@example.com");
    assert_eq!(metadata.workspace_owner_login_type, "password");
    assert_eq!(metadata.workspace_owner_groups, ["Everyone"]);
    let roles = metadata.workspace_owner_rbac_roles.iter();
    let roles: Vec<_> = roles.map(|role| (role.name.as_str(), role.org_id.is_empty())).collect();
    assert_eq!(roles, [("owner", true), ("member", true), ("organization-member", false)]);
    assert_eq!((metadata.workspace_build_id, metadata.template_name.as_str()), (build, "example"));
    assert_eq!(metadata.template_id, template.to_string());
    assert_eq!(metadata.template_version_id, version.to_string());
    assert_eq!(metadata.task_id, "00000000-0000-0000-0000-000000000000");
    let (public, private) =
        (metadata.workspace_owner_ssh_public_key, metadata.workspace_owner_ssh_private_key);
    assert!(public.starts_with("ssh-ed25519 "), "{public}");
    assert!(private.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----"));
    let token = metadata.workspace_owner_session_token;
    server.get(&token, "/api/v2/users/me").await.expect(200);
    daemon.calls.complete_job(&build_result(start, b"state")).await.unwrap();
    // A token that was created with it inside the workspace ends with it, and so does a daemon that joined with that
    // token.
    let mint = async |token: &str| {
        let made = server.post(token, "/api/v2/users/me/keys/tokens", json!({})).await.expect(201);
        let session = server.post(token, "/api/v2/users/me/keys", Value::Null).await.expect(201);
        [made, session].map(|made| made["key"].as_str().unwrap().to_owned())
    };
    let user = server.user_id(&owner).await;
    let path = format!("/api/v2/workspaces/{workspace}/builds");
    let first = mint(&token).await;
    let connection = user_daemons::joined(&server, "inside", user, &first[0]).await;
    server.post(&owner, &path, json!({ "transition": "start" })).await.expect(201);
    let got = daemon.acquire().await;
    let Some(Type::WorkspaceBuild(arm)) = got.r#type else { panic!("{got:?}") };
    tokio::time::timeout(WAIT_LIMIT, connection.calls.session().closed()).await.unwrap();
    for old in first.iter().chain([&token]) {
        server.get(old, "/api/v2/users/me").await.expect(401);
    }
    daemon.calls.complete_job(&build_result(got.job_id.parse().unwrap(), b"state")).await.unwrap();
    let token = arm.metadata.unwrap().workspace_owner_session_token;
    let second = mint(&token).await;
    let connection = user_daemons::joined(&server, "inside", user, &second[1]).await;

    server.post(&owner, &path, json!({ "transition": "stop" })).await.expect(201);
    let got = daemon.acquire().await;
    tokio::time::timeout(WAIT_LIMIT, connection.calls.session().closed()).await.unwrap();
    for old in &second {
        server.get(old, "/api/v2/users/me").await.expect(401);
    }
    let Some(Type::WorkspaceBuild(arm)) = got.r#type else { panic!("{got:?}") };
    assert_eq!(&arm.state[..], b"state", "BLD-2");
    let metadata = arm.metadata.unwrap();
    assert_eq!(metadata.workspace_owner_session_token, "");
    assert_eq!(
        (metadata.workspace_owner_ssh_public_key, metadata.workspace_owner_ssh_private_key),
        (public, private)
    );
    server.get(&token, "/api/v2/users/me").await.expect(401);
}
