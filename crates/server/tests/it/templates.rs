//! Templates (http-api 6.2).

use serde_json::{Value, json};

use crate::harness::{TestServer, on_both_engines};

const PATH: &str = "/api/v2/organizations/default/templates";

on_both_engines! {
    async fn a_new_template_has_the_documented_defaults(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let (version, _) = server.version(&owner, json!({})).await;
        let request = json!({ "name": "hello", "template_version_id": version, "max_port_share_level": null,
            "default_ttl_ms": null });
        let made = server.post(&owner, PATH, request.clone()).await.expect(201);
        for (field, want) in [
            ("activity_bump_ms", json!(3_600_000)), ("default_ttl_ms", json!(0)), ("active_user_count", json!(-1)),
            ("allow_user_autostart", json!(true)), ("allow_user_cancel_workspace_jobs", json!(false)),
            ("max_port_share_level", json!("public")), ("cors_behavior", json!("simple")),
            ("organization_name", json!("coder")), ("created_by_name", json!("admin")), ("provisioner", json!("terraform")),
            ("active_version_id", json!(version)), ("deprecated", json!(false)),
            ("autostop_requirement", json!({ "days_of_week": [], "weeks": 1 })),
        ] {
            assert_eq!(made[field], want, "{field}");
        }
        assert_eq!(made["autostart_requirement"]["days_of_week"].as_array().unwrap().len(), 7);
        assert_eq!(made["build_time_stats"]["start"], json!({ "P50": null, "P95": null }));
        server.post(&owner, PATH, request).await.expect(400);
        let (other, _) = server.version(&owner, json!({})).await;
        let taken = json!({ "name": "HELLO", "template_version_id": other });
        assert_eq!(server.post(&owner, PATH, taken).await.refused(409), "name");
        let version = server.get(&owner, &format!("/api/v2/templateversions/{version}")).await.expect(200);
        assert_eq!(version["template_id"], made["id"]);
        assert_eq!(server.get(&member, &format!("{PATH}/Hello")).await.expect(200)["id"], made["id"]);
        server.get(&member, &format!("{PATH}/none")).await.expect(404);
        server.post(&member, PATH, json!({ "name": "x", "template_version_id": other })).await.expect(403);
    }

    async fn bad_requests(server: TestServer) {
        let owner = server.owner().await;
        let (version, _) = server.version(&owner, json!({})).await;
        let refuse = async |body: Value| server.post(&owner, PATH, body).await;
        assert_eq!(refuse(json!({ "name": "a" })).await.refused(400), "template_version_id");
        let with = |more: Value| {
            let mut body = json!({ "name": "a", "template_version_id": version });
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        assert_eq!(refuse(with(json!({ "name": "a_b" }))).await.refused(400), "name");
        assert_eq!(refuse(with(json!({ "description": "x".repeat(128) }))).await.refused(400), "description");
        assert_eq!(refuse(with(json!({ "failure_ttl_ms": 1 }))).await.refused(400), "failure_ttl_ms");
        assert_eq!(refuse(with(json!({ "default_ttl_ms": -1 }))).await.refused(400), "default_ttl_ms");
        let unknown = coder_domain::ids::TemplateVersionId::random();
        assert_eq!(refuse(with(json!({ "template_version_id": unknown }))).await.status, 404);
    }

    async fn search(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        server.template(&owner, "beta").await;
        let (alpha, _) = server.template(&owner, "alpha").await;
        let names = async |token: &str, q: &str| {
            let list = server.get(token, &format!("/api/v2/templates?q={q}")).await.expect(200);
            list.as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(",")
        };
        assert_eq!(names(&member, "").await, "alpha,beta");
        assert_eq!(names(&member, "exact_name:%22alpha%22").await, "alpha");
        assert_eq!(names(&member, "exact_name:%22alph%22").await, "");
        assert_eq!(names(&member, "bet").await, "beta");
        assert_eq!(names(&member, "organization:coder%20author:admin").await, "alpha,beta");
        assert_eq!(names(&member, "organization:none").await, "");
        assert_eq!(server.get(&member, "/api/v2/templates?q=bogus:x").await.refused(400), "q");

        let path = format!("/api/v2/templates/{alpha}");
        let change = json!({ "deprecation_message": "use beta", "allow_user_autostart": true });
        let changed = server.patch(&owner, &path, change).await.expect(200);
        assert_eq!(changed["deprecated"], true);
        assert_eq!(changed["allow_user_autostop"], false, "absent flags mean false");
        assert_eq!(changed["name"], "alpha");
        assert_eq!(names(&member, "").await, "beta");
        assert_eq!(names(&member, "deprecated:true").await, "alpha");
        server.patch(&member, &path, json!({})).await.expect(403);

        let hidden = json!({ "deprecation_message": "", "disable_everyone_group_access": true });
        server.patch(&owner, &path, hidden).await.expect(200);
        assert_eq!(names(&member, "").await, "beta");
        server.get(&member, &path).await.expect(404);
        assert_eq!(names(&owner, "").await, "alpha,beta");
    }

    /// On the official server a missing or false value changes nothing. Every editing command sends one.
    async fn editing_a_private_template_does_not_make_it_visible(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let (id, version) = server.template(&owner, "secret").await;
        let path = format!("/api/v2/templates/{id}");
        let seen = async || {
            let list = server.get(&member, "/api/v2/templates").await.expect(200);
            let one = server.get(&member, &path).await.status.as_u16();
            let version = server.get(&member, &format!("/api/v2/templateversions/{version}")).await.status.as_u16();
            (list.as_array().unwrap().len(), one, version)
        };
        assert_eq!(seen().await, (1, 200, 200));
        server.patch(&owner, &path, json!({ "disable_everyone_group_access": true })).await.expect(200);
        assert_eq!(seen().await, (0, 404, 404));
        for edit in [
            json!({}),
            json!({ "disable_everyone_group_access": false }),
            json!({ "disable_everyone_group_access": null, "description": "other" }),
            json!({ "display_name": "S", "allow_user_autostart": true, "default_ttl_ms": 3_600_000 }),
            json!({ "name": "secret2", "deprecation_message": "old" }),
        ] {
            server.patch(&owner, &path, edit.clone()).await.expect(200);
            assert_eq!(seen().await, (0, 404, 404), "{edit}");
        }
        server.patch(&owner, &format!("{path}/versions"), json!({ "id": version })).await.expect(200);
        assert_eq!(seen().await, (0, 404, 404));
    }

    async fn the_access_list_gives_a_template_back_to_everybody(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let (id, _) = server.template(&owner, "t").await;
        let (path, acl) = (format!("/api/v2/templates/{id}"), format!("/api/v2/templates/{id}/acl"));
        let group = server.app.default_organization.to_string();
        let listed = async || server.get(&owner, &acl).await.expect(200);
        let everyone = listed().await;
        assert_eq!(everyone["users"], json!([]));
        assert_eq!((&everyone["group"][0]["id"], &everyone["group"][0]["role"]), (&json!(group), &json!("use")));
        assert_eq!(everyone["group"][0]["total_member_count"], 2);
        let set = async |role: &str| server.patch(&owner, &acl, json!({ "group_perms": { &group: role } })).await;
        set("").await.expect(200);
        assert_eq!(listed().await, json!({ "users": [], "group": [] }));
        server.get(&member, &path).await.expect(404);
        server.get(&member, &acl).await.expect(404);
        server.patch(&member, &acl, json!({ "group_perms": { &group: "use" } })).await.expect(404);
        server.patch(&owner, &acl, json!({})).await.expect(200);
        server.get(&member, &path).await.expect(404);
        set("use").await.expect(200);
        server.get(&member, &path).await.expect(200);
        server.get(&member, &acl).await.expect(403);
        server.patch(&member, &acl, json!({ "group_perms": { &group: "" } })).await.expect(403);
        // Settings without an effect are refused.
        assert_eq!(set("admin").await.refused(400), "group_perms");
        let other = json!({ "group_perms": { coder_domain::ids::OrganizationId::random().to_string(): "use" } });
        assert_eq!(server.patch(&owner, &acl, other).await.refused(400), "group_perms");
        let user = json!({ "user_perms": { server.user_id(&member).await.to_string(): "use" } });
        assert_eq!(server.patch(&owner, &acl, user).await.refused(400), "user_perms");
        assert_eq!(listed().await, everyone);
    }

    async fn activation(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "one").await;
        let (foreign, _) = server.version(&owner, json!({})).await;
        let (second, job) = server.version(&owner, json!({ "template_id": template })).await;
        let path = format!("/api/v2/templates/{template}/versions");
        server.patch(&owner, &path, json!({ "id": foreign })).await.expect(400);
        server.patch(&owner, &path, json!({ "id": second })).await.expect(403);
        server.finish(job, "").await;
        server.patch(&owner, &path, json!({ "id": second })).await.expect(200);
        server.patch(&owner, &path, json!({})).await.expect(400);
        let template = server.get(&owner, &format!("/api/v2/templates/{template}")).await.expect(200);
        assert_eq!(template["active_version_id"], json!(second));
    }

    async fn a_template_in_use_is_not_deleted(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "one").await;
        let (workspace, _, job) = server.workspace(&owner, template, "w").await;
        let path = format!("/api/v2/templates/{template}");
        server.delete(&owner, &path).await.expect(400);
        server.finish(job, "").await;
        let delete = json!({ "transition": "delete", "orphan": true });
        server.post(&owner, &format!("/api/v2/workspaces/{workspace}/builds"), delete).await.expect(201);
        server.delete(&owner, &path).await.expect(200);
        server.get(&owner, &path).await.expect(404);
        server.template(&owner, "one").await;
    }
}
