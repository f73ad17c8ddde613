//! Calls every route without a token, with that of an admin of another organization, of a plain member, and of the owner with a
//! scope that only opens apps, and compares the statuses with `unauthorized.txt`, in that order. A route that is missing there
//! fails. No response may contain data of the owner.
//!
//! `UPDATE_REFERENCE=1` writes the file. Review the difference before committing it.

use std::fmt::Write;

use coder_server::router;
use coder_server::router::table::{Access, Row};
use http::Method;
use serde_json::{Value, json};

use crate::agents::rig::insert_agent;
use crate::harness::{Answer, TestServer};

const GOLDEN: &str = include_str!("unauthorized.txt");

/// What members may do with the owner's objects: a dry run of a template creates their own job.
const OPEN_TO_MEMBERS: &[&str] = &[coder_api::paths::DRY_RUNS];

/// The owner's objects, by the names of path parameters.
struct Things(Vec<(&'static str, String)>);

impl Things {
    async fn make(server: &TestServer, owner: &str) -> Self {
        let (template, version) = server.template(owner, "hello").await;
        let (workspace, build, job) = server.workspace(owner, template, "w").await;
        let (agent, ..) = insert_agent(server, job).await;
        let path = format!("/api/v2/templateversions/{version}/dry-run");
        let job = server.post(owner, &path, json!({ "workspace_name": "x" })).await.expect(201);
        let name = server.get(owner, &format!("/api/v2/templateversions/{version}")).await.expect(200);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self(vec![
            ("organization", "default".to_owned()),
            ("organizationname", "default".to_owned()),
            ("user", "admin".to_owned()),
            ("template", template.to_string()),
            ("templatename", "hello".to_owned()),
            ("templateversion", version.to_string()),
            ("templateversionname", text(&name["name"])),
            ("workspace", workspace),
            ("workspacename", "w".to_owned()),
            ("workspaceagent", agent.to_string()),
            ("workspacebuild", build),
            ("buildnumber", "1".to_owned()),
            ("job", text(&job["id"])),
            ("fileid", server.file(owner).await.to_string()),
            ("keyid", owner.split_once('-').unwrap().0.to_owned()),
            ("keyname", "none".to_owned()),
            ("externalauth", "none".to_owned()),
            ("provisionerkey", "none".to_owned()),
            ("daemon", "none".to_owned()),
            ("name", "coder-plan9-mips".to_owned()),
        ])
    }

    /// Whether a text contains data that only the owner may see.
    fn shown_in(&self, text: &str) -> Option<&str> {
        let secret =
            ["template", "templateversion", "workspace", "workspaceagent", "workspacebuild", "job", "fileid"];
        let ids = self.0.iter().filter(|(name, _)| secret.contains(name)).map(|(_, id)| id.as_str());
        ids.chain(["admin@example.com"]).find(|id| text.contains(id))
    }

    fn fill(&self, path: &str) -> String {
        self.0.iter().fold(path.to_owned(), |path, (name, value)| path.replace(&format!("{{{name}}}"), value))
    }
}

async fn ask(server: &TestServer, token: &str, row: &Row, things: &Things) -> Answer {
    let path = things.fill(&row.path);
    assert!(!path.contains('{'), "the walk does not know a value for {path}");
    let body = if row.method == Method::GET { Value::Null } else { json!({}) };
    server.ask(token, row.method.clone(), &path, body).await
}

/// A separate token for each request, because a logout would end the token of later requests.
async fn fresh(server: &TestServer, token: &str, row: &Row) -> String {
    if token.is_empty() || !row.path.ends_with("/logout") {
        return token.to_owned();
    }
    let key = server.post(token, "/api/v2/users/me/keys", Value::Null).await;
    // The weak token cannot create another one. It may delete itself only after all other requests.
    if key.status != 201 { token.to_owned() } else { key.json()["key"].as_str().unwrap().to_owned() }
}

async fn weak_token(server: &TestServer, owner: &str) -> String {
    let body = json!({ "scopes": ["coder:application_connect"] });
    let key = server.post(owner, "/api/v2/users/me/keys/tokens", body).await.expect(201);
    key["key"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn every_route_is_closed_to_those_without_rights() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let member = server.user(&owner, "dev", &[]).await;
    let foreign = server.user(&owner, "eve", &[]).await;
    server.post(&owner, "/api/v2/organizations", json!({ "name": "elsewhere" })).await.expect(201);
    server.post(&owner, "/api/v2/organizations/elsewhere/members/eve", Value::Null).await.expect(200);
    let roles = json!({ "roles": ["organization-admin"] });
    server.put(&owner, "/api/v2/organizations/elsewhere/members/eve/roles", roles).await.expect(200);
    server.delete(&owner, "/api/v2/organizations/default/members/eve").await.expect(204);
    // Administrators of an organization may know its members, so the owner leaves it.
    server.delete(&foreign, "/api/v2/organizations/elsewhere/members/admin").await.expect(204);
    let things = Things::make(&server, &owner).await;

    let mut seen = String::new();
    for row in router::rows(server.app.clone()) {
        let weak = weak_token(&server, &owner).await;
        let mut statuses = [0; 4];
        for (index, token) in ["", &foreign, &member, &weak].into_iter().enumerate() {
            let token = fresh(&server, token, &row).await;
            let answer = ask(&server, &token, &row, &things).await;
            statuses[index] = answer.status.as_u16();
            let shown = things.shown_in(&answer.text()).filter(|_| index != 2).map(str::to_owned);
            assert_eq!(shown, None, "{} {} shows it to column {index}", row.method, row.path);
        }
        let [none, foreign, member, weak] = statuses;
        if row.access == Access::Authenticated {
            assert_eq!(none, 401, "{} {}", row.method, row.path);
            let changes = row.method != Method::GET && !row.path.ends_with("/logout");
            assert!(!changes || foreign >= 400, "a stranger may {} {}", row.method, row.path);
            assert!(!changes || weak >= 400, "a weak token may {} {}", row.method, row.path);
            let open = OPEN_TO_MEMBERS.contains(&row.path.as_str());
            assert!(
                !changes || open || member >= 400,
                "a member may {} {} of the owner",
                row.method,
                row.path
            );
        }
        assert!(statuses.iter().all(|status| *status < 500), "{} {}: {statuses:?}", row.method, row.path);
        writeln!(seen, "{:6} {} {none} {foreign} {member} {weak}", row.method.as_str(), row.path).unwrap();
    }
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/unauthorized.txt"), &seen).unwrap();
        return;
    }
    assert_eq!(seen, GOLDEN, "the routes or their statuses changed; see the head of unauthorized.rs");
}
