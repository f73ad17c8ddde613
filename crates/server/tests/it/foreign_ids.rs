//! Calls every route with ids of one organization as users of another one. The response must have the same status and text as
//! for an id that does not exist, nothing may change, and no data may be in the response. A route with a parameter or a field
//! that is missing in the tables here fails.

use std::collections::BTreeMap;

use coder_domain::ids::DaemonId;
use coder_domain::tags::TagSet;
use coder_server::router;
use coder_store::daemons::{self, NewDaemon};
use http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::agents::rig::insert_agent;
use crate::harness::{TestServer, on_both_engines, tar};

/// Parameters that identify nothing of an organization or a user: those of the site, and numbers that exist in every
/// workspace.
const NO_IDS: [&str; 3] = ["externalauth", "name", "buildnumber"];

/// The callers: roles in an organization that does not own the objects.
const ACTORS: [&str; 5] = [
    "organization-member",
    "organization-admin",
    "organization-template-admin",
    "organization-user-admin",
    "organization-auditor",
];

/// Callers who may add members may add every user by name, and so learn whether the user exists.
const ADDS_MEMBERS: [&str; 2] = ["organization-admin", "organization-user-admin"];

/// One set of objects, by the names of path parameters.
type Things = BTreeMap<&'static str, String>;

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// A template with a version, a dry run, a key, a daemon and a token, in an organization that the token's owner
/// manages, and a workspace of that user.
async fn things(server: &TestServer, token: &str, organization: &str, prefix: &str) -> Things {
    let post = async |path: String, body: Value| server.post(token, &path, body).await.expect(201);
    let source = tar(&[("main.tf", &format!("# {prefix}"))]);
    let file = text(&server.upload(token, "application/x-tar", source).await.json()["hash"]);
    let push = json!({ "file_id": file, "storage_method": "file", "provisioner": "terraform" });
    let base = format!("/api/v2/organizations/{organization}");
    let mut versions = Vec::new();
    for _ in 0..2 {
        let version = post(format!("{base}/templateversions"), push.clone()).await;
        server.finish(text(&version["job"]["id"]).parse().unwrap(), "").await;
        versions.push(version);
    }
    let (draft, version) = (&versions[0], &versions[1]);
    let name = format!("{prefix}-template");
    let request = json!({ "name": name, "template_version_id": version["id"] });
    let template = post(format!("{base}/templates"), request).await;
    let workspace = json!({ "name": format!("{prefix}-workspace"), "template_id": template["id"] });
    let workspace = post("/api/v2/users/me/workspaces".to_owned(), workspace).await;
    let build = &workspace["latest_build"];
    let job = text(&build["job"]["id"]).parse().unwrap();
    server.finish(job, "").await;
    let agent = insert_agent(server, job).await.0;
    let dry_run = format!("/api/v2/templateversions/{}/dry-run", text(&version["id"]));
    let job = post(dry_run, json!({ "workspace_name": "x" })).await;
    let key = json!({ "name": format!("{prefix}-key") });
    post(format!("{base}/provisionerkeys"), key).await;
    let minted =
        post("/api/v2/users/me/keys/tokens".to_owned(), json!({ "token_name": format!("{prefix}-token") }))
            .await;
    let me = server.get(token, "/api/v2/users/me").await.expect(200);
    let organization = server.get(token, &base).await.expect(200);
    let join = NewDaemon {
        organization_id: text(&organization["id"]).parse().unwrap(),
        name: format!("{prefix}-daemon"),
        key_id: coder_domain::ids::KeyId::USER_AUTH,
        provisioners: vec!["terraform".to_owned()],
        tags: TagSet::untagged(),
        version: String::new(),
        api_version: coder_domain::protocol::CURRENT.to_string(),
    };
    let mut tx = server.app.store.single().await.unwrap();
    let daemon = daemons::upsert(&mut tx, &join, server.app.now()).await.unwrap();
    BTreeMap::from([
        ("organization", text(&organization["id"])),
        ("organizationname", text(&organization["name"])),
        ("user", text(&me["id"])),
        ("template", text(&template["id"])),
        ("templatename", name),
        ("templateversion", text(&version["id"])),
        ("templateversionname", text(&version["name"])),
        ("workspace", text(&workspace["id"])),
        ("workspacename", format!("{prefix}-workspace")),
        ("workspaceagent", agent.to_string()),
        ("workspacebuild", text(&build["id"])),
        ("buildnumber", "1".to_owned()),
        ("job", text(&job["id"])),
        ("fileid", file),
        ("keyid", text(&minted["key"]).split_once('-').unwrap().0.to_owned()),
        ("keyname", format!("{prefix}-token")),
        ("provisionerkey", format!("{prefix}-key")),
        ("daemon", daemon.to_string()),
        ("draft", text(&draft["id"])),
    ])
}

/// Ids and names of the same format that do not exist.
fn ghosts() -> Things {
    let id = || Uuid::new_v4().to_string();
    let names = ["organizationname", "templatename", "templateversionname", "workspacename", "keyname"];
    let mut all: Things = names.into_iter().map(|name| (name, "ghost".to_owned())).collect();
    for name in [
        "organization",
        "user",
        "template",
        "templateversion",
        "workspace",
        "workspaceagent",
        "workspacebuild",
        "job",
        "fileid",
    ] {
        all.insert(name, id());
    }
    all.insert("daemon", DaemonId::random().to_string());
    all.insert("draft", id());
    all.insert("keyid", "ghostghost".to_owned());
    all.insert("provisionerkey", "ghost-key".to_owned());
    all
}

fn parameters(path: &str) -> Vec<&str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect()
}

/// Valid bodies without references to objects. Every route that changes something has a row.
fn request_body(method: &Method, path: &str) -> Value {
    let path = path.strip_prefix("/api/v2").unwrap_or(path);
    match (method.as_str(), path) {
        ("GET" | "DELETE", _) => Value::Null,
        ("PUT", "/users/{user}/roles" | "/organizations/{organization}/members/{user}/roles") => {
            json!({ "roles": [] })
        }
        ("PUT", "/users/{user}/profile") => json!({ "username": "renamed", "name": "Renamed" }),
        ("PUT", "/users/{user}/password") => json!({ "password": "AnotherSecret!22" }),
        (
            "PUT",
            "/users/{user}/status/suspend"
            | "/users/{user}/status/activate"
            | "/workspaces/{workspace}/favorite"
            | "/users/{user}/gitsshkey",
        )
        | ("POST", "/workspaces/{workspace}/usage")
        | ("POST", "/users/{user}/keys")
        | ("POST", "/organizations/{organization}/members/{user}")
        | ("POST", "/organizations/{organization}/provisionerkeys/{provisionerkey}/rotate")
        | ("PATCH", "/templateversions/{templateversion}/cancel")
        | ("PATCH", "/templateversions/{templateversion}/dry-run/{job}/cancel")
        | ("PATCH", "/workspacebuilds/{workspacebuild}/cancel")
        | ("POST", "/templateversions/{templateversion}/archive")
        | ("POST", "/templateversions/{templateversion}/unarchive") => json!({}),
        ("POST", "/users/{user}/keys/tokens") => json!({ "token_name": "stolen" }),
        ("POST", "/users/{user}/workspaces" | "/organizations/{organization}/members/{user}/workspaces") => {
            json!({ "name": "w", "template_id": Uuid::nil(), "template_version_id": Uuid::max() })
        }
        ("PATCH", "/organizations/{organization}") => json!({ "description": "changed" }),
        ("POST" | "PUT", "/organizations/{organization}/members/roles") => json!({ "name": "stolen" }),
        ("POST", "/organizations/{organization}/provisionerdaemons/{daemon}/drain") => {
            json!({ "reason": "stolen" })
        }
        ("POST", "/organizations/{organization}/provisionerkeys") => json!({ "name": "stolen" }),
        ("PATCH", "/organizations/{organization}/provisionerkeys/{provisionerkey}") => {
            json!({ "expires_at": null })
        }
        ("PATCH", "/templates/{template}") => json!({ "description": "changed" }),
        ("PATCH", "/templates/{template}/acl") => json!({}),
        ("PATCH", "/templates/{template}/versions") => json!({ "id": Uuid::max() }),
        ("POST", "/templates/{template}/versions/archive") => json!({ "all": true }),
        ("POST", "/organizations/{organization}/templates") => {
            json!({ "name": "stolen", "template_version_id": Uuid::max() })
        }
        ("POST", "/organizations/{organization}/templateversions") => {
            json!({ "file_id": Uuid::max(), "storage_method": "file", "provisioner": "terraform" })
        }
        ("PATCH", "/templateversions/{templateversion}") => json!({ "name": "changed" }),
        ("POST", "/templateversions/{templateversion}/dry-run") => json!({ "workspace_name": "x" }),
        ("PATCH", "/workspaces/{workspace}") => json!({ "name": "changed" }),
        ("POST", "/workspaces/{workspace}/port-share") => {
            json!({ "agent_name": "main", "port": 8080, "share_level": "public", "protocol": "http" })
        }
        ("PUT", "/workspaces/{workspace}/autostart") => json!({ "schedule": null }),
        ("PUT", "/workspaces/{workspace}/ttl") => json!({ "ttl_ms": 3_600_000 }),
        ("PUT", "/workspaces/{workspace}/extend") => json!({ "deadline": "2030-01-01T00:00:00Z" }),
        ("PUT", "/users/{user}/quiet-hours") => json!({ "schedule": "0 1 * * *" }),
        ("PUT", "/workspaces/{workspace}/autoupdates") => json!({ "automatic_updates": "always" }),
        ("PUT", "/workspaces/{workspace}/dormant") => json!({ "dormant": true }),
        ("POST", "/workspaces/{workspace}/builds") => json!({ "transition": "stop" }),
        ("PUT", "/workspacebuilds/{workspacebuild}/state") => json!({ "state": "e30=" }),
        (method, path) => panic!("the walk has no body for {method} {path}"),
    }
}

/// Fields of bodies that refer to an object: the route, the rest of the body, the field, and the object.
fn named_in_bodies() -> Vec<(&'static str, &'static str, Value, &'static str, &'static str)> {
    let workspace = || json!({ "name": "stolen" });
    let push = || json!({ "storage_method": "file", "provisioner": "terraform" });
    let mut all = vec![
        (
            "POST",
            "/organizations/{organization}/templates",
            json!({ "name": "stolen" }),
            "template_version_id",
            "draft",
        ),
        (
            "POST",
            "/organizations/{organization}/templates",
            json!({ "name": "stolen" }),
            "template_version_id",
            "templateversion",
        ),
        ("PATCH", "/templates/{template}/versions", json!({}), "id", "templateversion"),
        ("PATCH", "/templates/{template}/versions", json!({}), "id", "draft"),
        ("POST", "/organizations/{organization}/templateversions", push(), "file_id", "fileid"),
        ("POST", "/organizations/{organization}/templateversions", push(), "template_id", "template"),
        (
            "POST",
            "/workspaces/{workspace}/builds",
            json!({ "transition": "start" }),
            "template_version_id",
            "templateversion",
        ),
        (
            "POST",
            "/workspaces/{workspace}/builds",
            json!({ "transition": "start" }),
            "template_version_id",
            "draft",
        ),
    ];
    all.push((
        "POST",
        "/workspaces/{workspace}/usage",
        json!({ "app_name": "ssh" }),
        "agent_id",
        "workspaceagent",
    ));
    for path in ["/users/{user}/workspaces", "/organizations/{organization}/members/{user}/workspaces"] {
        for (field, thing) in [
            ("template_id", "template"),
            ("template_version_id", "templateversion"),
            ("template_version_id", "draft"),
        ] {
            all.push(("POST", path, workspace(), field, thing));
        }
    }
    all
}

/// A user of the other organization, with the objects of their own that they can name.
struct Actor {
    role: &'static str,
    token: String,
    own: Things,
}

impl Actor {
    /// Sends a request with these objects in the path. Returns the response without the requested ids.
    async fn ask(
        &self,
        server: &TestServer,
        method: &Method,
        path: &str,
        body: &Value,
        asked: &Things,
    ) -> (u16, String) {
        let fill =
            |path: String, (name, value): (&&str, &String)| path.replace(&format!("{{{name}}}"), value);
        let path = asked.iter().fold(path.to_owned(), fill);
        let answer = server.ask(&self.token, method.clone(), &path, body.clone()).await;
        assert!(answer.status.as_u16() < 500, "{method} {path}: {}", answer.text());
        let mut said = answer.text();
        for (name, value) in asked.iter().filter(|(_, value)| value.len() > 4) {
            said = said.replace(value, &format!("<{name}>"));
        }
        (answer.status.as_u16(), said)
    }
}

/// Everything that the owner of the objects can see of them.
async fn look(server: &TestServer, owner: &str, theirs: &Things) -> Vec<String> {
    let mut all = Vec::new();
    for path in [
        "/organizations/{organization}",
        "/organizations/{organization}/members",
        "/organizations/{organization}/provisionerkeys",
        "/organizations/{organization}/provisionerdaemons",
        "/organizations/{organization}/provisionerjobs",
        "/organizations/{organization}/templates",
        "/templates/{template}/acl",
        "/templates/{template}/versions?include_archived=true",
        "/templateversions/{draft}",
        "/templateversions/{templateversion}/dry-run/{job}",
        "/workspaces/{workspace}",
        "/workspaces/{workspace}/builds",
        "/workspaces/{workspace}/port-share",
        "/users/{user}/gitsshkey",
        "/workspacebuilds/{workspacebuild}/state",
        "/users/{user}",
        "/users/{user}/roles",
        "/users/{user}/keys/tokens",
    ] {
        let path = theirs.iter().fold(format!("/api/v2{path}"), |path, (name, value)| {
            path.replace(&format!("{{{name}}}"), value)
        });
        let answer = server.get(owner, &path).await;
        assert_eq!(answer.status, 200, "{path}");
        all.push(format!("{path}: {}", answer.text()));
    }
    all
}

/// Users of an organization `alpha`, and an owner who belongs only to the default organization.
async fn actors(server: &TestServer, owner: &str) -> Vec<Actor> {
    server.post(owner, "/api/v2/organizations", json!({ "name": "alpha" })).await.expect(201);
    let mut tokens = Vec::new();
    for role in ACTORS {
        let name = role.replace("organization", "o");
        let token = server.user(owner, &name, &[]).await;
        let member = format!("/api/v2/organizations/alpha/members/{name}");
        server.post(owner, &member, Value::Null).await.expect(200);
        server.delete(owner, &format!("/api/v2/organizations/default/members/{name}")).await.expect(204);
        let roles = json!({ "roles": [role] });
        server.put(owner, &format!("{member}/roles"), roles).await.expect(200);
        tokens.push((role, token));
    }
    // Administrators of an organization may know its members.
    let admin = &tokens[1].1;
    server.delete(admin, "/api/v2/organizations/alpha/members/admin").await.expect(204);
    let own = things(server, admin, "alpha", "alpha").await;
    let mut actors = Vec::new();
    for (role, token) in tokens {
        let mut own = own.clone();
        own.insert("user", server.user_id(&token).await.to_string());
        actors.push(Actor { role, token, own });
    }
    actors
}

on_both_engines! {
    async fn an_id_of_another_organization_is_answered_as_an_unknown_one(server: TestServer) {
        let owner = server.owner().await;
        let actors = actors(&server, &owner).await;
        let theirs = things(&server, &owner, "default", "bravo").await;
        let ghosts = ghosts();
        let before = look(&server, &owner, &theirs).await;
        let mut asked = 0;
        for row in router::rows(server.app.clone()) {
            let names: Vec<_> =
                parameters(&row.path).into_iter().filter(|name| !NO_IDS.contains(name)).collect();
            if names.is_empty() {
                continue;
            }
            let known = |name: &&str| theirs.contains_key(*name);
            assert!(names.iter().all(known), "the walk has no value for a parameter of {}", row.path);
            let body = request_body(&row.method, &row.path);
            for actor in &actors {
                // Every combination of ids of the other organization with the caller's own.
                for which in 1..1_u32 << names.len() {
                    let of = |others: &Things| {
                        let mut mixed = actor.own.clone();
                        for (index, name) in names.iter().enumerate() {
                            if which & (1 << index) != 0 {
                                mixed.insert(actor.own.get_key_value(*name).unwrap().0, others[*name].clone());
                            }
                        }
                        mixed
                    };
                    let adds = row.method == Method::POST
                        && row.path.ends_with("/members/{user}")
                        && which == 0b10
                        && ADDS_MEMBERS.contains(&actor.role);
                    let (theirs, ghosts) = (of(&theirs), of(&ghosts));
                    let real = actor.ask(&server, &row.method, &row.path, &body, &theirs).await;
                    let none = actor.ask(&server, &row.method, &row.path, &body, &ghosts).await;
                    let context = format!("{} {} by {} ({which:b})", row.method, row.path, actor.role);
                    if adds {
                        assert_eq!((real.0, none.0), (200, 400), "{context}");
                        let member = "/api/v2/organizations/{organization}/members/{user}";
                        let left = actor.ask(&server, &Method::DELETE, member, &Value::Null, &theirs).await;
                        assert_eq!(left.0, 204, "{context}");
                    } else {
                        assert_eq!(real, none, "{context}");
                        assert!(real.0 >= 400 || real.1 == "[]", "{context}: {real:?}");
                    }
                    asked += 1;
                }
            }
        }
        assert!(asked > 500, "{asked}");
        assert_eq!(look(&server, &owner, &theirs).await, before);
    }

    async fn an_id_of_another_organization_in_a_body_is_answered_as_an_unknown_one(server: TestServer) {
        let owner = server.owner().await;
        let actors = actors(&server, &owner).await;
        let theirs = things(&server, &owner, "default", "bravo").await;
        let ghosts = ghosts();
        let before = look(&server, &owner, &theirs).await;
        for (method, path, rest, field, thing) in named_in_bodies() {
            let method: Method = method.parse().unwrap();
            let path = format!("/api/v2{path}");
            for actor in &actors {
                let mut said = Vec::new();
                for others in [&theirs, &ghosts] {
                    let mut body = rest.clone();
                    body[field] = json!(others[thing]);
                    if field == "template_id" && path.ends_with("/templateversions") {
                        body["file_id"] = json!(actor.own["fileid"]);
                    }
                    let (status, text) = actor.ask(&server, &method, &path, &body, &actor.own).await;
                    said.push((status, text.replace(&others[thing], "<named>")));
                }
                let context = format!("{method} {path} {field}={thing} by {}", actor.role);
                assert_eq!(said[0], said[1], "{context}");
                assert!(said[0].0 >= 400, "{context}: {said:?}");
            }
        }
        assert_eq!(look(&server, &owner, &theirs).await, before);
    }
}
