//! Tokens that a key creates: they never live longer than the key, never may do more, and end with it.

use http::Request;
use serde_json::{Value, json};

use crate::harness::{Answer, PASSWORD, TestServer, on_both_engines};

const SECOND_NS: i64 = 1_000_000_000;
const TOKENS: &str = "/api/v2/users/me/keys/tokens";
const SESSIONS: &str = "/api/v2/users/me/keys";
const ME: &str = "/api/v2/users/me";

#[track_caller]
fn key(made: Answer) -> String {
    made.expect(201)["key"].as_str().unwrap().to_owned()
}

fn public(key: &str) -> &str {
    key.split_once('-').unwrap().0
}

/// A token with a lifetime in seconds.
async fn token(server: &TestServer, by: &str, seconds: i64) -> String {
    key(server.post(by, TOKENS, json!({ "lifetime": seconds * SECOND_NS })).await)
}

async fn session(server: &TestServer, by: &str) -> String {
    key(server.post(by, SESSIONS, Value::Null).await)
}

async fn status(server: &TestServer, key: &str) -> u16 {
    server.get(key, ME).await.status.as_u16()
}

/// Submits the page of `coder login` with the key in the cookie, like a browser.
async fn page(server: &TestServer, key: &str) -> Answer {
    let cookie = format!("coder_session_token={key}");
    let request = Request::get("/cli-auth").header("cookie", &cookie);
    let form = server.send(request.body(axum::body::Body::empty()).unwrap()).await;
    let text = form.text();
    let Some((_, rest)) = text.split_once("name=\"csrf_token\" value=\"") else { return form };
    let csrf = rest.split_once('"').unwrap().0;
    let request = Request::post("/cli-auth")
        .header("cookie", format!("{cookie}; csrf_token={csrf}"))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(axum::body::Body::from(format!("csrf_token={csrf}")))
        .unwrap();
    server.send(request).await
}

/// The session token that the page shows.
fn shown(page: &Answer) -> Option<String> {
    let text = page.text();
    let is_key = |word: &&str| word.len() == 33 && word.as_bytes()[10] == b'-';
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').find(is_key).map(str::to_owned)
}

on_both_engines! {
    async fn keys_created_by_a_token_live_no_longer_than_it(server: TestServer) {
        let owner = server.owner().await;
        let short = token(&server, &owner, 5).await;
        let mut minted = vec![session(&server, &short).await, token(&server, &short, 3600).await];
        // Also for the child of a child, however it is created.
        minted.push(token(&server, &minted[0], 3600).await);
        minted.push(session(&server, &minted[1]).await);
        minted.push(shown(&page(&server, &short).await).unwrap());
        minted.push(key(server.post(&short, TOKENS, json!({ "lifetime": 0 })).await));
        for key in &minted {
            assert_eq!(status(&server, key).await, 200);
            let row = server.get(&owner, &format!("{SESSIONS}/{}", public(key))).await.expect(200);
            assert!(row["lifetime_seconds"].as_i64().unwrap() <= 5, "{row}");
        }
        server.advance(5);
        for key in minted.iter().chain([&short]) {
            assert_eq!(status(&server, key).await, 401);
        }
        assert_eq!(status(&server, &owner).await, 200);
    }

    async fn use_extends_a_minted_session_to_the_end_of_the_token_and_no_further(server: TestServer) {
        const HOUR: i64 = 3600;
        let owner = server.owner().await;
        // The session gets seven of the remaining eight days, and use extends it.
        let member = server.user(&owner, "dev", &[]).await;
        let long = token(&server, &member, 8 * 24 * HOUR).await;
        let minted = session(&server, &long).await;
        for _ in 0..8 * 24 - 1 {
            server.advance(HOUR);
            assert_eq!(status(&server, &minted).await, 200);
        }
        server.advance(HOUR);
        assert_eq!(status(&server, &minted).await, 401);
    }

    async fn deleting_a_token_ends_all_that_it_minted(server: TestServer) {
        let owner = server.owner().await;
        let root = token(&server, &owner, 3600).await;
        let (by_session, by_token) = (session(&server, &root).await, token(&server, &root, 60).await);
        let deep = session(&server, &by_token).await;
        let deeper = token(&server, &deep, 60).await;
        let other = token(&server, &owner, 3600).await;
        // Deleting a key in the middle ends its children and nothing else.
        server.delete(&owner, &format!("{SESSIONS}/{}", public(&by_token))).await.expect(204);
        for (key, want) in
            [(&root, 200), (&by_session, 200), (&by_token, 401), (&deep, 401), (&deeper, 401), (&other, 200)]
        {
            assert_eq!(status(&server, key).await, want);
        }
        let child = session(&server, &by_session).await;
        server.post(&root, "/api/v2/users/logout", Value::Null).await.expect(200);
        for (key, want) in [(&root, 401), (&by_session, 401), (&child, 401), (&other, 200), (&owner, 200)] {
            assert_eq!(status(&server, key).await, want);
        }
    }

    /// Otherwise signing out of a browser would end the command line and CI.
    async fn keys_created_by_a_logged_in_person_are_independent(server: TestServer) {
        let owner = server.owner().await;
        let (cli, ci) = (session(&server, &owner).await, token(&server, &owner, 3600).await);
        let from_page = shown(&page(&server, &owner).await).unwrap();
        let by_cli = token(&server, &cli, 3600).await;
        server.post(&owner, "/api/v2/users/logout", Value::Null).await.expect(200);
        server.post(&cli, "/api/v2/users/logout", Value::Null).await.expect(200);
        for (key, want) in [(&owner, 401), (&cli, 401), (&ci, 200), (&from_page, 200), (&by_cli, 200)] {
            assert_eq!(status(&server, key).await, want);
        }
    }

    async fn keys_created_by_a_limited_token_have_its_limits(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "t").await;
        let (mine, _, _) = server.workspace(&owner, template, "mine").await;
        let (other, _, _) = server.workspace(&owner, template, "other").await;
        let allow = json!({ "allow_list": [format!("workspace:{mine}"), "api_key:*"] });
        let limited = key(server.post(&owner, TOKENS, allow).await);
        for minted in [session(&server, &limited).await, shown(&page(&server, &limited).await).unwrap()] {
            server.get(&minted, &format!("/api/v2/workspaces/{mine}")).await.expect(200);
            server.get(&minted, &format!("/api/v2/workspaces/{other}")).await.expect(404);
            server.post(&minted, TOKENS, json!({})).await.expect(403);
        }
        // The page requires the same permission as the API.
        let reader = key(server.post(&owner, TOKENS, json!({ "scopes": ["workspace:read"] })).await);
        server.post(&reader, SESSIONS, Value::Null).await.expect(403);
        let refused = page(&server, &reader).await;
        assert_eq!((refused.status.as_u16(), shown(&refused)), (403, None));
    }

    async fn a_lifetime_out_of_range_is_refused(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        for lifetime in [json!(-1), json!(i64::MIN), json!(i64::MAX), json!(1), json!(999_999_999)] {
            let answer = server.post(&member, TOKENS, json!({ "lifetime": lifetime })).await;
            assert_eq!(answer.refused(400), "lifetime", "{lifetime}");
        }
        for body in ["{\"lifetime\":9223372036854775808}", "{\"lifetime\":1e30}", "{\"lifetime\":\"1\"}"] {
            let request = Request::post(TOKENS).header("coder-session-token", &member);
            let answer = server.send(request.body(axum::body::Body::from(body)).unwrap()).await;
            assert_eq!(answer.status, 400, "{body}");
        }
        assert_eq!(server.get(&member, TOKENS).await.expect(200), json!([]));
    }

    /// A token that an owner's token created for another user is valid as long as the owner's token could create it.
    async fn keys_created_for_others_end_with_the_right_to_create_them(server: TestServer) {
        let owner = server.owner().await;
        server.user(&owner, "dev", &[]).await;
        for name in ["demoted", "deleted", "reset"] {
            let chief = server.user(&owner, name, &["owner"]).await;
            let automation = token(&server, &chief, 3600).await;
            let made = key(server.post(&automation, "/api/v2/users/dev/keys/tokens", json!({})).await);
            let by_hand = key(server.post(&chief, "/api/v2/users/dev/keys/tokens", json!({})).await);
            assert_eq!(server.get(&made, ME).await.expect(200)["username"], "dev");
            let path = format!("/api/v2/users/{name}");
            match name {
                "demoted" => {
                    server.put(&owner, &format!("{path}/roles"), json!({ "roles": ["auditor"] })).await.expect(200)
                }
                "deleted" => server.delete(&owner, &path).await.expect(200),
                _ => {
                    let password = json!({ "password": PASSWORD });
                    server.put(&owner, &format!("{path}/password"), password).await.expect(204)
                }
            };
            assert_eq!(status(&server, &made).await, 401, "{name}");
            assert_eq!(status(&server, &by_hand).await, 200, "{name}");
        }
    }

    async fn suspension_ends_keys_that_were_created_for_others(server: TestServer) {
        let owner = server.owner().await;
        server.user(&owner, "dev", &[]).await;
        let chief = server.user(&owner, "chief", &["owner"]).await;
        let automation = token(&server, &chief, 3600).await;
        let made = key(server.post(&automation, "/api/v2/users/dev/keys/tokens", json!({})).await);
        // An owner cannot be suspended, and losing the role deletes the token. So the test changes the database
        // directly.
        server.execute("update users set site_roles = '[\"auditor\"]' where username = 'chief'").await;
        assert_eq!(status(&server, &made).await, 200);
        server.put(&owner, "/api/v2/users/chief/status/suspend", Value::Null).await.expect(200);
        assert_eq!(status(&server, &made).await, 401);
    }
}

#[tokio::test]
async fn a_new_password_ends_tokens_and_what_they_minted() {
    let server = TestServer::sqlite().await;
    let owner = server.owner().await;
    let thief = server.user(&owner, "dev", &[]).await;
    let (stolen, cli) = (token(&server, &thief, 3600).await, session(&server, &thief).await);
    let deep = session(&server, &stolen).await;
    let own = server.login("dev@example.com").await;
    let change = json!({ "old_password": PASSWORD, "password": "AnotherSecret!22" });
    server.put(&own, "/api/v2/users/me/password", change).await.expect(204);
    for (key, want) in [(&own, 200), (&thief, 401), (&stolen, 401), (&cli, 401), (&deep, 401)] {
        assert_eq!(status(&server, key).await, want);
    }
    // A child session that changes the password stays, and so do its parents.
    let root = token(&server, &own, 3600).await;
    let minted = session(&server, &root).await;
    let back = json!({ "old_password": "AnotherSecret!22", "password": PASSWORD });
    server.put(&minted, "/api/v2/users/me/password", back).await.expect(204);
    for (key, want) in [(&minted, 200), (&root, 200), (&own, 401)] {
        assert_eq!(status(&server, key).await, want);
    }
    server
        .put(&owner, "/api/v2/users/dev/password", json!({ "password": "AnotherSecret!22" }))
        .await
        .expect(204);
    assert_eq!(status(&server, &root).await, 401);
}
