//! Every route that changes something writes an entry into the audit log, or is in the list of those that do not, with the
//! reason. A route that is in neither fails this test.

use std::collections::BTreeSet;

use axum::body::Body;
use coder_api::paths;
use coder_server::router;
use coder_store::audit;
use http::{Method, Request};
use serde_json::{Value, json};

use crate::harness::{Answer, PASSWORD, TestServer, settings};

/// Routes that write no entry.
const UNAUDITED: &[(&str, &str, &str)] = &[
    (
        "POST",
        paths::WORKSPACE_BUILDS,
        "the entry is written when the build ends, see provisioning/audit_entries.rs",
    ),
    ("POST", "/login", "opens its session as POST /users/login does"),
    ("POST", paths::CLI_AUTH, "makes its session as POST /users/{user}/keys does"),
    ("POST", paths::EXTERNAL_AUTH_PAGE, ACCOUNTS),
    ("POST", paths::EXTERNAL_AUTH_DEVICE, ACCOUNTS),
    ("DELETE", paths::EXTERNAL_AUTH, ACCOUNTS),
    ("POST", paths::WORKSPACE_USAGE, "the use of a workspace is not a change that an auditor looks for"),
    ("POST", paths::WORKSPACE_PORT_SHARE, PORTS),
    ("DELETE", paths::WORKSPACE_PORT_SHARE, PORTS),
    ("PATCH", paths::AGENT_OWN_LOGS, "the log of an agent is its own record"),
    ("POST", paths::AGENT_LOG_SOURCE, "the log of an agent is its own record"),
    ("POST", paths::AWS_INSTANCE_IDENTITY, NO_IDENTITIES),
    ("POST", paths::AZURE_INSTANCE_IDENTITY, NO_IDENTITIES),
    ("POST", paths::GOOGLE_INSTANCE_IDENTITY, NO_IDENTITIES),
    ("POST", paths::ORGANIZATION_ROLES, NO_CUSTOM_ROLES),
    ("PUT", paths::ORGANIZATION_ROLES, NO_CUSTOM_ROLES),
];

const ACCOUNTS: &str = "the audit log does not cover external authentication (scheduling-and-auth 5.4)";

const NO_IDENTITIES: &str = "identity documents of clouds are refused";

const PORTS: &str = "the audit log does not cover shared ports (scheduling-and-auth 5.4)";

const NO_CUSTOM_ROLES: &str = "there are no custom roles, so it is refused with 403";

const DEFAULT: &str = "/api/v2/organizations/default";

/// The requests so far.
struct Walk {
    server: TestServer,
    owner: String,
    written: BTreeSet<(String, String)>,
}

impl Walk {
    async fn entries(&self) -> i64 {
        let mut tx = self.server.app.store.reader().await.unwrap();
        audit::count(&mut tx, &audit::AuditFilter::default()).await.unwrap()
    }

    /// A request of the owner to a route, which must succeed and write at least one entry.
    async fn go(&mut self, method: Method, route: &'static str, names: &[&str], body: Value) -> Answer {
        let token = self.owner.clone();
        self.go_as(&token, method, route, names, body).await
    }

    async fn go_as(
        &mut self,
        token: &str,
        method: Method,
        route: &'static str,
        names: &[&str],
        body: Value,
    ) -> Answer {
        let mut path = String::new();
        let mut names = names.iter();
        for (index, part) in route.split(['{', '}']).enumerate() {
            path.push_str(if index % 2 == 1 { names.next().unwrap() } else { part });
        }
        let before = self.entries().await;
        let answer = self.server.ask(token, method.clone(), &path, body).await;
        assert!(answer.status.is_success(), "{method} {path}: {answer:?}");
        assert!(self.entries().await > before, "{method} {route} leaves no entry");
        self.written.insert((method.to_string(), route.to_owned()));
        answer
    }
}

fn text(answer: Answer, key: &str) -> String {
    answer.json()[key].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn every_route_that_changes_something_is_in_the_audit_log() {
    let mut config = settings();
    config.workspaces.renames = true;
    let server = TestServer::sqlite_with(config).await;
    let first = json!({ "email": "admin@example.com", "username": "admin", "password": PASSWORD });
    let mut walk = Walk { server, owner: String::new(), written: BTreeSet::new() };
    let nothing = || Value::Null;
    let (post, patch, delete) = (Method::POST, Method::PATCH, Method::DELETE);
    walk.go(post.clone(), paths::FIRST_USER, &[], first).await;
    let login = json!({ "email": "admin@example.com", "password": PASSWORD });
    walk.owner = text(walk.go(post.clone(), paths::LOGIN, &[], login.clone()).await, "session_token");
    let other = walk.server.login("admin@example.com").await;
    walk.go_as(&other, post.clone(), paths::LOGOUT, &[], nothing()).await;

    people(&mut walk).await;

    walk.go(post.clone(), paths::PROVISIONER_KEYS, &["default"], json!({ "name": "k" })).await;
    let soon = json!({ "expires_in_seconds": 60 });
    walk.go(patch.clone(), paths::PROVISIONER_KEY, &["default", "k"], soon).await;
    walk.go(post.clone(), paths::PROVISIONER_KEY_ROTATE, &["default", "k"], json!({})).await;
    walk.go(delete.clone(), paths::PROVISIONER_KEY, &["default", "k"], nothing()).await;
    let serve = format!("{DEFAULT}/provisionerdaemons/serve?provisioner=terraform&name=d");
    walk.server.get(&walk.owner, &serve).await.expect(426);
    let mut tx = walk.server.app.store.single().await.unwrap();
    let seen =
        coder_store::daemons::list(&mut tx, &coder_store::daemons::DaemonFilter::default()).await.unwrap();
    let (own, now) = (walk.server.app.events.outbox().own(), walk.server.app.now());
    coder_store::daemons::update_seen(&mut tx, &[seen[0].id], own, now).await.unwrap();
    drop(tx);
    walk.go(post.clone(), paths::DAEMON_DRAIN, &["default", "d"], json!({})).await;
    walk.go(delete.clone(), paths::DAEMON_DRAIN, &["default", "d"], nothing()).await;

    let archive = Request::post(paths::FILES)
        .header("coder-session-token", &walk.owner)
        .header("content-type", "application/x-tar")
        .body(Body::from(crate::harness::tar(&[("main.tf", "resource {}")])))
        .unwrap();
    let before = walk.entries().await;
    let file = text(walk.server.send(archive).await, "hash");
    assert!(walk.entries().await > before);
    walk.written.insert(("POST".to_owned(), paths::FILES.to_owned()));

    templates(&mut walk, &file).await;

    walk.go(delete.clone(), paths::MEMBER, &["default", "bob"], nothing()).await;
    walk.go(delete, paths::USER, &["bob"], nothing()).await;

    let silent: BTreeSet<_> = UNAUDITED.iter().map(|(m, p, _)| ((*m).to_owned(), (*p).to_owned())).collect();
    let mutating: BTreeSet<_> = router::rows(walk.server.app.clone())
        .into_iter()
        .filter(|row| row.method != Method::GET)
        .map(|row| (row.method.to_string(), row.path))
        .collect();
    let known: BTreeSet<_> = walk.written.union(&silent).cloned().collect();
    let forgotten: Vec<_> = mutating.difference(&known).collect();
    assert!(forgotten.is_empty(), "no audit entry, and not in the list of exceptions: {forgotten:?}");
    let invented: Vec<_> = known.difference(&mutating).collect();
    assert!(invented.is_empty(), "routes that do not exist: {invented:?}");
    assert!(walk.written.is_disjoint(&silent), "an exception is not needed any more");

    let mut tx = walk.server.app.store.reader().await.unwrap();
    for entry in audit::list(&mut tx, &audit::AuditFilter::default(), 1000, 0).await.unwrap() {
        let told = format!("{} {}", entry.diff, entry.additional_fields);
        for secret in [PASSWORD, walk.owner.as_str(), "AnotherSecret", "sealed"] {
            assert!(!told.contains(secret), "{} {} tells a secret", entry.action, entry.resource_type);
        }
    }
}

async fn people(walk: &mut Walk) {
    let (post, put, patch, delete) = (Method::POST, Method::PUT, Method::PATCH, Method::DELETE);
    let nothing = || Value::Null;
    let bob = json!({ "email": "bob@example.com", "username": "bob", "password": PASSWORD,
        "organization_ids": ["00000000-0000-0000-0000-000000000000"] });
    walk.go(post.clone(), paths::USERS, &[], bob).await;
    walk.go(put.clone(), paths::USER_ROLES, &["bob"], json!({ "roles": ["auditor"] })).await;
    walk.go(put.clone(), paths::USER_PROFILE, &["bob"], json!({ "username": "bob", "name": "B" })).await;
    let secret = json!({ "password": "AnotherSecret!22" });
    walk.go(put.clone(), paths::USER_GIT_SSH_KEY, &["me"], json!({})).await;
    let quiet = json!({ "schedule": "CRON_TZ=Europe/Berlin 0 1 * * *" });
    walk.go(put.clone(), paths::USER_QUIET_HOURS, &["me"], quiet).await;
    walk.go(put.clone(), paths::USER_PASSWORD, &["bob"], secret).await;
    walk.go(put.clone(), paths::USER_SUSPEND, &["bob"], nothing()).await;
    walk.go(put.clone(), paths::USER_ACTIVATE, &["bob"], nothing()).await;
    walk.go(post.clone(), paths::USER_KEYS, &["me"], nothing()).await;
    walk.go(post.clone(), paths::USER_TOKENS, &["me"], json!({ "token_name": "ci" })).await;
    let token = walk.server.get(&walk.owner, "/api/v2/users/me/keys/tokens/ci").await;
    walk.go(delete.clone(), paths::USER_KEY, &["me", &text(token, "id")], nothing()).await;

    walk.go(post.clone(), paths::ORGANIZATIONS, &[], json!({ "name": "blue" })).await;
    walk.go(patch.clone(), paths::ORGANIZATION, &["blue"], json!({ "display_name": "Sea" })).await;
    walk.go(post, paths::MEMBER, &["blue", "bob"], nothing()).await;
    let roles = json!({ "roles": ["organization-auditor"] });
    walk.go(put, paths::MEMBER_ROLES, &["blue", "bob"], roles).await;
    walk.go(delete.clone(), paths::MEMBER, &["blue", "bob"], nothing()).await;
    walk.go(delete, paths::ORGANIZATION, &["blue"], nothing()).await;
}

async fn templates(walk: &mut Walk, file: &str) {
    let (post, put, patch, delete) = (Method::POST, Method::PUT, Method::PATCH, Method::DELETE);
    let nothing = || Value::Null;
    let source = |template: Option<&str>| {
        let mut body = json!({ "file_id": file, "storage_method": "file", "provisioner": "terraform" });
        if let Some(template) = template {
            body["template_id"] = json!(template);
        }
        body
    };
    let pushed =
        walk.go(post.clone(), paths::CREATE_TEMPLATE_VERSION, &["default"], source(None)).await.json();
    let id = |value: &Value| value.as_str().unwrap().to_owned();
    let version = id(&pushed["id"]);
    walk.server.finish(id(&pushed["job"]["id"]).parse().unwrap(), "").await;
    let body = json!({ "name": "hello", "template_version_id": version });
    let template = text(walk.go(post.clone(), paths::ORGANIZATION_TEMPLATES, &["default"], body).await, "id");
    let changed = json!({ "name": "hello2", "allow_user_autostart": true, "allow_user_autostop": true,
        "allow_user_cancel_workspace_jobs": true });
    walk.go(patch.clone(), paths::TEMPLATE, &[&template], changed).await;
    let private = json!({ "group_perms": { walk.server.app.default_organization.to_string(): "" } });
    walk.go(patch.clone(), paths::TEMPLATE_ACL, &[&template], private).await;
    let push = async |walk: &mut Walk, fine: bool| {
        let path = format!("{DEFAULT}/templateversions");
        let made = walk.server.post(&walk.owner, &path, source(Some(&template))).await.expect(201);
        if fine {
            walk.server.finish(id(&made["job"]["id"]).parse().unwrap(), "").await;
        }
        id(&made["id"])
    };
    let next = push(walk, true).await;
    walk.go(patch.clone(), paths::TEMPLATE_VERSIONS, &[&template], json!({ "id": next })).await;
    walk.go(patch.clone(), paths::VERSION, &[&version], json!({ "name": "one" })).await;
    walk.go(post.clone(), paths::VERSION_ARCHIVE, &[&version], nothing()).await;
    walk.go(post.clone(), paths::VERSION_UNARCHIVE, &[&version], nothing()).await;
    let all = json!({ "all": true });
    walk.go(post.clone(), paths::TEMPLATE_VERSIONS_ARCHIVE, &[&template], all).await;
    let waiting = push(walk, false).await;
    walk.go(patch.clone(), paths::VERSION_CANCEL, &[&waiting], nothing()).await;
    let dry = walk.go(post.clone(), paths::DRY_RUNS, &[&next], json!({ "workspace_name": "x" })).await;
    walk.go(patch.clone(), paths::DRY_RUN_CANCEL, &[&next, &text(dry, "id")], nothing()).await;

    let body = |name: &str| json!({ "name": name, "template_id": template });
    let made = walk.go(post.clone(), paths::USER_WORKSPACES, &["me"], body("one")).await.json();
    let two = walk.go(post.clone(), paths::MEMBER_WORKSPACES, &["default", "me"], body("two")).await.json();
    walk.server.finish(id(&two["latest_build"]["job"]["id"]).parse().unwrap(), "").await;
    // Without a daemon, nothing else sets the deadline.
    walk.server.execute("update workspace_builds set deadline_us = 1780010000000000").await;
    let later = json!({ "deadline": "2026-05-28T23:00:00Z" });
    walk.go(put.clone(), paths::WORKSPACE_EXTEND, &[&id(&two["id"])], later).await;
    let (workspace, build) = (id(&made["id"]), id(&made["latest_build"]["id"]));
    walk.go(patch.clone(), paths::BUILD_CANCEL, &[&build], nothing()).await;
    walk.go(put.clone(), paths::BUILD_STATE, &[&build], json!({ "state": "c2VhbGVk" })).await;
    walk.go(patch, paths::WORKSPACE, &[&workspace], json!({ "name": "uno" })).await;
    let schedule = json!({ "schedule": "CRON_TZ=Europe/Berlin 30 9 * * 1-5" });
    walk.go(put.clone(), paths::WORKSPACE_AUTOSTART, &[&workspace], schedule).await;
    walk.go(put.clone(), paths::WORKSPACE_TTL, &[&workspace], json!({ "ttl_ms": 3_600_000 })).await;
    let updates = json!({ "automatic_updates": "always" });
    walk.go(put.clone(), paths::WORKSPACE_AUTOUPDATES, &[&workspace], updates).await;
    walk.go(put.clone(), paths::WORKSPACE_FAVORITE, &[&workspace], nothing()).await;
    walk.go(delete.clone(), paths::WORKSPACE_FAVORITE, &[&workspace], nothing()).await;
    walk.go(put, paths::WORKSPACE_DORMANT, &[&workspace], json!({ "dormant": true })).await;
    let pushed = walk.server.version(&walk.owner, json!({})).await;
    let body = json!({ "name": "empty", "template_version_id": pushed.0 });
    let made = walk.server.post(&walk.owner, &format!("{DEFAULT}/templates"), body).await.expect(201);
    walk.go(delete, paths::TEMPLATE, &[&id(&made["id"])], nothing()).await;
}
