//! What a build gets of its owner's credentials, by who requested it.

use coder_wire::messages::provisioner::Metadata;
use coder_wire::messages::provisionerd::acquired_job::Type;

use super::*;
use crate::harness::on_both_engines;

const ME: &str = "/api/v2/users/me";

/// Runs the next build, and returns what it got.
async fn run(daemon: &Daemon) -> Metadata {
    let got = daemon.acquire().await;
    let Some(Type::WorkspaceBuild(arm)) = got.r#type else { panic!("{got:?}") };
    daemon.calls.complete_job(&build_result(got.job_id.parse().unwrap(), b"state")).await.unwrap();
    arm.metadata.unwrap()
}

async fn create(server: &TestServer, by: &str, owner: &str, name: &str, template: impl ToString) -> String {
    let path = format!("/api/v2/organizations/default/members/{owner}/workspaces");
    let body = json!({ "name": name, "template_id": template.to_string() });
    server.post(by, &path, body).await.expect(201)["id"].as_str().unwrap().to_owned()
}

async fn token(server: &TestServer, by: &str, body: Value) -> String {
    let made = server.post(by, "/api/v2/users/me/keys/tokens", body).await.expect(201);
    made["key"].as_str().unwrap().to_owned()
}

on_both_engines! {
    /// An organization admin writes a template and starts it for an owner of the site.
    async fn a_build_gives_no_credentials_of_people_whom_its_initiator_may_not_act_as(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "example").await;
        let admin = server.user(&owner, "orgadmin", &[]).await;
        let path = "/api/v2/organizations/default/members/orgadmin/roles";
        server.put(&owner, path, json!({ "roles": ["organization-admin"] })).await.expect(200);
        server.user(&owner, "plain", &[]).await;
        let daemon = Daemon::untagged(&server, "d").await;

        let workspace = create(&server, &admin, "admin", "for-owner", template).await;
        let metadata = run(&daemon).await;
        assert_eq!(metadata.workspace_owner, "admin");
        assert_eq!(metadata.workspace_owner_session_token, "");
        assert_eq!(metadata.workspace_owner_ssh_private_key, "");

        // The same workspace, started by its owner, gets them. A later start by the admin ends the token again.
        let path = format!("/api/v2/workspaces/{workspace}/builds");
        server.post(&owner, &path, json!({ "transition": "start" })).await.expect(201);
        let own = run(&daemon).await;
        server.get(&own.workspace_owner_session_token, ME).await.expect(200);
        assert_ne!(own.workspace_owner_ssh_private_key, "");
        server.post(&admin, &path, json!({ "transition": "start" })).await.expect(201);
        assert_eq!(run(&daemon).await.workspace_owner_session_token, "");
        server.get(&own.workspace_owner_session_token, ME).await.expect(401);

        // The admin may set a member's password, so the member's credentials are no more rights.
        create(&server, &owner, "plain", "for-member", template).await;
        let metadata = run(&daemon).await;
        let me = server.get(&metadata.workspace_owner_session_token, ME).await.expect(200);
        assert_eq!(me["username"], "plain");
    }

    /// TOK-10: a token never yields one that lives longer or may do more.
    async fn the_session_token_of_a_build_has_the_limits_of_the_token_that_requested_it(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "example").await;
        let daemon = Daemon::untagged(&server, "d").await;
        let narrow = json!({ "scopes": ["coder:workspaces.create", "coder:workspaces.operate"] });
        let narrow = token(&server, &owner, narrow).await;
        create(&server, &narrow, "me", "narrow", template).await;
        let minted = run(&daemon).await.workspace_owner_session_token;
        server.put(&minted, "/api/v2/users/me/profile", json!({ "username": "admin", "name": "x" })).await.expect(403);
        let id = narrow.split_once('-').unwrap().0;
        server.delete(&owner, &format!("/api/v2/users/me/keys/{id}")).await.expect(204);
        server.get(&minted, "/api/v2/workspaces").await.expect(401);

        let short = token(&server, &owner, json!({ "lifetime": 60_000_000_000_i64 })).await;
        let workspace = create(&server, &short, "me", "short", template).await;
        let minted = run(&daemon).await.workspace_owner_session_token;
        server.get(&minted, ME).await.expect(200);
        // Started again with the workspace's own token: the limits stay.
        let path = format!("/api/v2/workspaces/{workspace}/builds");
        server.post(&minted, &path, json!({ "transition": "start" })).await.expect(201);
        let second = run(&daemon).await.workspace_owner_session_token;
        server.get(&second, ME).await.expect(200);
        server.advance(61);
        server.get(&second, ME).await.expect(401);
    }

    /// The token has ended when a daemon takes the job.
    async fn a_build_whose_token_has_ended_gets_no_session_token(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "example").await;
        let daemon = Daemon::untagged(&server, "d").await;
        let requester = token(&server, &owner, json!({})).await;
        create(&server, &requester, "me", "w", template).await;
        let id = requester.split_once('-').unwrap().0;
        server.delete(&owner, &format!("/api/v2/users/me/keys/{id}")).await.expect(204);
        assert_eq!(run(&daemon).await.workspace_owner_session_token, "");
    }
}
