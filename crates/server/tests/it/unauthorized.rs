//! Walks the whole route table without a token, with a stranger's (a user in no organization) and with a plain
//! member's, and compares the statuses with `unauthorized.txt`. A route missing there fails.
//!
//! `CODER_UPDATE_GOLDEN=1` writes the file anew; read the difference before committing it.

use std::fmt::Write;

use coder_server::http::router;
use coder_server::http::table::{Access, Row};
use http::Method;
use serde_json::{Value, json};

use crate::harness::TestServer;

const GOLDEN: &str = include_str!("unauthorized.txt");

/// What members may do with the owner's things: trying out a template makes a job of their own.
const OPEN_TO_MEMBERS: &[&str] = &[coder_api::paths::DRY_RUNS];

/// What the owner has, by the names of path parameters.
struct Things(Vec<(&'static str, String)>);

impl Things {
    async fn make(server: &TestServer, owner: &str) -> Self {
        let (template, version) = server.template(owner, "hello").await;
        let (workspace, build, _) = server.workspace(owner, template, "w").await;
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
            ("workspacebuild", build),
            ("buildnumber", "1".to_owned()),
            ("job", text(&job["id"])),
            ("fileid", server.file(owner).await.to_string()),
            ("keyid", owner.split_once('-').unwrap().0.to_owned()),
            ("keyname", "none".to_owned()),
            ("provisionerkey", "none".to_owned()),
            ("name", "coder-plan9-mips".to_owned()),
        ])
    }

    fn fill(&self, path: &str) -> String {
        self.0.iter().fold(path.to_owned(), |path, (name, value)| path.replace(&format!("{{{name}}}"), value))
    }
}

async fn ask(server: &TestServer, token: &str, row: &Row, things: &Things) -> u16 {
    let path = things.fill(&row.path);
    assert!(!path.contains('{'), "the walk does not know a value for {path}");
    let body = if row.method == Method::GET { Value::Null } else { json!({}) };
    server.ask(token, row.method.clone(), &path, body).await.status.as_u16()
}

#[tokio::test]
async fn every_route_is_closed_to_those_without_rights() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let member = server.user(&owner, "dev", &[]).await;
    let stranger = server.user(&owner, "eve", &[]).await;
    server.delete(&owner, "/api/v2/organizations/default/members/eve").await.expect(204);
    let things = Things::make(&server, &owner).await;

    let mut seen = String::new();
    for row in router::rows(server.app.clone()) {
        let mut statuses = [0; 3];
        for (status, token) in statuses.iter_mut().zip(["", &stranger, &member]) {
            // Log-out would end the token of all later requests.
            let fresh = if token.is_empty() || !row.path.ends_with("/logout") {
                token.to_owned()
            } else {
                let key = server.post(token, "/api/v2/users/me/keys", Value::Null).await.expect(201);
                key["key"].as_str().unwrap().to_owned()
            };
            *status = ask(&server, &fresh, &row, &things).await;
        }
        let [none, stranger, member] = statuses;
        if row.access == Access::Signed {
            assert_eq!(none, 401, "{} {}", row.method, row.path);
            let changes = row.method != Method::GET && !row.path.ends_with("/logout");
            assert!(!changes || stranger >= 400, "a stranger may {} {}", row.method, row.path);
            let open = OPEN_TO_MEMBERS.contains(&row.path.as_str());
            assert!(
                !changes || open || member >= 400,
                "a member may {} {} of the owner",
                row.method,
                row.path
            );
        }
        assert!(none < 500 && stranger < 500 && member < 500, "{} {}: {statuses:?}", row.method, row.path);
        writeln!(seen, "{:6} {} {none} {stranger} {member}", row.method.as_str(), row.path).unwrap();
    }
    if std::env::var("CODER_UPDATE_GOLDEN").is_ok() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/unauthorized.txt"), &seen).unwrap();
        return;
    }
    assert_eq!(seen, GOLDEN, "the routes or their statuses changed; see the head of unauthorized.rs");
}
