//! The first user, log-in, and the management of accounts (http-api 2, 3).

use http::{Method, Request};
use serde_json::json;

use crate::harness::{PASSWORD, TestServer, on_both_engines};

on_both_engines! {
    async fn first_user_logs_in(server: TestServer) {
        let missing = server.get("", "/api/v2/users/first").await;
        assert_eq!(missing.status, 404);
        assert_eq!(missing.headers["x-coder-build-version"], "v2.30.0+0000000");
        let first = json!({ "email": "Admin@Example.com", "username": "admin", "name": "Ad Min", "password": PASSWORD,
            "trial": false, "trial_info": {} });
        let created = server.post("", "/api/v2/users/first", first.clone()).await.expect(201);
        server.get("", "/api/v2/users/first").await.expect(200);
        server.post("", "/api/v2/users/first", first).await.expect(409);

        let login = json!({ "email": "admin@example.COM", "password": PASSWORD });
        let answer = server.post("", "/api/v2/users/login", login).await;
        let cookie = answer.headers["set-cookie"].to_str().unwrap().to_owned();
        assert!(cookie.starts_with("coder_session_token=") && cookie.contains("HttpOnly"), "{cookie}");
        let token = answer.expect(201)["session_token"].as_str().unwrap().to_owned();
        let me = server.get(&token, "/api/v2/users/me").await.expect(200);
        assert_eq!(me["id"], created["user_id"]);
        assert_eq!(me["roles"][0]["name"], "owner");
        assert_eq!(me["organization_ids"], json!([created["organization_id"]]));
        let organizations = server.get(&token, "/api/v2/users/me/organizations").await.expect(200);
        assert_eq!(organizations[0]["name"], "coder");
        assert_eq!(organizations[0]["is_default"], true);

        let out = server.post(&token, "/api/v2/users/logout", json!({})).await;
        assert!(out.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
        out.expect(200);
        server.get(&token, "/api/v2/users/me").await.expect(401);
    }

    async fn wrong_credentials_are_401(server: TestServer) {
        server.owner().await;
        for (email, password) in [("admin@example.com", "WrongPassword!1"), ("nobody@example.com", PASSWORD), ("", "")] {
            let answer = server.post("", "/api/v2/users/login", json!({ "email": email, "password": password })).await;
            assert_eq!(answer.expect(401)["message"], "Incorrect email or password.");
        }
    }

    async fn weak_and_malformed_first_users_are_400(server: TestServer) {
        let ask = async |email: &str, username: &str, password: &str| {
            let body = json!({ "email": email, "username": username, "password": password });
            server.post("", "/api/v2/users/first", body).await.refused(400)
        };
        assert_eq!(ask("x", "admin", PASSWORD).await, "email");
        assert_eq!(ask("a@b", "new", PASSWORD).await, "username");
        assert_eq!(ask("a@b", "admin", "password").await, "password");
        assert_eq!(ask("a@b", "admin", "").await, "password");
        server.get("", "/api/v2/users/first").await.expect(404);
    }

    async fn two_first_users_at_once_make_one(server: TestServer) {
        let body = |name: &str| json!({ "email": format!("{name}@b"), "username": name, "password": PASSWORD });
        let (one, two) = tokio::join!(
            server.post("", "/api/v2/users/first", body("one")),
            server.post("", "/api/v2/users/first", body("two")),
        );
        let mut statuses = [one.status.as_u16(), two.status.as_u16()];
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409]);
    }

    async fn accounts_are_managed(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let list = server.get(&owner, "/api/v2/users?q=").await.expect(200);
        assert_eq!(list["count"], 2);
        assert_eq!(list["users"][0]["username"], "admin");
        assert_eq!(server.get(&owner, "/api/v2/users?q=dev").await.expect(200)["count"], 1);
        assert_eq!(server.get(&owner, "/api/v2/users?q=status:active&limit=1").await.expect(200)["users"].as_array().unwrap().len(), 1);
        assert_eq!(server.get(&owner, "/api/v2/users?q=bogus:1").await.refused(400), "q");
        assert_eq!(server.get(&member, "/api/v2/users").await.expect(200)["count"], 1, "members see themselves");

        assert_eq!(server.get(&member, "/api/v2/users/admin").await.status, 400);
        assert_eq!(server.get(&owner, "/api/v2/users/DEV").await.expect(200)["username"], "dev");
        let taken = json!({ "email": "other@example.com", "username": "Dev", "password": PASSWORD,
            "organization_ids": ["00000000-0000-0000-0000-000000000000"] });
        assert_eq!(server.post(&owner, "/api/v2/users", taken).await.refused(409), "username");
        let made = json!({ "email": "New@example.com", "username": "newbie", "password": PASSWORD,
            "organization_ids": ["00000000-0000-0000-0000-000000000000"], "user_status": null });
        let made = server.post(&owner, "/api/v2/users", made).await.expect(201);
        assert_eq!((made["status"].as_str(), made["login_type"].as_str()), (Some("dormant"), Some("password")));
        let newbie = server.login("new@example.com").await;
        assert_eq!(server.get(&newbie, "/api/v2/users/me").await.expect(200)["status"], "active", "by use");
        server.delete(&owner, "/api/v2/users/newbie").await.expect(200);
        assert_eq!(server.post(&member, "/api/v2/users", json!({})).await.status, 403);

        server.put(&owner, "/api/v2/users/dev/status/suspend", json!({})).await.expect(200);
        server.get(&member, "/api/v2/users/me").await.expect(401);
        server.put(&owner, "/api/v2/users/dev/status/activate", json!({})).await.expect(200);
        server.get(&member, "/api/v2/users/me").await.expect(200);
        server.put(&owner, "/api/v2/users/me/status/suspend", json!({})).await.expect(400);

        server.put(&member, "/api/v2/users/dev/roles", json!({ "roles": ["owner"] })).await.expect(400);
        let admin = server.user(&owner, "people", &["user-admin"]).await;
        server.put(&admin, "/api/v2/users/dev/roles", json!({ "roles": ["owner"] })).await.expect(403);
        server.put(&owner, "/api/v2/users/dev/roles", json!({ "roles": ["bogus"] })).await.expect(400);
        let changed = server.put(&owner, "/api/v2/users/dev/roles", json!({ "roles": ["auditor", "member"] })).await;
        assert_eq!(changed.expect(200)["roles"][0]["name"], "auditor");

        server.delete(&owner, "/api/v2/users/me").await.expect(403);
        server.delete(&owner, "/api/v2/users/dev").await.expect(200);
        server.get(&member, "/api/v2/users/me").await.expect(401);
        server.user(&owner, "dev", &[]).await;
    }

    async fn user_admins_manage_people_and_give_no_power(server: TestServer) {
        let owner = server.owner().await;
        let admin = server.user(&owner, "people", &["user-admin"]).await;
        server.user(&owner, "dev", &[]).await;
        server.user(&owner, "chief", &["owner"]).await;
        let put = async |token: &str, path: &str, body: serde_json::Value| {
            server.put(token, &format!("/api/v2/users/{path}"), body).await.status.as_u16()
        };
        assert_eq!(put(&admin, "dev/roles", json!({ "roles": [] })).await, 200, "nothing changes");
        assert_eq!(put(&admin, "dev/roles", json!({ "roles": ["auditor"] })).await, 403);
        assert_eq!(put(&admin, "chief/roles", json!({ "roles": [] })).await, 403);
        assert_eq!(put(&admin, "chief/password", json!({ "password": "AnotherSecret!22" })).await, 403);
        assert_eq!(put(&admin, "chief/status/suspend", json!({})).await, 400);
        assert_eq!(server.delete(&admin, "/api/v2/users/chief").await.status, 403);
        assert_eq!(put(&admin, "dev/status/suspend", json!({})).await, 200);
        assert_eq!(put(&admin, "dev/status/activate", json!({})).await, 200);
        assert_eq!(put(&admin, "dev/password", json!({ "password": "AnotherSecret!22" })).await, 204);
        assert_eq!(server.delete(&admin, "/api/v2/users/dev").await.status, 200);
        assert_eq!(put(&owner, "chief/roles", json!({ "roles": [] })).await, 200);
    }

    async fn tok_7_suspended_people_neither_log_in_nor_go_on(server: TestServer) {
        let owner = server.owner().await;
        let dev = server.user(&owner, "dev", &[]).await;
        server.put(&owner, "/api/v2/users/dev/status/suspend", json!({})).await.expect(200);
        let login = json!({ "email": "dev@example.com", "password": PASSWORD });
        let refused = server.post("", "/api/v2/users/login", login).await.expect(401);
        assert!(refused["message"].as_str().unwrap().contains("suspended"));
        server.get(&dev, "/api/v2/users/me").await.expect(401);
        server.put(&owner, "/api/v2/users/dev/status/activate", json!({})).await.expect(200);
        server.get(&dev, "/api/v2/users/me").await.expect(200);
    }

    async fn a_new_password_ends_other_sessions(server: TestServer) {
        let owner = server.owner().await;
        let first = server.user(&owner, "dev", &[]).await;
        let second = server.login("dev@example.com").await;
        let change = |old: &str, new: &str| json!({ "old_password": old, "password": new });
        server.put(&first, "/api/v2/users/me/password", change("wrong", "AnotherSecret!22")).await.expect(400);
        server.put(&first, "/api/v2/users/me/password", change(PASSWORD, "weak")).await.expect(400);
        server.put(&first, "/api/v2/users/me/password", change(PASSWORD, "AnotherSecret!22")).await.expect(204);
        server.get(&first, "/api/v2/users/me").await.expect(200);
        server.get(&second, "/api/v2/users/me").await.expect(401);
        server.put(&owner, "/api/v2/users/dev/password", change("", PASSWORD)).await.expect(204);
        server.login("dev@example.com").await;
    }
}

#[tokio::test]
async fn trailing_slashes_unknown_paths_and_methods() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    server.get(&owner, "/api/v2/organizations/default/members/").await.expect(200);
    server.get(&owner, "/api/v2/").await.expect(200);
    let unknown = server.get(&owner, "/api/v2/nothing/here").await;
    assert!(unknown.headers["content-type"].to_str().unwrap().starts_with("application/json"));
    unknown.expect(404);
    let method = server.ask(&owner, Method::PUT, "/api/v2/buildinfo", serde_json::Value::Null).await;
    assert_eq!(method.status, 405);
    assert!(method.headers["allow"].to_str().unwrap().contains("GET"));
    let refused = method.expect(405);
    assert_eq!(refused["message"], "Method not allowed.");
    assert_eq!(refused["detail"], "This path does not take PUT.");
    let role = server.post(&owner, "/api/v2/organizations/default/members/roles", json!({})).await;
    assert!(!role.expect(403)["message"].as_str().unwrap().is_empty());
}

#[tokio::test]
async fn server_facts_need_no_token() {
    let server = TestServer::sqlite().await;
    assert_eq!(server.get("", "/healthz").await.text(), "OK");
    let info = server.get("", "/api/v2/buildinfo").await;
    assert!(info.headers.contains_key("x-coder-request-id"));
    let info = info.expect(200);
    assert_eq!(info["provisioner_api_version"], "1.14");
    let entitled = server.get("", "/api/v2/entitlements").await.expect(200);
    let present = [
        "access_control",
        "audit_log",
        "external_provisioner_daemons",
        "multiple_external_auth",
        "multiple_organizations",
        "user_role_management",
    ];
    let features = entitled["features"].as_object().unwrap();
    assert_eq!(features.len(), 26);
    for (name, feature) in features {
        let is_present = present.contains(&name.as_str());
        let entitlement = if is_present { "entitled" } else { "not_entitled" };
        assert_eq!(*feature, json!({ "entitlement": entitlement, "enabled": is_present }), "{name}");
    }
}

#[tokio::test]
async fn a_body_that_is_not_json_or_too_large_is_refused() {
    let server = TestServer::sqlite().await;
    let post = async |body: String| {
        let request = Request::post("/api/v2/users/login").body(axum::body::Body::from(body)).unwrap();
        server.send(request).await.status.as_u16()
    };
    assert_eq!(post("{".to_owned()).await, 400);
    assert_eq!(post(format!("\"{}\"", "x".repeat(65 << 10))).await, 413);
}
