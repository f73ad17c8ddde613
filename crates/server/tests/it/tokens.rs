//! Sessions and API tokens (scheduling-and-auth 5.1).

use http::Request;
use serde_json::{Value, json};

use crate::harness::{TestServer, on_both_engines};

const HOUR_NS: i64 = 3_600_000_000_000;

on_both_engines! {
    async fn tok_1_malformed_unknown_and_expired_tokens_are_401(server: TestServer) {
        let owner = server.owner().await;
        let wrong_secret = format!("{}-{}", owner.split_once('-').unwrap().0, "x".repeat(22));
        for token in ["x", "aaaaaaaaaa-bbbbbbbbbbbbbbbbbbbbbb", &wrong_secret, &format!("{owner}x")] {
            let answer = server.get(token, "/api/v2/users/me").await;
            assert!(answer.headers["www-authenticate"].to_str().unwrap().starts_with("Bearer"));
            answer.expect(401);
        }
        server.advance(24 * 3600);
        server.get(&owner, "/api/v2/users/me").await.expect(401);
    }

    async fn tok_5_use_pushes_the_end_of_a_session_forward(server: TestServer) {
        let owner = server.owner().await;
        for _ in 0..10 {
            server.advance(12 * 3600);
            server.get(&owner, "/api/v2/users/me").await.expect(200);
        }
        let before = server.app.store.statement_counts().work;
        server.get(&owner, "/api/v2/users/me").await.expect(200);
        assert_eq!(server.app.store.statement_counts().work - before, 1, "one indexed read and no write within an hour");
    }

    async fn tok_6_tokens(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let config = async |token: &str| {
            let answer = server.get(token, "/api/v2/users/me/keys/tokens/tokenconfig").await.expect(200);
            answer["max_token_lifetime"].as_i64().unwrap() / HOUR_NS
        };
        assert_eq!(config(&owner).await, 168);
        assert_eq!(config(&member).await, 876_600);

        let path = "/api/v2/users/me/keys/tokens";
        let create = async |token: &str, body: Value| server.post(token, path, body).await;
        let key = create(&member, json!({ "token_name": "ci", "lifetime": 2 * HOUR_NS })).await.expect(201);
        let key = key["key"].as_str().unwrap().to_owned();
        assert_eq!(create(&member, json!({ "token_name": "ci" })).await.refused(409), "name");
        assert_eq!(create(&member, json!({ "token_name": "not ok" })).await.refused(400), "token_name");
        assert_eq!(create(&owner, json!({ "lifetime": 169 * HOUR_NS })).await.refused(400), "lifetime");
        assert_eq!(create(&owner, json!({ "lifetime": -1 })).await.refused(400), "lifetime");
        assert_eq!(create(&member, json!({ "scopes": ["workspace:fly"] })).await.refused(400), "scopes");
        assert_eq!(create(&member, json!({ "scopes": ["provisioner_jobs:read"] })).await.refused(400), "scopes");
        assert_eq!(create(&member, json!({ "allow_list": ["x"] })).await.refused(400), "allow_list");

        let list = server.get(&member, path).await.expect(200);
        assert_eq!(list.as_array().unwrap().len(), 1);
        assert_eq!(list[0]["token_name"], "ci");
        assert_eq!(list[0]["lifetime_seconds"], 7200);
        assert_eq!(list[0]["username"], "dev");
        assert_eq!(server.get(&owner, path).await.expect(200), json!([]));
        let all = server.get(&owner, &format!("{path}?include_all=true")).await.expect(200);
        assert_eq!(all.as_array().unwrap().len(), 1);

        let by_name = server.get(&key, &format!("{path}/ci")).await.expect(200);
        let id = by_name["id"].as_str().unwrap();
        server.get(&member, &format!("{path}/CI")).await.expect(404);
        server.get(&member, &format!("/api/v2/users/me/keys/{id}")).await.expect(200);
        server.get(&owner, &format!("/api/v2/users/me/keys/{id}")).await.expect(404);
        server.delete(&member, &format!("/api/v2/users/me/keys/{id}")).await.expect(204);
        server.get(&key, "/api/v2/users/me").await.expect(401);
        server.delete(&member, &format!("/api/v2/users/me/keys/{id}")).await.expect(404);
    }

    async fn a_token_does_not_slide(server: TestServer) {
        let owner = server.owner().await;
        let created = server.post(&owner, "/api/v2/users/me/keys/tokens", json!({ "lifetime": 3 * HOUR_NS })).await;
        let key = created.expect(201)["key"].as_str().unwrap().to_owned();
        server.advance(2 * 3600);
        server.get(&key, "/api/v2/users/me").await.expect(200);
        server.advance(3601);
        server.get(&key, "/api/v2/users/me").await.expect(401);
    }

    async fn a_token_does_no_more_than_its_scopes_and_its_owner(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "hello").await;
        let (one, _, _) = server.workspace(&owner, template, "one").await;
        let (two, _, _) = server.workspace(&owner, template, "two").await;
        let path = "/api/v2/users/me/keys/tokens";
        let make = async |by: &str, body: Value| {
            let made = server.post(by, path, body).await.expect(201);
            made["key"].as_str().unwrap().to_owned()
        };
        let read = make(&owner, json!({ "scopes": ["workspace:read"] })).await;
        server.get(&read, &format!("/api/v2/workspaces/{one}")).await.expect(200);
        server.put(&read, &format!("/api/v2/workspaces/{one}/ttl"), json!({ "ttl_ms": null })).await.expect(403);
        server.get(&read, &format!("/api/v2/templates/{template}")).await.expect(404);
        server.get(&read, "/api/v2/users/me").await.expect(403);
        assert_eq!(server.get(&read, "/api/v2/users").await.expect(200)["count"], 0);
        assert_eq!(server.get(&read, "/api/v2/organizations").await.expect(200), json!([]));
        server.post(&read, path, json!({})).await.expect(403);

        // An allow list names single objects.
        let only = format!("workspace:{one}");
        let named = make(&owner, json!({ "scope": "all", "allow_list": [only] })).await;
        server.get(&named, &format!("/api/v2/workspaces/{one}")).await.expect(200);
        server.get(&named, &format!("/api/v2/workspaces/{two}")).await.expect(404);

        // The union of the scopes, and never more than the roles.
        let member = server.user(&owner, "dev", &[]).await;
        let both = make(&member, json!({ "scopes": ["template:*", "user:read_personal"], "token_name": "both" })).await;
        server.get(&both, &format!("/api/v2/templates/{template}")).await.expect(200);
        server.patch(&both, &format!("/api/v2/templates/{template}"), json!({ "name": "x" })).await.expect(403);
        server.get(&both, "/api/v2/users/me").await.expect(200);
        let shown = server.get(&member, &format!("{path}/both")).await.expect(200);
        assert_eq!(shown["scopes"], json!(["template:*", "user:read_personal"]));
        assert_eq!((shown["scope"].as_str(), &shown["allow_list"]), (Some(""), &json!(["*:*"])));
    }

    async fn a_token_for_one_template_or_workspace_reaches_its_versions_and_builds_and_nothing_else(server: TestServer) {
        let owner = server.owner().await;
        let (mine, version) = server.template(&owner, "mine").await;
        let (other, foreign) = server.template(&owner, "other").await;
        let (one, build, _) = server.workspace(&owner, mine, "one").await;
        let (two, second, _) = server.workspace(&owner, other, "two").await;
        let token = async |allow: Value| {
            let made = server.post(&owner, "/api/v2/users/me/keys/tokens", json!({ "allow_list": allow })).await;
            made.expect(201)["key"].as_str().unwrap().to_owned()
        };
        let status = async |token: &str, method: &str, path: String, body: Value| {
            let path = format!("/api/v2/{path}");
            server.ask(token, method.parse().unwrap(), &path, body).await.status.as_u16()
        };
        let none = || Value::Null;

        let limited = token(json!([format!("template:{mine}")])).await;
        for path in ["", "/resources", "/variables", "/rich-parameters", "/presets", "/logs"] {
            assert_eq!(status(&limited, "GET", format!("templateversions/{version}{path}"), none()).await, 200, "{path}");
            assert_eq!(status(&limited, "GET", format!("templateversions/{foreign}{path}"), none()).await, 404, "{path}");
        }
        assert_eq!(status(&limited, "GET", format!("templates/{mine}/versions"), none()).await, 200);
        assert_eq!(status(&limited, "GET", format!("templates/{other}/versions"), none()).await, 404);
        let rename = || json!({ "name": "renamed" });
        assert_eq!(status(&limited, "PATCH", format!("templateversions/{version}"), rename()).await, 200);
        assert_eq!(status(&limited, "PATCH", format!("templateversions/{foreign}"), rename()).await, 404);
        // Template admins may read the states of its workspaces, but not the workspaces.
        assert_eq!(status(&limited, "GET", format!("workspacebuilds/{build}/state"), none()).await, 200);
        assert_eq!(status(&limited, "GET", format!("workspacebuilds/{second}/state"), none()).await, 404);
        assert_eq!(status(&limited, "GET", format!("workspaces/{one}"), none()).await, 404);

        // Pushing also requires the right to read the organization and the file.
        let file = server.file(&owner).await;
        let push = async |token: &str, template: Option<String>| {
            let mut body = json!({ "file_id": file, "storage_method": "file", "provisioner": "terraform" });
            if let Some(template) = template {
                body["template_id"] = json!(template);
            }
            status(token, "POST", "organizations/default/templateversions".to_owned(), body).await
        };
        let pusher = token(json!([format!("template:{mine}"), "organization:*", "file:*"])).await;
        assert_eq!(push(&pusher, Some(mine.to_string())).await, 201);
        assert_eq!(push(&pusher, Some(other.to_string())).await, 404);
        assert_eq!(push(&pusher, None).await, 403, "a template of its own");

        let limited = token(json!([format!("workspace:{one}")])).await;
        for path in ["", "/logs", "/parameters", "/resources", "/timings"] {
            assert_eq!(status(&limited, "GET", format!("workspacebuilds/{build}{path}"), none()).await, 200, "{path}");
            assert_eq!(status(&limited, "GET", format!("workspacebuilds/{second}{path}"), none()).await, 404, "{path}");
        }
        assert_eq!(status(&limited, "GET", format!("workspaces/{one}/builds"), none()).await, 200);
        assert_eq!(status(&limited, "GET", format!("workspaces/{two}/builds"), none()).await, 404);
        assert_eq!(status(&limited, "PATCH", format!("workspacebuilds/{second}/cancel"), none()).await, 404);
        assert_eq!(status(&limited, "PATCH", format!("workspacebuilds/{build}/cancel"), none()).await, 200);
        let start = || json!({ "transition": "start" });
        assert_eq!(status(&limited, "POST", format!("workspaces/{one}/builds"), start()).await, 201);
        assert_eq!(status(&limited, "POST", format!("workspaces/{two}/builds"), start()).await, 404);
        assert_eq!(status(&limited, "GET", format!("workspacebuilds/{build}/state"), none()).await, 404);
        assert_eq!(status(&limited, "GET", format!("templates/{mine}"), none()).await, 404);
        let make = json!({ "name": "three", "template_id": mine });
        assert!([400, 403, 404].contains(&status(&limited, "POST", "users/me/workspaces".to_owned(), make).await));
    }

    async fn a_narrow_token_makes_no_wide_one(server: TestServer) {
        let owner = server.owner().await;
        let path = "/api/v2/users/me/keys/tokens";
        let keys = json!({ "scopes": ["coder:apikeys.manage_self"] });
        let keys = server.post(&owner, path, keys).await.expect(201)["key"].as_str().unwrap().to_owned();
        server.post(&keys, path, json!({})).await.expect(403);
        server.post(&keys, path, json!({ "scopes": ["all"] })).await.expect(403);
        server.post(&keys, path, json!({ "scopes": ["api_key:read"] })).await.expect(201);
        let session = server.post(&keys, "/api/v2/users/me/keys", Value::Null).await.expect(201);
        let session = session["key"].as_str().unwrap().to_owned();
        server.get(&session, path).await.expect(200);
        server.get(&session, "/api/v2/organizations/default").await.expect(404);
        server.post(&session, path, json!({})).await.expect(403);
    }

    async fn owners_make_tokens_for_others(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let path = "/api/v2/users/dev/keys/tokens";
        let made = server.post(&owner, path, json!({ "token_name": "bot", "lifetime": 1000 * HOUR_NS })).await.expect(201);
        assert_eq!(server.get(made["key"].as_str().unwrap(), "/api/v2/users/me").await.expect(200)["username"], "dev");
        let admin = server.user(&owner, "people", &["user-admin"]).await;
        server.post(&admin, path, json!({})).await.expect(403);
        server.post(&member, "/api/v2/users/admin/keys/tokens", json!({})).await.expect(400);
    }

    async fn another_session_key(server: TestServer) {
        let owner = server.owner().await;
        let key = server.post(&owner, "/api/v2/users/me/keys", Value::Null).await.expect(201);
        let key = key["key"].as_str().unwrap().to_owned();
        server.post(&owner, "/api/v2/users/logout", Value::Null).await.expect(200);
        server.get(&key, "/api/v2/users/me").await.expect(200);
    }
}

#[tokio::test]
async fn tok_2_every_carrier_works_and_a_cookie_alone_changes_nothing() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let send = async |method: &str, headers: &[(&str, String)], path: &str| {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        server.send(request.body(axum::body::Body::empty()).unwrap()).await.status.as_u16()
    };
    let cookie = ("cookie", format!("a=b; coder_session_token={owner}"));
    assert_eq!(send("GET", std::slice::from_ref(&cookie), "/api/v2/users/me").await, 200);
    assert_eq!(send("GET", &[("authorization", format!("Bearer {owner}"))], "/api/v2/users/me").await, 200);
    assert_eq!(send("GET", &[], &format!("/api/v2/users/me?coder_session_token={owner}")).await, 200);
    assert_eq!(send("GET", &[("coder-session-token", String::new())], "/api/v2/users/me").await, 401);

    assert_eq!(
        send("POST", std::slice::from_ref(&cookie), "/api/v2/users/me/keys").await,
        400,
        "no CSRF token"
    );
    let header = |text: &str| ("x-csrf-token", text.to_owned());
    let tossed = ("cookie", format!("coder_session_token={owner}; csrf_token=abc"));
    assert_eq!(send("POST", &[tossed, header("abc")], "/api/v2/users/me/keys").await, 400);
    let login = json!({ "email": "admin@example.com", "password": crate::harness::PASSWORD });
    let login = server.post("", "/api/v2/users/login", login).await;
    let cookies: Vec<_> =
        login.headers.get_all("set-cookie").iter().map(|line| line.to_str().unwrap()).collect();
    let value = |name: &str| {
        let pairs = cookies.iter().filter_map(|line| line.split_once(';')?.0.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next().unwrap()
    };
    let (session, csrf) = (value("coder_session_token"), value("csrf_token"));
    let own = ("cookie", format!("coder_session_token={session}"));
    assert_eq!(send("POST", &[own.clone(), header(&csrf)], "/api/v2/users/me/keys").await, 201);
    assert_eq!(
        send("POST", &[cookie.clone(), header(&csrf)], "/api/v2/users/me/keys").await,
        400,
        "another's"
    );
    for (name, value, status) in [
        ("sec-fetch-site", "cross-site", 400),
        ("sec-fetch-site", "same-site", 400),
        ("sec-fetch-site", "same-origin", 201),
        ("origin", "https://sibling.example.com", 400),
        ("origin", "null", 400),
        ("origin", "https://coder.example.com", 201),
    ] {
        let headers =
            [own.clone(), header(&csrf), ("host", "coder.example.com".to_owned()), (name, value.to_owned())];
        assert_eq!(send("POST", &headers, "/api/v2/users/me/keys").await, status, "{name}: {value}");
    }
    let repeated = ("coder-session-token", owner.clone());
    assert_eq!(send("POST", &[cookie, repeated], "/api/v2/users/me/keys").await, 201);
}

#[tokio::test]
async fn no_name_in_a_path_disarms_the_csrf_check() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    for name in ["provisionerdaemons", "workspaceagents"] {
        server.post(&owner, "/api/v2/organizations", json!({ "name": name })).await.expect(201);
    }
    let daemon = uuid::Uuid::new_v4();
    for path in [
        "/api/v2/organizations/provisionerdaemons/provisionerkeys".to_owned(),
        "/api/v2/organizations/workspaceagents/provisionerkeys".to_owned(),
        "/api/v2/organizations/provisionerdaemons/members/admin".to_owned(),
        format!("/api/v2/organizations/default/provisionerdaemons/{daemon}/drain"),
        "/api/v2/users/provisionerdaemons/keys".to_owned(),
    ] {
        let request = Request::post(&path)
            .header("cookie", format!("coder_session_token={owner}"))
            .body(json!({ "name": "made" }).to_string().into())
            .unwrap();
        let refused = server.send(request).await.expect(400);
        assert!(refused["message"].as_str().unwrap().contains("CSRF"), "{path}: {refused}");
    }
}

#[tokio::test]
async fn pages_of_other_origins_open_no_websocket_with_a_cookie() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let (version, _) = server.version(&owner, json!({})).await;
    let logs = format!("/api/v2/templateversions/{version}/logs?follow");
    let serve = "/api/v2/organizations/default/provisionerdaemons/serve?provisioner=terraform&name=d&tag=scope%3Duser";
    let open = async |path: &str, credential: &str, origin: Option<(&str, &str)>| {
        let mut request = Request::get(path)
            .header("host", "coder.example.com")
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        request = match credential {
            "cookie" => request.header("cookie", format!("coder_session_token={owner}")),
            _ => request.header("coder-session-token", &owner),
        };
        if let Some((name, value)) = origin {
            request = request.header(name, value);
        }
        server.send(request.body(axum::body::Body::empty()).unwrap()).await.status.as_u16()
    };
    for (name, value) in [
        ("origin", "null"),
        ("origin", "https://evil.example.com"),
        ("origin", "https://coder.example.com.evil.com"),
        ("sec-fetch-site", "same-site"),
        ("sec-fetch-site", "cross-site"),
    ] {
        assert_eq!(open(&logs, "cookie", Some((name, value))).await, 403, "{name}: {value}");
        assert_eq!(open(serve, "cookie", Some((name, value))).await, 401, "{name}: {value}");
    }
    // An in-process request cannot be upgraded. A request that fails only there has passed all checks.
    let ours = Some(("origin", "https://coder.example.com"));
    for path in [&logs, serve] {
        assert_eq!(open(path, "cookie", None).await, 426, "the command line sends no Origin");
        assert_eq!(open(path, "cookie", ours).await, 426);
    }
    assert_eq!(open(&logs, "header", Some(("origin", "https://evil.example.com"))).await, 426);
}

#[tokio::test]
async fn pages_of_other_origins_log_nobody_in_and_make_no_first_user() {
    let server = TestServer::sqlite().await;
    let send = async |path: &str, origin: &str| {
        let body = json!({ "email": "a@example.com", "username": "a", "password": crate::harness::PASSWORD });
        let request = Request::post(path).header("host", "localhost:3000").header("origin", origin);
        server.send(request.body(body.to_string().into()).unwrap()).await.status.as_u16()
    };
    for path in ["/api/v2/users/first", "/api/v2/users/login", "/login", "/cli-auth"] {
        assert_eq!(send(path, "https://evil.example.com").await, 403, "{path}");
        assert_eq!(send(path, "null").await, 403, "{path}");
    }
    assert_eq!(send("/api/v2/users/first", "http://localhost:3000").await, 201);
}

#[tokio::test]
async fn tok_5_a_session_ends_after_its_time_where_use_does_not_extend_it() {
    let mut config = crate::harness::settings();
    config.sessions.refresh_expiry = false;
    let server = TestServer::sqlite_with(config).await;
    let owner = server.owner().await;
    server.advance(23 * 3600);
    server.get(&owner, "/api/v2/users/me").await.expect(200);
    server.advance(3600);
    server.get(&owner, "/api/v2/users/me").await.expect(401);
}
