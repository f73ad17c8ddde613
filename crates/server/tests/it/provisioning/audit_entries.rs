//! Audit entries of builds and imports, with the user and the origin of the request (scheduling-and-auth 5.4); filters of the
//! audit log, and its lines in the server's log.

use std::sync::{Mutex, OnceLock};

use axum::body::Body;
use coder_domain::job::lifecycle::{Cause, Ending, Guard};
use http::Request;
use tracing::field::{Field, Visit};
use tracing::span;

use super::*;

async fn entries(server: &TestServer, token: &str, q: &str) -> Vec<Value> {
    let q: String = url::form_urlencoded::byte_serialize(q.as_bytes()).collect();
    let answer = server.get(token, &format!("/api/v2/audit?q={q}&limit=500")).await.expect(200);
    answer["audit_logs"].as_array().unwrap().clone()
}

async fn start(server: &TestServer, token: &str, workspace: &str, transition: &str) -> JobId {
    let body = json!({ "transition": transition, "reason": "cli" });
    let request = Request::post(format!("/api/v2/workspaces/{workspace}/builds"))
        .header("coder-session-token", token)
        .header("user-agent", "coder-cli/9")
        .body(Body::from(body.to_string()))
        .unwrap();
    let made = server.send(request).await.expect(201);
    made["job"]["id"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn builds_and_imports_are_written_down_when_they_end() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let daemon = Daemon::untagged(&server, "d").await;
    let (version, imported) = import(&server, &owner, json!({})).await;
    daemon.take(imported).await;
    daemon.calls.complete_job(&import_result(imported, vec![])).await.unwrap();
    let broken = import(&server, &owner, json!({})).await.1;
    daemon.take(broken).await;
    daemon.fail(broken, "no such module").await.unwrap();
    let body = json!({ "name": "hello", "template_version_id": version });
    let template = server.post(&owner, "/api/v2/organizations/default/templates", body).await.expect(201);
    let template = template["id"].as_str().unwrap().parse().unwrap();
    let (workspace, build, first) = server.workspace(&owner, template, "w").await;
    assert!(entries(&server, &owner, "resource_type:workspace_build").await.is_empty(), "it has not ended");
    daemon.take(first).await;
    daemon.calls.complete_job(&build_result(first, b"{}")).await.unwrap();
    let second = start(&server, &owner, &workspace, "stop").await;
    daemon.take(second).await;
    daemon.fail(second, "exit status 1").await.unwrap();

    let builds = entries(&server, &owner, "resource_type:workspace_build").await;
    let told = |entry: &Value| {
        let field = |name: &str| entry[name].as_str().unwrap().to_owned();
        (field("action"), entry["status_code"].as_i64().unwrap(), field("request_id"), field("user_agent"))
    };
    assert_eq!(told(&builds[0]), ("stop".into(), 500, second.to_string(), "coder-cli/9".into()));
    assert_eq!(told(&builds[1]), ("start".into(), 200, first.to_string(), String::new()));
    assert_eq!(builds[0]["description"], "{user} unsuccessfully tried to stop workspace build {target}");
    let (of, name) = (&builds[1], "w");
    assert_eq!((of["resource_id"].as_str(), of["resource_target"].as_str()), (Some(&*build), Some(name)));
    assert_eq!((of["user"]["username"].as_str(), of["ip"].as_str()), (Some("admin"), Some("127.0.0.1")));
    assert_eq!(
        of["additional_fields"],
        json!({ "workspace_id": workspace, "workspace_name": name, "workspace_owner": "admin",
            "build_number": "1", "build_reason": "initiator" })
    );
    let by_reason = entries(&server, &owner, "build_reason:cli").await;
    assert_eq!((by_reason.len(), &by_reason[0]), (1, &builds[0]));
    let by_request = entries(&server, &owner, &format!("request_id:{first}")).await;
    assert_eq!((by_request.len(), &by_request[0]), (1, of));
    server.get(&owner, "/api/v2/audit?q=request_id:x").await.expect(400);

    let imports = entries(&server, &owner, "resource_type:template_version action:write").await;
    let outcomes: Vec<_> = imports.iter().map(|entry| entry["status_code"].as_i64().unwrap()).collect();
    assert_eq!(outcomes, [500, 200]);
    assert_eq!(imports[1]["diff"]["import"]["new"], "succeeded");

    // Its user does not exist any more. The server ends it.
    let third = start(&server, &owner, &workspace, "start").await;
    daemon.take(third).await;
    let ending = Ending { guard: Guard::Open, cause: Cause::DaemonLost };
    coder_server::provisioning::rescue::end_job::end_job(&server.app, third, &ending).await.unwrap();
    let builds = entries(&server, &owner, "resource_type:workspace_build").await;
    assert_eq!(told(&builds[0]), ("start".into(), 500, third.to_string(), "coder-cli/9".into()));
    assert_eq!(builds.len(), 3);
}

/// Collects the logged audit entries of all servers of this test program.
///
/// It is the global subscriber: tracing caches for each call site whether a subscriber is interested, and a subscriber
/// of one thread races with other tests for this cache.
#[derive(Default)]
struct Lines(Mutex<Vec<BTreeMap<String, String>>>);

impl Lines {
    fn installed() -> &'static Self {
        static LINES: OnceLock<&'static Lines> = OnceLock::new();
        LINES.get_or_init(|| {
            let lines: &'static Lines = Box::leak(Box::default());
            tracing::subscriber::set_global_default(lines).expect("no other subscriber is installed");
            lines
        })
    }

    /// The entries about actions of this user.
    fn of(&self, user: &str) -> Vec<BTreeMap<String, String>> {
        let quoted = format!("{user:?}");
        let by_user = |line: &&BTreeMap<String, String>| {
            line.get("UserID").is_some_and(|id| *id == user || *id == quoted)
        };
        self.0.lock().unwrap().iter().filter(by_user).cloned().collect()
    }
}

struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl tracing::Subscriber for &'static Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.fields().field("ResourceTarget").is_some()
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields(BTreeMap::new());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn entries_are_lines_of_the_servers_log_once_they_are_permanent() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let lines = Lines::installed();
    let me = server.get(&owner, "/api/v2/users/me").await.expect(200);
    let me = me["id"].as_str().unwrap();
    let before = lines.of(me).len();
    let path = "/api/v2/organizations";
    server.post(&owner, path, json!({ "name": "coder" })).await.expect(409);
    assert_eq!(lines.of(me).len(), before, "the transaction was rolled back");
    server.post(&owner, path, json!({ "name": "blue" })).await.expect(201);
    let lines = lines.of(me).split_off(before);
    assert_eq!(lines.len(), 2, "the organization and its first member");
    let names: Vec<_> = lines[0].keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "Action",
            "AdditionalFields",
            "Diff",
            "ID",
            "Ip",
            "OrganizationID",
            "RequestID",
            "ResourceID",
            "ResourceIcon",
            "ResourceTarget",
            "ResourceType",
            "StatusCode",
            "Time",
            "UserAgent",
            "UserID",
            "message",
        ]
    );
    assert_eq!(lines[0]["message"], "audit_log");
    assert_eq!(lines[0]["ResourceTarget"], "\"blue\"");
    assert_eq!(lines[0]["StatusCode"], "201");
}
