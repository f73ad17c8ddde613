//! Organizations and members (http-api 4).

use serde_json::{Value, json};

use crate::harness::{TestServer, on_both_engines};

on_both_engines! {
    async fn every_way_to_name_the_default_organization(server: TestServer) {
        let owner = server.owner().await;
        let by_name = server.get(&owner, "/api/v2/organizations/coder").await.expect(200);
        let id = by_name["id"].as_str().unwrap();
        for name in ["default", "Default", "CODER", "00000000-0000-0000-0000-000000000000", id] {
            assert_eq!(server.get(&owner, &format!("/api/v2/organizations/{name}")).await.expect(200)["id"], by_name["id"]);
        }
        server.get(&owner, "/api/v2/organizations/nothing").await.expect(404);
        server.get(&owner, "/api/v2/organizations/a%2Fb%20c").await.expect(404);
        assert_eq!(server.get(&owner, "/api/v2/organizations").await.expect(200).as_array().unwrap().len(), 1);
    }

    async fn members(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let path = "/api/v2/organizations/default/members";
        let list = server.get(&member, path).await.expect(200);
        assert_eq!(list[1]["username"], "dev");
        assert_eq!(list[0]["global_roles"][0]["name"], "owner");
        server.post(&owner, &format!("{path}/dev"), Value::Null).await.expect(400);
        server.delete(&member, &format!("{path}/admin")).await.expect(403);
        server.delete(&owner, &format!("{path}/admin")).await.expect(400);
        server.delete(&owner, &format!("{path}/dev")).await.expect(204);
        server.get(&member, path).await.expect(404);
        assert_eq!(server.get(&member, "/api/v2/users/me/organizations").await.expect(200), json!([]));
        server.post(&owner, &format!("{path}/dev"), Value::Null).await.expect(200);
        let page = server.get(&owner, "/api/v2/organizations/default/paginated-members?limit=1").await.expect(200);
        assert_eq!((page["count"].as_i64(), page["members"].as_array().unwrap().len()), (Some(2), 1));
    }
}

const ORGANIZATIONS: &str = "/api/v2/organizations";

on_both_engines! {
    async fn organizations_are_made_changed_and_removed(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let made = server.post(&owner, ORGANIZATIONS, json!({ "name": "Blue", "description": "sea" })).await.expect(201);
        assert_eq!((made["name"].as_str(), made["display_name"].as_str()), (Some("Blue"), Some("Blue")));
        assert_eq!((made["description"].as_str(), made["is_default"].as_bool()), (Some("sea"), Some(false)));
        let own = server.get(&owner, "/api/v2/users/me/organizations").await.expect(200);
        assert_eq!(own.as_array().unwrap().len(), 2, "its creator is a member");
        let members = server.get(&owner, "/api/v2/organizations/blue/members").await.expect(200);
        assert_eq!(members[0]["roles"], json!([]), "without a role");

        assert_eq!(server.post(&owner, ORGANIZATIONS, json!({ "name": "BLUE" })).await.refused(409), "name");
        for bad in ["default", "new", "", "a b", &"x".repeat(33)] {
            assert_eq!(server.post(&owner, ORGANIZATIONS, json!({ "name": bad })).await.refused(400), "name", "{bad}");
        }
        server.post(&member, ORGANIZATIONS, json!({ "name": "mine" })).await.expect(403);

        server.get(&member, "/api/v2/organizations/blue").await.expect(404);
        server.patch(&member, "/api/v2/organizations/blue", json!({ "name": "x" })).await.expect(404);
        server.patch(&member, "/api/v2/organizations/default", json!({ "name": "x" })).await.expect(403);
        let changed = json!({ "name": "green", "display_name": "Green", "icon": "/emojis/1f332.png" });
        let changed = server.patch(&owner, "/api/v2/organizations/blue", changed).await.expect(200);
        assert_eq!((changed["name"].as_str(), changed["description"].as_str()), (Some("green"), Some("sea")));
        let emptied = server.patch(&owner, "/api/v2/organizations/green", json!({ "description": "" })).await.expect(200);
        assert_eq!((emptied["description"].as_str(), emptied["display_name"].as_str()), (Some(""), Some("Green")));
        assert_eq!(server.patch(&owner, "/api/v2/organizations/green", json!({ "name": "coder" })).await.refused(409), "name");

        server.delete(&member, "/api/v2/organizations/default").await.expect(403);
        server.delete(&owner, "/api/v2/organizations/default").await.expect(400);
        server.post(&owner, "/api/v2/organizations/green/provisionerkeys", json!({ "name": "k" })).await.expect(201);
        server.post(&owner, "/api/v2/organizations/green/members/dev", Value::Null).await.expect(200);
        let full = server.delete(&owner, "/api/v2/organizations/green").await.expect(409);
        assert_eq!(full["detail"], "Remove them first: 1 provisioner keys, 1 members.");
        server.delete(&owner, "/api/v2/organizations/green/members/dev").await.expect(204);
        server.delete(&owner, "/api/v2/organizations/green/provisionerkeys/k").await.expect(204);
        server.delete(&owner, "/api/v2/organizations/green").await.expect(200);
        server.get(&owner, "/api/v2/organizations/green").await.expect(404);
        assert_eq!(server.get(&owner, "/api/v2/users/me").await.expect(200)["organization_ids"].as_array().unwrap().len(), 1);
        server.post(&owner, ORGANIZATIONS, json!({ "name": "green" })).await.expect(201);
    }

    async fn who_may_assign_organization_roles(server: TestServer) {
        let owner = server.owner().await;
        let (head, people, dev) = (
            server.user(&owner, "head", &[]).await,
            server.user(&owner, "people", &[]).await,
            server.user(&owner, "dev", &[]).await,
        );
        let path = |user: &str| format!("/api/v2/organizations/default/members/{user}/roles");
        let set = async |by: &str, user: &str, roles: &[&str]| {
            server.put(by, &path(user), json!({ "roles": roles })).await
        };
        let given = set(&owner, "head", &["organization-admin", "organization-member"]).await.expect(200);
        assert_eq!(given["roles"][0]["name"], "organization-admin");
        assert_eq!(given["roles"][0]["organization_id"], given["organization_id"]);
        assert_eq!(given["roles"].as_array().unwrap().len(), 1, "the implied role is not kept");
        set(&head, "people", &["organization-user-admin"]).await.expect(200);
        set(&people, "dev", &["organization-auditor"]).await.expect(403);
        set(&people, "dev", &[]).await.expect(200);
        set(&people, "head", &[]).await.expect(403);
        set(&dev, "head", &[]).await.expect(403);
        set(&head, "head", &[]).await.expect(400);
        set(&owner, "admin", &["organization-admin"]).await.expect(400);
        assert_eq!(set(&head, "dev", &["owner"]).await.refused(400), "roles");
        set(&head, "nobody", &[]).await.expect(404);
        // Removing a member takes the roles, so it needs the same right.
        server.delete(&people, "/api/v2/organizations/default/members/head").await.expect(403);
        server.delete(&people, "/api/v2/organizations/default/members/dev").await.expect(204);
        server.post(&people, "/api/v2/organizations/default/members/dev", Value::Null).await.expect(200);
        server.post(&people, "/api/v2/organizations/default/members/nobody", Value::Null).await.expect(400);
        assert_eq!(server.get(&head, "/api/v2/users/dev").await.expect(200)["username"], "dev", "http-api 3.1");

        let roles = server.get(&dev, "/api/v2/organizations/default/members/roles").await.expect(200);
        assert_eq!((roles.as_array().unwrap().len(), roles[0]["assignable"].as_bool()), (5, Some(false)));
        let roles = server.get(&head, "/api/v2/organizations/default/members/roles").await.expect(200);
        assert!(roles.as_array().unwrap().iter().all(|role| role["assignable"] == true && role["built_in"] == true));
        assert!(!roles[1]["organization_permissions"].as_array().unwrap().is_empty());

        // There are no custom roles. The error has the usual format.
        for answer in [
            server.post(&owner, "/api/v2/organizations/default/members/roles", json!({ "name": "auditor-2" })).await,
            server.put(&owner, "/api/v2/organizations/default/members/roles", json!({ "name": "auditor-2" })).await,
        ] {
            assert_eq!(answer.expect(403)["message"], "Custom roles are not available on this server.");
        }

        // Users who are not members see nothing.
        server.post(&owner, ORGANIZATIONS, json!({ "name": "blue" })).await.expect(201);
        server.get(&head, "/api/v2/organizations/blue/members/roles").await.expect(404);
        server.put(&head, "/api/v2/organizations/blue/members/admin/roles", json!({ "roles": [] })).await.expect(404);
        let site = server.get(&owner, "/api/v2/users/roles").await.expect(200);
        assert!(site[1]["site_permissions"].as_array().unwrap().len() > 10);
    }

    async fn template_admins_may_list_jobs_and_daemons(server: TestServer) {
        let owner = server.owner().await;
        let admin = server.user(&owner, "templates", &["template-admin"]).await;
        let auditor = server.user(&owner, "audits", &["auditor"]).await;
        for list in ["provisionerjobs", "provisionerdaemons"] {
            let path = format!("/api/v2/organizations/default/{list}");
            server.get(&admin, &path).await.expect(200);
            server.get(&auditor, &path).await.expect(404);
        }
    }
}
