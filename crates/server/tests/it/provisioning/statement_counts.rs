//! The number of statements for a build and for an import. On Postgres each is a round trip, and they limit the builds per
//! second (docs/performance.md).

use coder_wire::messages::provisioner::{Agent, App, agent};

use super::*;
use crate::harness::on_both_engines;

/// Runs one job from its request to its end while nothing else runs. Returns the number of statements.
async fn asked(server: &TestServer, daemon: &Daemon, post: impl Future<Output = ()>) -> u64 {
    let calls = daemon.calls.clone();
    let taking = tokio::spawn(async move { calls.acquire(std::future::pending()).await.unwrap().unwrap() });
    all_wait(server, (1, 1)).await;
    quiet(server).await;
    let before = server.app.store.statement_counts().round_trips;
    post.await;
    let job: JobId = taking.await.unwrap().job_id.parse().unwrap();
    let row = self::job(server, job).await;
    let logs = (0..25).map(|at| line(&format!("line {at}"))).collect();
    let is_import = row.workspace_build_id.is_none();
    let template_variables =
        if is_import { vec![variable("a", "1", false), variable("b", "2", false)] } else { Vec::new() };
    let update =
        UpdateJobRequest { job_id: job.to_string(), logs, template_variables, ..UpdateJobRequest::default() };
    daemon.calls.update_job(&update).await.unwrap();
    let done = if is_import { import_result(job, vec![machine()]) } else { build_result(job) };
    daemon.calls.complete_job(&done).await.unwrap();
    quiet(server).await;
    // One statement belongs to this test.
    server.app.store.statement_counts().round_trips - before - 1
}

fn machine() -> Resource {
    let app = App { slug: "editor".to_owned(), ..App::default() };
    let agent = Agent {
        name: "main".to_owned(),
        apps: vec![app],
        auth: Some(agent::Auth::Token("5f0c2f5e-8f4b-4f0e-9c1a-0b6f0d1c2e3a".to_owned())),
        ..Agent::default()
    };
    Resource { name: "machine".to_owned(), agents: vec![agent], ..Resource::default() }
}

fn build_result(job: JobId) -> CompletedJob {
    let build = completed_job::WorkspaceBuild {
        state: b"{}".as_slice().into(),
        resources: vec![machine()],
        ..Default::default()
    };
    CompletedJob { job_id: job.to_string(), r#type: Some(completed_job::Type::WorkspaceBuild(build)) }
}

on_both_engines! {
    async fn a_build_and_an_import_ask_the_database_no_more_than_they_must(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "hello").await;
        let (workspace, _, first) = server.workspace(&owner, template, "w").await;
        server.finish(first, "").await;
        let daemon = Daemon::untagged(&server, "d").await;
        let path = format!("/api/v2/workspaces/{workspace}/builds");
        let file = server.file(&owner).await;
        let (mut builds, mut imports) = (Vec::new(), Vec::new());
        // In the first round, caches are empty and keys do not exist yet.
        for transition in ["stop", "start", "stop", "start"] {
            let post = async { drop(server.post(&owner, &path, json!({ "transition": transition })).await.expect(201)) };
            builds.push(asked(&server, &daemon, post).await);
            let request = json!({ "file_id": file, "storage_method": "file", "provisioner": "terraform" });
            let post = async {
                let path = "/api/v2/organizations/default/templateversions";
                drop(server.post(&owner, path, request).await.expect(201));
            };
            imports.push(asked(&server, &daemon, post).await);
        }
        // On SQLite a statement is not a round trip, and BEGIN and COMMIT are cheap. These numbers only guard against
        // regressions.
        let (most_builds, most_imports) = if server.app.store.is_postgres() { (17, 13) } else { (40, 34) };
        assert!(builds[2..].iter().all(|asked| *asked <= most_builds), "builds: {builds:?}");
        assert!(imports[2..].iter().all(|asked| *asked <= most_imports), "imports: {imports:?}");
    }
}
