//! Who may change the credentials of other accounts: callers who may assign all their roles, in every organization.

use serde_json::{Value, json};

use crate::harness::{TestServer, on_both_engines};

const NEW_PASSWORD: &str = "AnotherSecret!22";

/// Every request that gives the caller control of an account, with the status of success.
fn ways(name: &str) -> Vec<(&'static str, String, Value, u16)> {
    let path = |rest: &str| format!("/api/v2/users/{name}{rest}");
    vec![
        ("PUT", path("/profile"), json!({ "username": name, "name": "X" }), 200),
        ("PUT", path("/password"), json!({ "password": NEW_PASSWORD }), 204),
        ("PUT", path("/gitsshkey"), Value::Null, 200),
        ("PUT", path("/status/suspend"), Value::Null, 200),
        ("PUT", path("/status/activate"), Value::Null, 200),
        ("POST", path("/keys"), Value::Null, 201),
        ("POST", path("/keys/tokens"), json!({}), 201),
        ("DELETE", path(""), Value::Null, 200),
    ]
}

/// Which of them succeed for the caller: one letter each.
async fn done(server: &TestServer, by: &str, name: &str) -> String {
    let mut seen = String::new();
    for (method, path, body, success) in ways(name) {
        let status = server.ask(by, method.parse().unwrap(), &path, body).await.status.as_u16();
        assert!(status == success || [400, 403].contains(&status), "{method} {path}: {status}");
        seen.push(if status == success { 'y' } else { '-' });
    }
    seen
}

#[tokio::test]
async fn a_user_admin_changes_only_accounts_whose_roles_he_may_assign() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    server.post(&owner, "/api/v2/organizations", json!({ "name": "elsewhere" })).await.expect(201);
    let admin = server.user(&owner, "people", &["user-admin"]).await;
    let local = server.user(&owner, "local", &["user-admin"]).await;
    let give = async |organization: &str, name: &str, role: &str| {
        let path = format!("/api/v2/organizations/{organization}/members/{name}");
        if organization != "default" {
            server.post(&owner, &path, Value::Null).await.expect(200);
        }
        server.put(&owner, &format!("{path}/roles"), json!({ "roles": [role] })).await.expect(200);
    };
    give("default", "local", "organization-admin").await;
    // The callers: a user admin, a user admin who is also admin of the first organization, and an owner.
    for (name, site, organization, role, people, both) in [
        ("template-admin", Some("template-admin"), "", "", false, false),
        ("user-admin", Some("user-admin"), "", "", false, false),
        ("auditor", Some("auditor"), "", "", false, false),
        ("newer", Some("role-of-a-newer-release"), "", "", false, false),
        ("org-admin", None, "default", "organization-admin", false, true),
        ("org-template-admin", None, "default", "organization-template-admin", false, true),
        ("org-auditor", None, "default", "organization-auditor", false, true),
        ("foreign-auditor", None, "elsewhere", "organization-auditor", false, false),
        ("plain", None, "", "", true, true),
    ] {
        for (by, may) in [(&admin, people), (&local, both)] {
            server.user(&owner, name, &site.into_iter().collect::<Vec<_>>()).await;
            if !organization.is_empty() {
                give(organization, name, role).await;
            }
            // Only owners create tokens for others, not user admins.
            let want = if may { "yyyyy--y" } else { "--------" };
            assert_eq!(done(&server, by, name).await, want, "{name}");
            if !may {
                assert_eq!(done(&server, &owner, name).await, "yyyyyyyy", "{name}");
            }
        }
    }
    server.user(&owner, "chief", &["owner"]).await;
    assert_eq!(done(&server, &admin, "chief").await, "--------");
    assert_eq!(done(&server, &owner, "chief").await, "yyy-yyyy", "an owner cannot be suspended");
}

on_both_engines! {
    async fn organization_roles_change_no_account(server: TestServer) {
        let owner = server.owner().await;
        server.user(&owner, "plain", &[]).await;
        for role in ["organization-admin", "organization-user-admin", "organization-template-admin"] {
            let name = role.replace("organization", "o");
            let by = server.user(&owner, &name, &[]).await;
            let path = format!("/api/v2/organizations/default/members/{name}/roles");
            server.put(&owner, &path, json!({ "roles": [role] })).await.expect(200);
            for name in ["plain", "admin"] {
                assert_eq!(done(&server, &by, name).await, "--------", "{role} {name}");
            }
        }
    }

    /// A token with a limited scope must not change accounts: the result would have no limits.
    async fn a_limited_token_changes_no_account_and_gives_no_role(server: TestServer) {
        let owner = server.owner().await;
        server.user(&owner, "plain", &[]).await;
        let make = async |body: Value| {
            let made = server.post(&owner, "/api/v2/users/me/keys/tokens", body).await.expect(201);
            made["key"].as_str().unwrap().to_owned()
        };
        let everything: Vec<_> =
            coder_domain::rbac::Resource::ALL.iter().map(|kind| format!("{}:*", kind.as_str())).collect();
        for body in [
            json!({ "allow_list": everything }),
            json!({ "allow_list": ["user:*", "api_key:*", "assign_role:*", "organization_member:*"] }),
            json!({ "scopes": ["coder:apikeys.manage_self", "api_key:*", "user:update_personal"] }),
        ] {
            let limited = make(body.clone()).await;
            assert_eq!(done(&server, &limited, "plain").await, "--------", "{body}");
            let made = json!({ "email": "new@example.com", "username": "new", "password": NEW_PASSWORD,
                "organization_ids": [server.app.default_organization] });
            server.post(&limited, "/api/v2/users", made).await.expect(403);
            for (path, role) in [
                ("/api/v2/users/plain/roles", "owner"),
                ("/api/v2/organizations/default/members/plain/roles", "organization-admin"),
            ] {
                let status = server.put(&limited, path, json!({ "roles": [role] })).await.status.as_u16();
                assert!([400, 403, 404].contains(&status), "{path}: {status}");
            }
        }
        let roles = server.get(&owner, "/api/v2/users/plain/roles").await.expect(200);
        assert_eq!(roles["roles"], json!([]));
        server.login("plain@example.com").await;
    }
}
