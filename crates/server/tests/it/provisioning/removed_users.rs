//! Daemons of users who are suspended, deleted or not members any more, and of removed organizations, are disconnected.

use bytes::Bytes;
use coder_domain::ids::OrganizationId;
use coder_domain::job::lifecycle::Cause;
use coder_server::provisioning::credentials::revoke;
use http::Method;

use super::daemon_process::{DaemonConnection, JoinOptions};
use super::user_daemons::{Two, joined};
use super::*;
use crate::harness::on_both_engines;

on_both_engines! {
    async fn removed_user_ends_the_sessions_of_their_daemons(server: TestServer) {
        let owner = server.owner().await;
        let kept = server.user_id(&server.user(&owner, "kept", &[]).await).await;
        let spared = joined(&server, "spared", kept, "").await;
        for (name, method, path) in [
            ("a", Method::PUT, "/api/v2/users/a/status/suspend"),
            ("b", Method::DELETE, "/api/v2/users/b"),
            ("c", Method::DELETE, "/api/v2/organizations/default/members/c"),
        ] {
            let user = server.user_id(&server.user(&owner, name, &[]).await).await;
            let roles = json!({ "roles": ["organization-admin"] });
            server.put(&owner, &format!("/api/v2/organizations/default/members/{name}/roles"), roles).await.expect(200);
            let two = Two::with_jobs(&server, &owner, name, user, "").await;
            revoke::user(&server.app, user).await;
            two.end(&server, server.ask(&owner, method, path, json!({})), &Cause::UserNotAllowed.error()).await;
        }
        assert!(spared.calls.session().end().is_none());
    }

    async fn lost_role_ends_only_the_sessions_that_needed_it(server: TestServer) {
        let owner = server.owner().await;
        let member = "/api/v2/organizations/default/members/u/roles";
        let site = "/api/v2/users/u/roles";
        let token = server.user(&owner, "u", &[]).await;
        let user = server.user_id(&token).await;
        let scope = BTreeMap::from([("scope".to_owned(), "user".to_owned())]);
        let tags = TagSet::canonical(user, [&scope]);
        let own = JoinOptions { name: "own", user: Some(user), tags, ..JoinOptions::default() };
        let own = DaemonConnection::open(&server.app, own).await;
        own.attach(&Bytes::new(), vec![]).await.unwrap();
        let (version, pushed) = import(&server, &owner, json!({ "scope": "user" })).await;
        server.finish(pushed, "").await;
        let made = json!({ "name": "t", "template_version_id": version });
        let made = server.post(&owner, "/api/v2/organizations/default/templates", made).await.expect(201);
        let template = made["id"].as_str().unwrap().parse().unwrap();
        let personal = server.workspace(&token, template, "w").await.2;
        own.take(personal).await;
        for (path, role) in [(member, "organization-admin"), (site, "template-admin")] {
            server.put(&owner, path, json!({ "roles": [role] })).await.expect(200);
            let connection = joined(&server, "for-all", user, "").await;
            let posted = import(&server, &owner, json!({})).await.1;
            connection.take(posted).await;
            server.put(&owner, path, json!({ "roles": [role] })).await.expect(200);
            connection.update(posted).await.unwrap();
            server.put(&owner, path, json!({ "roles": [] })).await.expect(200);
            tokio::time::timeout(WAIT_LIMIT, connection.calls.session().closed()).await.unwrap();
            let error = job(&server, posted).await.error;
            assert_eq!(error, format!("{} (daemon for-all)", Cause::UserNotAllowed.error()), "{role}");
        }
        own.update(personal).await.unwrap();
    }

    async fn removed_organization_ends_the_sessions_of_its_daemons(server: TestServer) {
        let owner = server.owner().await;
        let user = server.user_id(&owner).await;
        let made = server.post(&owner, "/api/v2/organizations", json!({ "name": "second" })).await.expect(201);
        let organization: OrganizationId = made["id"].as_str().unwrap().parse().unwrap();
        let options = JoinOptions { user: Some(user), organization: Some(organization), ..JoinOptions::default() };
        let connection = DaemonConnection::open(&server.app, options).await;
        connection.attach(&Bytes::new(), vec![]).await.unwrap();
        let other = joined(&server, "other", user, "").await;
        server.delete(&owner, "/api/v2/organizations/second").await.expect(200);
        tokio::time::timeout(WAIT_LIMIT, connection.calls.session().closed()).await.unwrap();
        assert!(other.calls.session().end().is_none());
    }
}
