//! Prometheus metrics and the health report. Dashboards and alerts name only metrics that exist.

use std::collections::BTreeSet;
use std::path::Path;

use coder_server::metrics;
use coder_wire::extension::messages::HealthReport;

use super::daemon_process::DaemonConnection;
use super::*;

const DAEMONS: &str = "/api/v2/organizations/default/provisionerdaemons";
const HEALTH: &str = "/api/v2/debug/health";

async fn scrape(server: &TestServer) -> String {
    metrics::render(&server.app).await.unwrap()
}

#[tokio::test]
async fn queue_daemons_slots_and_waits_have_metrics_by_tag_set() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let daemon = Daemon::tagged(&server, "d", &[("a", "1")]).await;
    let first = import(&server, &owner, json!({"a": "1"})).await.1;
    server.advance(7);
    daemon.take(first).await;
    import(&server, &owner, json!({"a": "1"})).await;
    server.advance(20);
    import(&server, &owner, json!({"b": "2"})).await;
    let text = scrape(&server).await;
    let organization = server.app.default_organization;
    let has = |name: &str, tags: &str, more: &str, value: &str| {
        let line = format!("{name}{{organization_id=\"{organization}\",tags=\"{tags}\"{more}}} {value}\n");
        assert!(text.contains(&line), "{line}\n{text}");
    };
    let (a, b) = ("a=1 owner= scope=organization", "b=2 owner= scope=organization");
    has("coderd_provisioning_jobs_waiting", a, "", "1");
    has("coderd_provisioning_oldest_waiting_seconds", a, "", "20");
    has("coderd_provisioning_jobs_waiting", b, "", "1");
    has("coderd_provisioning_daemons", a, "", "1");
    has("coderd_provisioning_daemons", b, "", "0");
    has("coderd_provisioning_slots", a, ",state=\"busy\"", "1");
    has("coderd_provisioning_slots", a, ",state=\"free\"", "0");
    has("coderd_provisioning_job_wait_seconds_sum", a, "", "7.0");
    has("coderd_provisioning_job_wait_seconds_count", a, "", "1");
    assert!(text.contains("coderd_api_total_user_count{status=\"active\"} 1\n"), "{text}");
    assert!(text.contains("code=\"201\",method=\"POST\",path=\"/api/v2/files\"}"), "{text}");
    assert_eq!(text.matches("# EOF").count(), 1);
    assert!(text.ends_with("# EOF\n"));
    daemon.fail(first, "x").await.unwrap();
    drop(daemon);
    server.advance(91);
    let text = scrape(&server).await;
    assert!(!text.contains("state=\"busy\"} 1"), "a disconnected daemon has no slots\n{text}");
}

#[tokio::test]
async fn workspaces_are_counted_by_latest_build_at_most_once_a_minute() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let (template, version) = server.template(&owner, "hello").await;
    let name = server.get(&owner, &format!("/api/v2/templateversions/{version}")).await.expect(200);
    let name = name["name"].as_str().unwrap().to_owned();
    let job = server.workspace(&owner, template, "one").await.2;
    server.workspace(&owner, template, "two").await;
    server.finish(job, "broken").await;
    let latest = |status: &str| {
        format!(
            "coderd_workspace_latest_build_status{{status=\"{status}\",template_name=\"hello\",\
             template_version=\"{name}\",workspace_owner=\"admin\",workspace_transition=\"start\"}} 1\n"
        )
    };
    let text = scrape(&server).await;
    for line in [
        latest("failed"),
        latest("pending"),
        "coderd_api_workspace_latest_build{status=\"failed\"} 1\n".to_owned(),
        "coderd_api_workspace_latest_build{status=\"running\"} 0\n".to_owned(),
        "coderd_workspace_creation_total{organization_name=\"coder\",template_name=\"hello\",preset_name=\"\"} 2\n"
            .to_owned(),
    ] {
        assert!(text.contains(&line), "{line}\n{text}");
    }
    server.workspace(&owner, template, "three").await;
    let before = server.app.store.statement_counts().work;
    let same = scrape(&server).await;
    let cheap = server.app.store.statement_counts().work - before;
    assert!(same.contains("coderd_api_workspace_latest_build{status=\"pending\"} 1\n"), "{same}");
    server.advance(60);
    let before = server.app.store.statement_counts().work;
    let text = scrape(&server).await;
    assert!(text.contains("coderd_api_workspace_latest_build{status=\"pending\"} 2\n"), "{text}");
    assert_eq!(server.app.store.statement_counts().work - before, cheap + 3);
    assert!(text.contains("coderd_api_active_users_duration_hour "), "{text}");
}

#[tokio::test]
async fn websockets_and_counts_of_other_parts_have_metrics() {
    let server = TestServer::sqlite().await;
    let metrics = server.app.metrics.clone();
    let open = metrics.socket(coder_api::paths::SERVE);
    metrics.add_source(|| "# TYPE of_others counter\nof_others_total 7\n# EOF\n".to_owned());
    let text = scrape(&server).await;
    let of = |name: &str, value: &str| format!("{name}{{path=\"{}\"}} {value}\n", coder_api::paths::SERVE);
    assert!(text.contains(&of("coderd_api_concurrent_websockets", "1")), "{text}");
    assert!(text.contains("of_others_total 7\n"), "{text}");
    drop(open);
    let text = scrape(&server).await;
    assert!(text.contains(&of("coderd_api_concurrent_websockets", "0")), "{text}");
    assert!(text.contains(&of("coderd_api_websocket_durations_seconds_count", "1")), "{text}");
    assert_eq!(text.matches("# EOF").count(), 1);
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn dashboards_and_alerts_name_existing_metrics() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let daemon = Daemon::untagged(&server, "d").await;
    let posted = import(&server, &owner, json!({})).await.1;
    daemon.take(posted).await;
    server.app.metrics.joined(true);
    server.app.metrics.job_ended_by_server("hung");
    let text = scrape(&server).await;
    // The metrics of daemons, by the names in their list.
    let of_daemons = include_str!("../../../../provisioner/src/metrics.rs");
    let exists = |name: &str| {
        let family = ["_bucket", "_count", "_sum", "_total"].iter().find_map(|end| name.strip_suffix(end));
        let registered = |name: &str| of_daemons.contains(&format!("\"{name}\""));
        text.lines()
            .any(|line| line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} ")))
            || registered(name)
            || family.is_some_and(registered)
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/grafana");
    let mut seen = BTreeSet::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let content = std::fs::read_to_string(&path).unwrap();
        if path.extension().is_some_and(|end| end == "json") {
            serde_json::from_str::<Value>(&content).unwrap();
        }
        let words = content.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let prefixes = ["coderd_", "process_"];
        seen.extend(
            words.filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix))).map(str::to_owned),
        );
    }
    assert!(seen.len() > 10, "{seen:?}");
    let missing: Vec<_> = seen.iter().filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "{missing:?} do not exist\n{text}");
    let guide = include_str!("../../../../../docs/operators/monitoring.md");
    let ours = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|line| line.split(' ').next());
    let unexplained: Vec<_> = ours.filter(|name| !guide.contains(*name)).collect();
    assert!(unexplained.is_empty(), "docs/operators/monitoring.md does not describe {unexplained:?}");
}

fn joining(server: &TestServer, name: &str, version: &str, api: &str) -> NewDaemon {
    NewDaemon {
        organization_id: server.app.default_organization,
        name: name.to_owned(),
        key_id: KeyId::USER_AUTH,
        provisioners: vec!["terraform".to_owned()],
        tags: TagSet::untagged(),
        version: version.to_owned(),
        api_version: api.to_owned(),
    }
}

#[tokio::test]
async fn epd01_and_epd02_health_judges_the_daemons_seen_lately() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let member = server.user(&owner, "member", &[]).await;
    server.get(&member, HEALTH).await.expect(403);
    let report = server.get(&owner, HEALTH).await.expect(200);
    let daemons = &report["provisioner_daemons"];
    assert_eq!((&report["healthy"], &daemons["severity"]), (&json!(false), &json!("error")));
    assert!(daemons["error"].as_str().unwrap().starts_with("EPD01"), "{report}");
    assert_eq!(report["database"]["reachable"], true);
    let row = |name: &str, version: &str, api: &str| joining(&server, name, version, api);
    let mut tx = server.app.store.single().await.unwrap();
    daemons::upsert(&mut tx, &row("same", "v2.30.7", "1.14"), server.app.now()).await.unwrap();
    daemons::upsert(&mut tx, &row("older", "v2.24.0", "1.9"), server.app.now()).await.unwrap();
    drop(tx);
    let report = server.get(&owner, HEALTH).await.expect(200);
    let daemons = &report["provisioner_daemons"];
    assert_eq!((&daemons["severity"], &daemons["warnings"][0]["code"]), (&json!("warning"), &json!("EPD02")));
    assert_eq!(daemons["items"][0]["provisioner_daemon"]["name"], "older");
    assert_eq!(daemons["items"][0]["warnings"][0]["code"], "EPD02");
    assert_eq!(daemons["items"][1]["warnings"], json!([]));
    let shown = server.get(&owner, DAEMONS).await.expect(200);
    let of = |name: &str| shown.as_array().unwrap().iter().find(|row| row["name"] == name).unwrap().clone();
    assert_eq!(
        (&of("older")["version_skew"], &of("older")["api_version_skew"]),
        (&json!("behind"), &json!("behind"))
    );
    assert_eq!((&of("same")["version_skew"], &of("same")["draining"]), (&json!("same"), &json!(false)));
    let mut tx = server.app.store.single().await.unwrap();
    daemons::upsert(&mut tx, &row("older", "v2.30.0", "2.0"), server.app.now()).await.unwrap();
    drop(tx);
    let report = server.get(&owner, HEALTH).await.expect(200);
    assert_eq!(report["provisioner_daemons"]["warnings"][0]["code"], "EPD03");
    server.advance(91);
    let report = server.get(&owner, HEALTH).await.expect(200);
    assert!(
        report["provisioner_daemons"]["error"].as_str().unwrap().starts_with("EPD01"),
        "stale daemons do not count"
    );
}

#[tokio::test]
async fn a_daemon_that_can_run_no_jobs_shows_everywhere() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let (broken, session) = DaemonConnection::fresh(&server.app, "broken").await;
    let detail = "neither terraform nor tofu was found in PATH: install one";
    let report = HealthReport { problem: "no Terraform".to_owned(), detail: detail.to_owned() };
    broken.ext.report_health(&report).await.unwrap();
    let posted = import(&server, &owner, json!({})).await.1;
    let path = format!("/api/v2/organizations/default/provisionerjobs/{posted}/explain");
    let explained = server.get(&owner, &path).await.expect(200);
    assert_eq!(explained["reasons"][0]["code"], "unhealthy");
    let shown = async || server.get(&owner, DAEMONS).await.expect(200)[0].clone();
    let row = shown().await;
    assert_eq!((&row["problem"], &row["problem_detail"]), (&json!("no Terraform"), &json!(detail)));
    assert_eq!(row["status"], "idle", "the official field has an official value");
    let unhealthy = async |expected: u32| {
        let text = scrape(&server).await;
        let line = text.lines().find(|line| line.starts_with("coderd_provisioning_daemons_unhealthy{"));
        assert!(line.is_some_and(|line| line.ends_with(&format!("}} {expected}"))), "{line:?}");
    };
    unhealthy(1).await;
    // The only daemon cannot run jobs.
    let report = server.get(&owner, HEALTH).await.expect(200);
    let daemons = &report["provisioner_daemons"];
    assert_eq!((&report["healthy"], &daemons["severity"]), (&json!(false), &json!("error")));
    assert!(daemons["error"].as_str().unwrap().starts_with("EPD90"), "{report}");
    let warning = &daemons["items"][0]["warnings"][0];
    assert_eq!(warning["code"], "EPD90");
    assert_eq!(warning["message"], format!("unhealthy: no Terraform: {detail}"));
    // A daemon that reconnects must report its problem again. A healthy daemon reports that it is healthy.
    broken.cut();
    let (broken, _) = DaemonConnection::again(&server.app, "broken", &session, vec![]).await;
    unhealthy(0).await;
    let problem = HealthReport { problem: "no Terraform".to_owned(), detail: String::new() };
    broken.ext.report_health(&problem).await.unwrap();
    unhealthy(1).await;
    broken.ext.report_health(&HealthReport::default()).await.unwrap();
    unhealthy(0).await;
    let report = server.get(&owner, HEALTH).await.expect(200);
    assert!(!report.to_string().contains("EPD90"), "{report}");
}

#[tokio::test]
async fn epd90_one_daemon_of_several_that_can_run_no_jobs_is_a_warning() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let mut tx = server.app.store.single().await.unwrap();
    for name in ["broken", "good"] {
        let id = daemons::upsert(&mut tx, &joining(&server, name, "v2.30.7", "1.14"), server.app.now()).await;
        let problem = if name == "broken" { "no Terraform" } else { "" };
        daemons::update_health(&mut tx, id.unwrap(), problem, problem).await.unwrap();
    }
    drop(tx);
    let report = server.get(&owner, HEALTH).await.expect(200);
    let daemons = &report["provisioner_daemons"];
    assert_eq!((&report["healthy"], &daemons["severity"]), (&json!(true), &json!("warning")));
    assert_eq!((&daemons["error"], &daemons["warnings"][0]["code"]), (&Value::Null, &json!("EPD90")));
    assert_eq!(daemons["items"][0]["warnings"][0]["code"], "EPD90");
    assert_eq!(daemons["items"][1]["warnings"], json!([]));
}

#[tokio::test]
async fn draining_is_for_those_who_may_change_daemons() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let member = server.user(&owner, "member", &[]).await;
    let daemon = Daemon::untagged(&server, "d").await;
    let path = format!("{DAEMONS}/d/drain");
    server.post("", &path, Value::Null).await.expect(401);
    server.post(&member, &path, Value::Null).await.expect(403);
    server.post(&owner, &format!("{DAEMONS}/other/drain"), Value::Null).await.expect(404);
    assert!(daemon.calls.session().end().is_none());
    server.post(&owner, &format!("{DAEMONS}/{}/drain", daemon.id), Value::Null).await.expect(200);
    assert!(daemon.calls.session().end().is_none(), "it gets no jobs and stays connected");
    daemon.calls.session().close().await;
    eventually("it has left", || server.app.scheduler.connected().is_empty()).await;
    server.advance(91);
    server.post(&owner, &path, Value::Null).await.expect(404);
    server.delete("", &path).await.expect(401);
    server.delete(&member, &path).await.expect(403);
    server.delete(&owner, &path).await.expect(200);
}
