//! Reports on jobs: who may make them, in which state, and what they change.

use coder_store::jobs;
use coder_store::templates::version_details;
use coder_store::workspaces::{builds, resources};
use coder_wire::messages::provisioner::{
    Agent, App, Devcontainer, DisplayApps, ExternalAuthProviderResource, Script, VariableValue,
};
use coder_wire::messages::provisionerd::{CommitQuotaRequest, failed_job};

use super::*;
use crate::harness::on_both_engines;

on_both_engines! {
    async fn only_the_owner_reports_and_only_until_the_end(server: TestServer) {
        let owner = server.owner().await;
        let posted = import(&server, &owner, json!({})).await.1;
        let (daemon, stranger) = (Daemon::untagged(&server, "d").await, Daemon::untagged(&server, "s").await);
        assert!(refused(stranger.update(posted, 1).await).contains("job isn't running yet"));
        daemon.take(posted).await;
        let before = job(&server, posted).await;
        assert!(refused(stranger.update(posted, 1).await).contains("you don't own this job"));
        assert!(refused(stranger.fail(posted, "x").await).contains("you don't own this job"));
        let result = import_result(posted, vec![resource("a")]);
        assert!(refused(stranger.calls.complete_job(&result).await).contains("you don't own this job"));
        assert_eq!(job(&server, posted).await, before, "a refused call changes nothing");

        daemon.update(posted, 3).await.unwrap();
        daemon.fail(posted, "no").await.unwrap();
        let failed = job(&server, posted).await;
        assert_eq!((status(&failed), failed.error.as_str()), (Status::Failed, "no (daemon d)"));
        for refusal in [
            refused(daemon.update(posted, 1).await),
            refused(daemon.fail(posted, "again").await),
            refused(daemon.calls.complete_job(&result).await),
        ] {
            assert!(refusal.contains("job already completed"), "{refusal}");
        }
        assert_eq!(job(&server, posted).await, failed, "CONF-16");
    }

    async fn an_identical_repeat_is_accepted_and_another_result_refused(server: TestServer) {
        let owner = server.owner().await;
        let posted = import(&server, &owner, json!({})).await.1;
        let daemon = Daemon::untagged(&server, "d").await;
        daemon.take(posted).await;
        let result = import_result(posted, vec![resource("a"), resource("b")]);
        daemon.calls.complete_job(&result).await.unwrap();
        let completed = job(&server, posted).await;
        daemon.calls.complete_job(&result).await.unwrap();
        let other = import_result(posted, vec![resource("c")]);
        assert!(refused(daemon.calls.complete_job(&other).await).contains("job already completed"));
        assert_eq!(job(&server, posted).await, completed);
        let rows = resources::list(&mut server.app.store.reader().await.unwrap(), &[posted]).await.unwrap();
        assert_eq!(rows.len(), 2, "nothing is stored twice");
    }

    async fn a_refused_completion_stores_nothing_and_the_job_goes_on(server: TestServer) {
        let owner = server.owner().await;
        let posted = import(&server, &owner, json!({})).await.1;
        let daemon = Daemon::untagged(&server, "d").await;
        daemon.take(posted).await;
        let agent = Agent { name: "not_legal".to_owned(), ..Agent::default() };
        let bad = import_result(posted, vec![Resource { agents: vec![agent], ..resource("a") }]);
        assert!(refused(daemon.calls.complete_job(&bad).await).contains("not_legal"));
        let wrong_kind = build_result(posted, b"");
        assert!(refused(daemon.calls.complete_job(&wrong_kind).await).contains("template_version_import"));
        assert_eq!(status(&job(&server, posted).await), Status::Running);
        let rows = resources::list(&mut server.app.store.reader().await.unwrap(), &[posted]).await.unwrap();
        assert!(rows.is_empty());
        daemon.calls.complete_job(&import_result(posted, vec![])).await.unwrap();
    }

    async fn an_import_that_asks_for_an_unknown_account_is_stored_and_fails(server: TestServer) {
        let owner = server.owner().await;
        let (version, posted) = import(&server, &owner, json!({})).await;
        let daemon = Daemon::untagged(&server, "d").await;
        daemon.take(posted).await;
        let ask = |id: &str, optional| ExternalAuthProviderResource { id: id.to_owned(), optional };
        let found = completed_job::TemplateImport {
            start_resources: vec![resource("a")],
            // An unknown optional provider is refused in the same way (wire-protocol 5.6).
            external_auth_providers: vec![ask("github", true), ask("gitlab", false)],
            ..completed_job::TemplateImport::default()
        };
        let result = CompletedJob {
            job_id: posted.to_string(),
            r#type: Some(completed_job::Type::TemplateImport(found)),
        };
        daemon.calls.complete_job(&result).await.unwrap();
        let ended = job(&server, posted).await;
        assert_eq!(status(&ended), Status::Failed);
        assert!(ended.error.contains("external auth provider \"github\" is not configured"), "{}", ended.error);
        daemon.calls.complete_job(&result).await.unwrap();
        assert_eq!(job(&server, posted).await, ended, "a repeat is recognised");
        let path = format!("/api/v2/templateversions/{version}");
        assert_eq!(server.get(&owner, &path).await.expect(200)["job"]["status"], "failed");
        let asked = server.get(&owner, &format!("{path}/external-auth")).await.expect(200);
        let ids: Vec<_> = asked.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["github", "gitlab"]);
        let rows = resources::list(&mut server.app.store.reader().await.unwrap(), &[posted]).await.unwrap();
        assert_eq!(rows.len(), 1);
    }

    async fn required_variables_are_stored_and_named(server: TestServer) {
        let owner = server.owner().await;
        let given = json!({ "user_variable_values": [{ "name": "given", "value": "v" }] });
        let (version, posted) = server.version(&owner, given).await;
        let daemon = Daemon::untagged(&server, "d").await;
        daemon.take(posted).await;
        let mut request = UpdateJobRequest {
            job_id: posted.to_string(),
            template_variables: vec![variable("given", "", true), variable("missing", "", true)],
            user_variable_values: vec![VariableValue {
                name: "given".to_owned(),
                value: "v".to_owned(),
                sensitive: true,
            }],
            readme: b"# Hello".as_slice().into(),
            ..UpdateJobRequest::default()
        };
        let error = refused(daemon.calls.update_job(&request).await);
        assert!(error.contains("required template variables need values: missing"), "{error}");
        let mut tx = server.app.store.reader().await.unwrap();
        let stored = version_details::list_variables(&mut tx, version).await.unwrap();
        drop(tx);
        assert_eq!(stored.len(), 2, "clients ask for the values of stored variables");
        request.template_variables[1].default_value = "d".to_owned();
        let answer = daemon.calls.update_job(&request).await.unwrap();
        let values: Vec<_> = answer.variable_values.iter().map(|value| value.value.as_str()).collect();
        assert_eq!(values, ["v", "d"]);
        let shown = server.get(&owner, &format!("/api/v2/templateversions/{version}")).await.expect(200);
        assert_eq!(shown["readme"], "# Hello");
    }

    async fn lines_that_come_at_once_are_all_kept(server: TestServer) {
        let owner = server.owner().await;
        let (version, posted) = import(&server, &owner, json!({})).await;
        let daemon = Daemon::untagged(&server, "d").await;
        daemon.take(posted).await;
        let updates = || futures_util::future::join_all((1..=8).map(|lines| daemon.update(posted, lines)));
        let (answers, ()) = tokio::join!(updates(), cancel(&server, &owner, version));
        for answer in answers {
            answer.unwrap();
        }
        let mut stored = daemon_process::log(&server.app, posted).await;
        stored.sort();
        let mut sent: Vec<_> = (1..=8).flat_map(|lines| (0..lines).map(|at| format!("line {at}"))).collect();
        sent.sort();
        assert_eq!(stored, sent);
    }

    async fn a_cancel_is_in_every_answer(server: TestServer) {
        let owner = server.owner().await;
        let (version, posted) = import(&server, &owner, json!({})).await;
        let daemon = Daemon::untagged(&server, "d").await;
        daemon.take(posted).await;
        assert!(!daemon.update(posted, 0).await.unwrap().canceled);
        assert!(!daemon.update(posted, 1).await.unwrap().canceled);
        cancel(&server, &owner, version).await;
        for lines in [0, 1, 0] {
            assert!(daemon.update(posted, lines).await.unwrap().canceled, "{lines} lines");
        }
        daemon.calls.complete_job(&import_result(posted, vec![])).await.unwrap();
        assert_eq!(status(&job(&server, posted).await), Status::Canceled, "JOB-1: without an error it is canceled");
    }

    async fn a_failed_build_keeps_the_state_it_reports(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "t").await;
        let (_, build, posted) = server.workspace(&owner, template, "w").await;
        let daemon = Daemon::untagged(&server, "d").await;
        daemon.take(posted).await;
        let quota = CommitQuotaRequest { job_id: posted.to_string(), daily_cost: 7 };
        let answer = daemon.calls.commit_quota(&quota).await.unwrap();
        assert_eq!((answer.ok, answer.budget), (true, -1));
        let failed = FailedJob {
            job_id: posted.to_string(),
            error: "apply failed".to_owned(),
            r#type: Some(failed_job::Type::WorkspaceBuild(failed_job::WorkspaceBuild {
                state: b"half".as_slice().into(),
                timings: vec![],
            })),
            ..FailedJob::default()
        };
        daemon.calls.fail_job(&failed).await.unwrap();
        let mut tx = server.app.store.reader().await.unwrap();
        assert_eq!(builds::find_state(&mut tx, build.parse().unwrap()).await.unwrap().unwrap(), b"half");
        drop(tx);
        let shown = server.get(&owner, &format!("/api/v2/workspacebuilds/{build}")).await.expect(200);
        assert_eq!(shown["daily_cost"], 7);
    }
}

/// The additions of the official server to a report, and its order.
#[tokio::test]
async fn a_build_shows_dev_containers_as_scripts_external_agents_and_the_templates_order() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let (template, _) = server.template(&owner, "t").await;
    let (_, build, posted) = server.workspace(&owner, template, "w").await;
    let daemon = Daemon::untagged(&server, "d").await;
    daemon.take(posted).await;
    let app = |slug: &str, display_name: &str, order| App {
        slug: slug.to_owned(),
        display_name: display_name.to_owned(),
        order,
        ..App::default()
    };
    let all = DisplayApps {
        vscode: true,
        vscode_insiders: true,
        web_terminal: true,
        ssh_helper: true,
        port_forwarding_helper: true,
    };
    let agent = |name: &str, order| Agent {
        name: name.to_owned(),
        order,
        display_apps: (name == "b").then_some(all),
        ..Agent::default()
    };
    let container = Devcontainer { name: "repo".to_owned(), ..Devcontainer::default() };
    let dev = Agent {
        apps: vec![app("z", "A", 1), app("c", "B", 0), app("y", "A", 0), app("x", "A", 0)],
        devcontainers: vec![container],
        scripts: vec![Script { display_name: "clone".to_owned(), ..Script::default() }],
        ..agent("dev", 1)
    };
    let quota = CommitQuotaRequest { job_id: posted.to_string(), daily_cost: 7 };
    daemon.calls.commit_quota(&quota).await.unwrap();
    let external = Resource { r#type: "coder_external_agent".to_owned(), daily_cost: 7, ..resource("e") };
    let made = completed_job::WorkspaceBuild {
        resources: vec![
            Resource { agents: vec![dev, agent("b", 0), agent("a", 0)], ..external.clone() },
            Resource { r#type: "vm".to_owned(), ..external },
        ],
        ..Default::default()
    };
    let result =
        CompletedJob { job_id: posted.to_string(), r#type: Some(completed_job::Type::WorkspaceBuild(made)) };
    daemon.calls.complete_job(&result).await.unwrap();
    let shown = server.get(&owner, &format!("/api/v2/workspacebuilds/{build}")).await.expect(200);
    assert_eq!(shown["has_external_agent"], true);
    assert_eq!(shown["daily_cost"], 7, "the counted cost, although two instances have it");
    let names = |list: &Value, field: &str| -> Vec<String> {
        list.as_array().unwrap().iter().map(|one| one[field].as_str().unwrap().to_owned()).collect()
    };
    let agents = &shown["resources"][0]["agents"];
    assert_eq!(names(agents, "name"), ["a", "b", "dev"]);
    let usual = json!(["vscode", "ssh_helper", "port_forwarding_helper", "web_terminal"]);
    assert_eq!(agents[0]["display_apps"], usual);
    let every = json!(["vscode", "vscode_insiders", "ssh_helper", "port_forwarding_helper", "web_terminal"]);
    assert_eq!(agents[1]["display_apps"], every);
    let agent = agents[1]["id"].as_str().unwrap();
    let resources = format!("/api/v2/workspacebuilds/{build}/resources");
    let resources = server.get(&owner, &resources).await.expect(200);
    let all_agents =
        resources.as_array().unwrap().iter().filter_map(|one| one["agents"].as_array()).flatten();
    let again: Vec<_> = all_agents.filter(|one| one["id"] == agent).map(|one| &one["display_apps"]).collect();
    assert_eq!(again, [&every]);
    assert_eq!(names(&agents[2]["apps"], "slug"), ["x", "y", "c", "z"]);
    assert_eq!(names(&agents[2]["scripts"], "display_name"), ["clone", "Dev Container (repo)"]);
    assert_eq!(names(&agents[2]["log_sources"], "icon"), ["", "/emojis/1f4e6.png"]);
    assert_eq!(agents[2]["scripts"][1]["run_on_start"], true);
}

#[tokio::test]
async fn odd_messages_are_refused_one_by_one() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let posted = import(&server, &owner, json!({})).await.1;
    let daemon = Daemon::untagged(&server, "d").await;
    daemon.take(posted).await;
    let no_id = UpdateJobRequest { job_id: "nonsense".to_owned(), ..UpdateJobRequest::default() };
    assert!(refused(daemon.calls.update_job(&no_id).await).contains("not a job id"));
    assert!(refused(daemon.update(JobId::random(), 1).await).contains("job not found"));
    let bad = Log { level: 77, ..line("x") };
    let unknown =
        UpdateJobRequest { job_id: posted.to_string(), logs: vec![bad], ..UpdateJobRequest::default() };
    assert!(refused(daemon.calls.update_job(&unknown).await).contains("unknown log level 77"));
    let armless = CompletedJob { job_id: posted.to_string(), r#type: None };
    assert!(refused(daemon.calls.complete_job(&armless).await).contains("needs a type"));
    assert_eq!(status(&job(&server, posted).await), Status::Running);
    let mut tx = server.app.store.reader().await.unwrap();
    assert!(jobs::logs::list(&mut tx, posted, 0, 10, 1000).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_log_cap_drops_lines_and_says_so() {
    let mut config = crate::harness::settings();
    config.provisioning.log_bytes = 100;
    let server = TestServer::sqlite_with(config).await;
    let owner = server.owner().await;
    let posted = import(&server, &owner, json!({})).await.1;
    let daemon = Daemon::untagged(&server, "d").await;
    daemon.take(posted).await;
    for _ in 0..5 {
        daemon.update(posted, 10).await.unwrap();
    }
    assert!(job(&server, posted).await.logs_overflowed);
}

#[tokio::test]
async fn module_archives_go_up_and_come_down() {
    use coder_wire::messages::provisioner::DataUploadType::UploadTypeModuleFiles as MODULES;
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let (version, posted) = import(&server, &owner, json!({})).await;
    let daemon = Daemon::untagged(&server, "d").await;
    daemon.take(posted).await;
    let data = bytes::Bytes::from(vec![7; 3 << 20]);
    let hash = coder_wire::file::hash(&data);
    let with = |hash: Vec<u8>| CompletedJob {
        job_id: posted.to_string(),
        r#type: Some(completed_job::Type::TemplateImport(completed_job::TemplateImport {
            module_files_hash: hash,
            ..Default::default()
        })),
    };
    assert!(refused(daemon.calls.complete_job(&with(hash.to_vec())).await).contains("not uploaded"));
    daemon.calls.upload_file(MODULES, data.clone()).await.unwrap();
    daemon.calls.complete_job(&with(hash.to_vec())).await.unwrap();
    let mut tx = server.app.store.reader().await.unwrap();
    let file = version_details::find_module_file(&mut tx, version).await.unwrap().unwrap().to_string();
    drop(tx);
    assert!(daemon.calls.download_file(&file, MODULES).await.is_err(), "no job in held_jobs needs it");
    let request = json!({ "name": "t", "template_version_id": version });
    let made = server.post(&owner, "/api/v2/organizations/default/templates", request).await.expect(201);
    let template = made["id"].as_str().unwrap().parse().unwrap();
    let (_, _, build) = server.workspace(&owner, template, "w").await;
    daemon.take(build).await;
    assert_eq!(daemon.calls.download_file(&file, MODULES).await.unwrap(), data);
    let sources = job(&server, posted).await.file_id.to_string();
    for unknown in [sources.as_str(), "", "00000000-0000-0000-0000-000000000009"] {
        daemon.calls.download_file(unknown, MODULES).await.unwrap_err();
    }
}
