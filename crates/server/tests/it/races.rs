//! Two requests at once, of which one removes what the other relies on. At most one of them may succeed.

use std::fmt::Display;

use coder_domain::clock::Clock as _;
use coder_domain::secret::Secret;
use coder_server::http::origin::Origin;
use coder_server::routes::keys::create::open_session;
use coder_store::{sessions, transaction, users};
use serde_json::{Value, json};

use crate::harness::{TestServer, on_both_engines};

const ROUNDS: usize = 6;

async fn status(server: &TestServer, by: &str, method: &str, path: impl Display, body: Value) -> u16 {
    server.ask(by, method.parse().unwrap(), &format!("/api/v2/{path}"), body).await.status.as_u16()
}

fn succeeded(status: u16) -> bool {
    assert!(status < 500, "{status}");
    status < 300
}

/// What `PUT /users/{user}/password` changes, without the time for hashing.
async fn change_password(server: &TestServer, name: &str) {
    let changed: Result<(), coder_store::Error> = transaction!(server.app.store, coder_store::Error, |tx| {
        let user = users::find_by_username(tx, name).await?.unwrap();
        users::update_password(tx, user.id, &Secret::new("other"), server.clock.now()).await?;
        sessions::delete_others(tx, user.id, "").await?;
        Ok(())
    });
    changed.unwrap();
}

on_both_engines! {
    async fn owners_do_not_take_the_role_of_each_other(server: TestServer) {
        let first = server.owner().await;
        for round in 0..ROUNDS {
            let (one, two) = (format!("one{round}"), format!("two{round}"));
            let by_one = server.user(&first, &one, &["owner"]).await;
            let by_two = server.user(&first, &two, &["owner"]).await;
            let take = async |by: &str, name: &str| match round % 2 {
                0 => status(&server, by, "PUT", format!("users/{name}/roles"), json!({ "roles": [] })).await,
                _ => status(&server, by, "DELETE", format!("users/{name}"), Value::Null).await,
            };
            let (a, b) = tokio::join!(take(&by_one, &two), take(&by_two, &one));
            assert!(succeeded(a) != succeeded(b), "round {round}: {a} {b}");
        }
    }

    async fn administrators_of_an_organization_do_not_take_the_role_of_each_other(server: TestServer) {
        let owner = server.owner().await;
        for round in 0..ROUNDS {
            let (one, two) = (format!("one{round}"), format!("two{round}"));
            let (by_one, by_two) = (server.user(&owner, &one, &[]).await, server.user(&owner, &two, &[]).await);
            let member = |name: &str| format!("organizations/default/members/{name}");
            for name in [&one, &two] {
                let roles = json!({ "roles": ["organization-admin"] });
                assert_eq!(status(&server, &owner, "PUT", format!("{}/roles", member(name)), roles).await, 200);
            }
            let take = async |by: &str, name: &str| match round % 2 {
                0 => status(&server, by, "PUT", format!("{}/roles", member(name)), json!({ "roles": [] })).await,
                _ => status(&server, by, "DELETE", member(name), Value::Null).await,
            };
            let (a, b) = tokio::join!(take(&by_one, &two), take(&by_two, &one));
            assert!(succeeded(a) != succeeded(b), "round {round}: {a} {b}");
        }
    }

    async fn a_session_is_ended_by_each_of_two_requests(server: TestServer) {
        let owner = server.owner().await;
        for round in 0..ROUNDS {
            let session = server.user(&owner, &format!("u{round}"), &[]).await;
            let log_out = || status(&server, &session, "POST", "users/logout", Value::Null);
            let (a, b) = tokio::join!(log_out(), log_out());
            assert!([a, b].iter().all(|status| [200, 401].contains(status)), "round {round}: {a} {b}");
            assert!(succeeded(a) || succeeded(b), "round {round}: {a} {b}");
            assert_eq!(status(&server, &session, "GET", "users/me", Value::Null).await, 401);
        }
    }

    async fn a_new_password_ends_what_is_made_meanwhile(server: TestServer) {
        let owner = server.owner().await;
        for round in 0..ROUNDS {
            let name = format!("u{round}");
            let session = server.user(&owner, &name, &[]).await;
            let make = async || server.post(&session, "/api/v2/users/me/keys/tokens", json!({})).await;
            let (_, one, two, three) = tokio::join!(change_password(&server, &name), make(), make(), make());
            for made in [one, two, three].iter().filter(|made| made.status == 201) {
                let key = made.json()["key"].as_str().unwrap().to_owned();
                assert_eq!(status(&server, &key, "GET", "users/me", Value::Null).await, 401, "round {round}");
            }
        }
    }

    async fn an_account_that_changed_meanwhile_gets_no_session(server: TestServer) {
        let owner = server.owner().await;
        let read = async |name: &str| {
            let mut tx = server.app.store.reader().await.unwrap();
            users::find_by_username(&mut tx, name).await.unwrap().unwrap()
        };
        let opens = async |user: &users::User| {
            open_session(&server.app, user, &Origin::default()).await.unwrap().is_some()
        };
        for name in ["same", "other-password", "suspended", "deleted"] {
            server.user(&owner, name, &[]).await;
        }
        let same = read("same").await;
        assert!(opens(&same).await);
        let user = read("other-password").await;
        change_password(&server, "other-password").await;
        assert!(!opens(&user).await);
        for (name, method, path) in [
            ("suspended", "PUT", "users/suspended/status/suspend"),
            ("deleted", "DELETE", "users/deleted"),
        ] {
            let user = read(name).await;
            assert_eq!(status(&server, &owner, method, path, Value::Null).await, 200);
            assert!(!opens(&user).await, "{name}");
        }
    }

    async fn a_workspace_is_made_of_no_template_that_is_deleted_meanwhile(server: TestServer) {
        let owner = server.owner().await;
        for round in 0..ROUNDS {
            let (template, _) = server.template(&owner, &format!("t{round}")).await;
            let workspace = json!({ "name": format!("w{round}"), "template_id": template });
            let (a, b) = tokio::join!(
                status(&server, &owner, "DELETE", format!("templates/{template}"), Value::Null),
                status(&server, &owner, "POST", "users/me/workspaces", workspace),
            );
            assert!(succeeded(a) != succeeded(b), "round {round}: {a} {b}");
        }
    }

    async fn a_workspace_has_no_owner_who_is_deleted_meanwhile(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "t").await;
        for round in 0..ROUNDS {
            let name = format!("dev{round}");
            server.user(&owner, &name, &[]).await;
            let path = format!("users/{name}/workspaces");
            let (a, b) = tokio::join!(
                status(&server, &owner, "DELETE", format!("users/{name}"), Value::Null),
                status(&server, &owner, "POST", &path, json!({ "name": "w", "template_id": template })),
            );
            assert!(succeeded(a) != succeeded(b), "round {round}: {a} {b}");
        }
    }

    async fn the_version_that_becomes_active_is_not_archived_meanwhile(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "t").await;
        for round in 0..ROUNDS {
            let (version, job) = server.version(&owner, json!({ "template_id": template })).await;
            server.finish(job, "").await;
            let (a, b) = tokio::join!(
                status(&server, &owner, "PATCH", format!("templates/{template}/versions"), json!({ "id": version })),
                status(&server, &owner, "POST", format!("templateversions/{version}/archive"), Value::Null),
            );
            assert!(succeeded(a) != succeeded(b), "round {round}: {a} {b}");
        }
    }

    async fn nothing_comes_into_an_organization_that_is_deleted_meanwhile(server: TestServer) {
        let owner = server.owner().await;
        server.user(&owner, "dev", &[]).await;
        for round in 0..ROUNDS {
            let organization = json!({ "name": format!("o{round}") });
            let made = server.post(&owner, "/api/v2/organizations", organization).await.expect(201);
            let path = format!("organizations/{}", made["id"].as_str().unwrap());
            let add = async || match round % 2 {
                0 => status(&server, &owner, "POST", format!("{path}/members/dev"), Value::Null).await,
                _ => {
                    let key = json!({ "name": "k", "tags": {} });
                    status(&server, &owner, "POST", format!("{path}/provisionerkeys"), key).await
                }
            };
            let (a, b) = tokio::join!(status(&server, &owner, "DELETE", &path, Value::Null), add());
            assert!(succeeded(a) != succeeded(b), "round {round}: {a} {b}");
        }
    }
}
