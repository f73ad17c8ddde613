//! Workspace builds.

use bytes::Bytes;
use coder_wire::messages::provisioner::{RichParameterValue, WorkspaceTransition};
use coder_wire::messages::provisionerd as pb;
use pb::completed_job::Type;

use crate::fake_server::{Record, Server};
use crate::fixture::{HELLO, Running, build, edit_build, start, tar, variables};

async fn run(job: pb::AcquiredJob) -> (Record, pb::completed_job::WorkspaceBuild) {
    let server = Server::new();
    let _running = Running::start(&server);
    server.give(job);
    let (record, result) = server.completed().await;
    let Type::WorkspaceBuild(result) = result else { panic!("not a build") };
    (record, result)
}

#[tokio::test(flavor = "multi_thread")]
async fn start_stop_and_delete_carry_the_state_along() {
    coder_requirements::require!(Terraform);
    let archive = tar(&[("main.tf", HELLO)]);
    let mut job = start(archive.clone());
    edit_build(&mut job, |build| {
        build.rich_parameter_values = vec![RichParameterValue { name: "region".into(), value: "us".into() }];
        build.variable_values = variables(&[("greeting", "hi")]);
    });
    let (record, started) = run(job).await;
    let machine = &started.resources[0];
    assert_eq!(machine.agents[0].name, "main");
    assert!(uuid::Uuid::parse_str(&machine.agents[0].id).is_ok());
    assert_eq!(machine.agents[0].apps[0].slug, "code");
    let state = String::from_utf8(started.state.to_vec()).unwrap();
    assert!(state.contains("hi alice us"), "{state}");
    assert_eq!(
        record.stages(),
        [
            "Setting up",
            "Initializing Terraform Directory",
            "Planning Infrastructure",
            "Starting workspace",
            "Cleaning Up"
        ]
    );
    assert!(record.quotas.is_empty());
    for stage in ["init", "plan", "apply", "graph"] {
        let whole = format!("coder_stage_{stage}");
        assert!(
            started.timings.iter().any(|timing| timing.stage == stage && timing.resource == whole),
            "{stage}"
        );
    }
    assert!(started.timings.iter().any(|timing| timing.resource == "terraform_data.machine[0]"));

    let (record, stopped) = run(build(archive.clone(), WorkspaceTransition::Stop, started.state)).await;
    assert!(stopped.resources.is_empty());
    assert!(record.stages().contains(&"Stopping workspace"));

    let (record, deleted) = run(build(archive, WorkspaceTransition::Destroy, stopped.state)).await;
    assert!(deleted.resources.is_empty());
    assert!(record.stages().contains(&"Destroying workspace"));
    let state: serde_json::Value = serde_json::from_slice(&deleted.state).unwrap();
    assert_eq!(state["resources"].as_array().unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_what_never_existed_runs_nothing() {
    let real = coder_requirements::require!(program Terraform);
    let server = Server::new();
    let running = Running::with_stand_in(
        &server,
        &real,
        "echo \"$1\" >> \"$(dirname \"$0\")/calls\"\nexec \"$REAL\" \"$@\"",
    );
    server.give(build(tar(&[("main.tf", HELLO)]), WorkspaceTransition::Destroy, Bytes::new()));
    let (record, _) = server.completed().await;
    assert!(record.has_line("there is nothing to do"));
    let calls = std::fs::read_to_string(running.dir.path().join("calls")).unwrap();
    assert_eq!(calls, "version\ninit\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_simple_start_needs_four_commands() {
    let real = coder_requirements::require!(program Terraform);
    let server = Server::new();
    let running = Running::with_stand_in(
        &server,
        &real,
        "echo \"$1\" >> \"$(dirname \"$0\")/calls\"\nexec \"$REAL\" \"$@\"",
    );
    server.give(start(tar(&[("main.tf", HELLO)])));
    server.completed().await;
    let calls = std::fs::read_to_string(running.dir.path().join("calls")).unwrap();
    let mut calls: Vec<&str> = calls.lines().collect();
    calls.sort_unstable();
    assert_eq!(calls, ["apply", "graph", "init", "plan", "version"]);
}

const TWO_AGENTS: &str = r#"
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
resource "coder_agent" "one" {
  os   = "linux"
  arch = "amd64"
}
resource "coder_agent" "two" {
  os   = "linux"
  arch = "arm64"
}
resource "terraform_data" "first" {
  input = coder_agent.one.id
}
resource "terraform_data" "second" {
  input = coder_agent.two.id
}
resource "coder_app" "second" {
  agent_id = coder_agent.two.id
  slug     = "second"
  url      = "http://localhost:1"
}
resource "coder_metadata" "second" {
  resource_id = terraform_data.second.id
  daily_cost  = 7
  icon        = "/icon/x.svg"
  item {
    key   = "size"
    value = "large"
  }
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn agents_apps_and_metadata_belong_to_their_resources() {
    coder_requirements::require!(Terraform);
    let (record, result) = run(start(tar(&[("main.tf", TWO_AGENTS)]))).await;
    assert_eq!(record.quotas[0].daily_cost, 7);
    assert!(record.has_line("Budget           —   unlimited"), "a missing budget is not shown as a number");
    assert!(record.stages().contains(&"Commit quota"));
    let find = |name: &str| result.resources.iter().find(|resource| resource.name == name).unwrap();
    let (first, second) = (find("first"), find("second"));
    assert_eq!(first.agents[0].name, "one");
    assert!(first.agents[0].apps.is_empty() && first.metadata.is_empty());
    assert_eq!(second.agents[0].name, "two");
    assert_eq!(second.agents[0].apps[0].slug, "second");
    assert_eq!((second.daily_cost, second.icon.as_str()), (7, "/icon/x.svg"));
    assert_eq!((second.metadata[0].key.as_str(), second.metadata[0].value.as_str()), ("size", "large"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_quota_fails_before_anything_is_made() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    server.set_quota(pb::CommitQuotaResponse { ok: false, credits_consumed: 5, budget: 6 });
    let _running = Running::start(&server);
    server.give(start(tar(&[("main.tf", TWO_AGENTS)])));
    let (record, failed) = server.failed().await;
    assert_eq!(failed.error, "insufficient quota");
    let empty = pb::failed_job::WorkspaceBuild::default();
    assert_eq!(failed.r#type, Some(pb::failed_job::Type::WorkspaceBuild(empty)));
    assert!(!record.stages().contains(&"Starting workspace"));
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_resources_are_reported() {
    coder_requirements::require!(Terraform);
    let template = |trigger: &str| {
        let text = format!("resource \"terraform_data\" \"a\" {{\n  triggers_replace = \"{trigger}\"\n}}\n");
        tar(&[("main.tf", &text)])
    };
    let (_, first) = run(start(template("one"))).await;
    let (_, second) = run(build(template("two"), WorkspaceTransition::Start, first.state)).await;
    assert_eq!(second.resource_replacements.len(), 1);
    assert_eq!(second.resource_replacements[0].resource, "terraform_data.a");
    assert_eq!(second.resource_replacements[0].paths, ["triggers_replace"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_the_server_refuses_still_leaves_the_state() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    server.refuse_completion("agent name is taken");
    let _running = Running::start(&server);
    server.give(start(tar(&[("main.tf", crate::fixture::PLAIN)])));
    let (_, failed) = server.failed().await;
    assert!(
        failed.error.contains("internal provisionerserver error: agent name is taken"),
        "{}",
        failed.error
    );
    let Some(pb::failed_job::Type::WorkspaceBuild(build)) = failed.r#type else { panic!("no arm") };
    assert!(!build.state.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_packed_with_the_template_is_not_the_workspaces() {
    coder_requirements::require!(Terraform);
    let (_, first) = run(start(tar(&[("main.tf", crate::fixture::PLAIN)]))).await;
    let packed = String::from_utf8(first.state.to_vec()).unwrap();
    let (record, second) =
        run(start(tar(&[("main.tf", crate::fixture::PLAIN), ("terraform.tfstate", &packed)]))).await;
    assert!(record.has_line("1 added"));
    let lineage =
        |state: &[u8]| serde_json::from_slice::<serde_json::Value>(state).unwrap()["lineage"].to_string();
    assert_ne!(lineage(&first.state), lineage(&second.state));
}
