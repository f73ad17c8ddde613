//! Template versions (http-api 6.3).

use coder_domain::ids::TemplateVersionId;
use serde_json::{Value, json};

use crate::harness::{TestServer, on_both_engines};

const PATH: &str = "/api/v2/organizations/default/templateversions";
const NIL: &str = "00000000-0000-0000-0000-000000000000";

on_both_engines! {
    async fn a_push_makes_a_waiting_import(server: TestServer) {
        let owner = server.owner().await;
        let file = server.file(&owner).await;
        let request = json!({ "template_id": NIL, "storage_method": "file", "file_id": file, "provisioner": "terraform",
            "message": "Uploaded from the CLI", "tags": { "environment": "on_prem", "owner": "me", "scope": "" },
            "user_variable_values": null });
        let version = server.post(&owner, PATH, request).await.expect(201);
        assert_eq!(version["template_id"], NIL);
        assert!(!version["name"].as_str().unwrap().is_empty());
        let job = &version["job"];
        assert_eq!(job["status"], "pending");
        assert_eq!(job["type"], "template_version_import");
        assert_eq!(job["input"], json!({ "template_version_id": version["id"] }));
        assert_eq!(job["tags"], json!({ "environment": "on_prem", "owner": "", "scope": "organization" }));
        assert_eq!((job["queue_position"].as_i64(), job["queue_size"].as_i64()), (Some(0), Some(0)));
        assert_eq!(version["matched_provisioners"], json!({ "count": 0, "available": 0, "most_recently_seen": null }));

        let id = version["id"].as_str().unwrap();
        let path = format!("/api/v2/templateversions/{id}");
        let again = server.get(&owner, &path).await.expect(200);
        assert_eq!(again["matched_provisioners"]["count"], 0);
        for (part, status) in [("resources", 400), ("variables", 403), ("rich-parameters", 425), ("presets", 200),
            ("external-auth", 200), ("schema", 200), ("parameters", 200)]
        {
            assert_eq!(server.get(&owner, &format!("{path}/{part}")).await.status.as_u16(), status, "{part}");
        }
        server.post(&owner, &format!("{path}/dry-run"), json!({})).await.expect(425);
        server.finish(job["id"].as_str().unwrap().parse().unwrap(), "").await;
        assert!(server.get(&owner, &path).await.expect(200)["matched_provisioners"].is_null());
        for part in ["resources", "variables", "rich-parameters"] {
            assert_eq!(server.get(&owner, &format!("{path}/{part}")).await.expect(200), json!([]), "{part}");
        }
    }

    /// A version without a template is visible to its authors only.
    async fn a_version_in_no_template_is_for_those_who_manage_templates(server: TestServer) {
        let owner = server.owner().await;
        let (draft, job) = server.version(&owner, json!({})).await;
        server.finish(job, "").await;
        let path = format!("/api/v2/templateversions/{draft}");
        let unknown = format!("/api/v2/templateversions/{}", TemplateVersionId::random());
        let parts = ["", "/logs", "/resources", "/variables", "/rich-parameters", "/presets", "/external-auth",
            "/schema", "/parameters", "/dry-run"];
        let ask = async |token: &str, path: &str, part: &str| {
            let path = format!("{path}{part}");
            match part {
                "/dry-run" => server.post(token, &path, json!({ "workspace_name": "x" })).await,
                _ => server.get(token, &path).await,
            }
        };
        let give = async |name: &str, role: &str| {
            let token = server.user(&owner, name, &[]).await;
            let path = format!("/api/v2/organizations/default/members/{name}/roles");
            server.put(&owner, &path, json!({ "roles": [role] })).await.expect(200);
            token
        };
        let member = server.user(&owner, "dev", &[]).await;
        let people = give("people", "organization-user-admin").await;
        for token in [&member, &people] {
            for part in parts {
                let refused = ask(token, &path, part).await;
                assert_eq!((refused.status.as_u16(), refused.text()), (404, ask(token, &unknown, part).await.text()));
            }
            // Naming it reveals nothing more.
            let named = async |id: TemplateVersionId| {
                let body = json!({ "name": "w", "template_version_id": id });
                let answer = server.post(token, "/api/v2/users/me/workspaces", body).await;
                (answer.status.as_u16(), answer.text())
            };
            assert_eq!(named(draft).await, named(TemplateVersionId::random()).await);
        }
        let author = give("author", "organization-template-admin").await;
        let auditor = server.user(&owner, "auditor", &["auditor"]).await;
        for (token, last) in [(&author, 201), (&auditor, 201), (&owner, 201)] {
            for part in parts {
                let want = if part == "/dry-run" { last } else { 200 };
                assert_eq!(ask(token, &path, part).await.status.as_u16(), want, "{part}");
            }
        }
        // A version in a template is visible to everyone who may use the template.
        let request = json!({ "name": "t", "template_version_id": draft });
        server.post(&owner, "/api/v2/organizations/default/templates", request).await.expect(201);
        assert_eq!(ask(&member, &path, "").await.status, 200);
        let (next, job) = server.version(&owner, json!({})).await;
        server.finish(job, "").await;
        let workspace = json!({ "name": "w", "template_version_id": draft });
        let made = server.post(&member, "/api/v2/users/me/workspaces", workspace).await.expect(201);
        server.finish(made["latest_build"]["job"]["id"].as_str().unwrap().parse().unwrap(), "").await;
        // A build with it reveals nothing either.
        let builds = format!("/api/v2/workspaces/{}/builds", made["id"].as_str().unwrap());
        let built = async |id: TemplateVersionId| {
            let body = json!({ "transition": "start", "template_version_id": id });
            server.post(&member, &builds, body).await
        };
        assert_eq!(built(next).await.text(), built(TemplateVersionId::random()).await.text());
    }

    async fn user_scope_belongs_to_the_requester(server: TestServer) {
        let owner = server.owner().await;
        let me = server.user_id(&owner).await;
        let file = server.file(&owner).await;
        let request = json!({ "file_id": file, "tags": { "scope": "user", "owner": "somebody" } });
        let version = server.post(&owner, PATH, request).await.expect(201);
        assert_eq!(version["job"]["tags"], json!({ "owner": me, "scope": "user" }));
    }

    async fn bad_requests(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let file = server.file(&owner).await;
        let refuse = async |body: Value| server.post(&owner, PATH, body).await;
        assert_eq!(refuse(json!({})).await.refused(400), "file_id");
        assert_eq!(refuse(json!({ "file_id": NIL })).await.refused(400), "file_id");
        assert_eq!(refuse(json!({ "file_id": TemplateVersionId::random() })).await.refused(404), "file_id");
        assert_eq!(refuse(json!({ "file_id": file, "name": "a..b" })).await.refused(400), "name");
        assert_eq!(refuse(json!({ "file_id": file, "provisioner": "pulumi" })).await.refused(400), "provisioner");
        assert_eq!(refuse(json!({ "file_id": file, "tags": { "a": "\u{0}" } })).await.refused(400), "tags");
        assert_eq!(refuse(json!({ "example_id": "x" })).await.refused(400), "example_id");
        refuse(json!({ "file_id": file, "example_id": "x" })).await.expect(400);
        refuse(json!({ "file_id": file, "template_id": TemplateVersionId::random() })).await.expect(404);
        assert_eq!(refuse(json!({ "file_id": file, "message": "x".repeat((1 << 20) + 1) })).await.refused(400), "message");
        server.post(&member, PATH, json!({ "file_id": file })).await.expect(403);
        server.post(&owner, "/api/v2/organizations/none/templateversions", json!({ "file_id": file })).await.expect(404);
    }

    async fn names_are_unique_in_a_template(server: TestServer) {
        let owner = server.owner().await;
        let (template, first) = server.template(&owner, "one").await;
        server.advance(1);
        let (second, _) = server.version(&owner, json!({ "template_id": template, "name": "v2" })).await;
        let file = server.file(&owner).await;
        let request = json!({ "file_id": file, "template_id": template, "name": "v2" });
        assert_eq!(server.post(&owner, PATH, request).await.refused(409), "name");
        let list = server.get(&owner, &format!("/api/v2/templates/{template}/versions")).await.expect(200);
        assert_eq!(list[0]["id"], json!(first));
        assert_eq!(list[1]["id"], json!(second));
        let after = server.get(&owner, &format!("/api/v2/templates/{template}/versions?after_id={first}")).await.expect(200);
        assert_eq!(after.as_array().unwrap().len(), 1);
        let by_name = format!("/api/v2/templates/{template}/versions/v2");
        assert_eq!(server.get(&owner, &by_name).await.expect(200)["id"], json!(second));
        server.get(&owner, &format!("/api/v2/templates/{template}/versions/V2")).await.expect(404);
        let by_names = "/api/v2/organizations/coder/templates/ONE/versions/v2";
        assert_eq!(server.get(&owner, by_names).await.expect(200)["id"], json!(second));
        assert_eq!(server.get(&owner, &format!("{by_names}/previous")).await.expect(200)["id"], json!(first));
        let path = format!("/api/v2/templateversions/{second}");
        let changed = server.patch(&owner, &path, json!({ "name": "v3", "message": "why" })).await.expect(200);
        assert_eq!((changed["name"].as_str(), changed["message"].as_str()), (Some("v3"), Some("why")));
    }

    async fn a_waiting_import_is_canceled_at_once(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let (version, _) = server.version(&owner, json!({})).await;
        let path = format!("/api/v2/templateversions/{version}");
        // It belongs to no template, so a member cannot see it.
        server.patch(&member, &format!("{path}/cancel"), Value::Null).await.expect(404);
        server.patch(&owner, &format!("{path}/cancel"), Value::Null).await.expect(200);
        assert_eq!(server.get(&owner, &path).await.expect(200)["job"]["status"], "canceled");
        let again = server.patch(&owner, &format!("{path}/cancel"), Value::Null).await.expect(400);
        assert_eq!(again["message"], "Job has already completed!");
        server.patch(&owner, "/api/v2/templateversions/x/cancel", Value::Null).await.expect(400);
        let unknown = format!("/api/v2/templateversions/{}/cancel", TemplateVersionId::random());
        server.patch(&owner, &unknown, Value::Null).await.expect(404);
    }

    async fn archiving(server: TestServer) {
        let owner = server.owner().await;
        let (template, active) = server.template(&owner, "one").await;
        let (old, job) = server.version(&owner, json!({ "template_id": template })).await;
        server.finish(job, "broken").await;
        let archive = |id| format!("/api/v2/templateversions/{id}/archive");
        server.post(&owner, &archive(active), Value::Null).await.expect(404);
        assert!(server.post(&owner, &archive(old), Value::Null).await.expect(200).is_string());
        server.post(&owner, &archive(old), Value::Null).await.expect(400);
        let path = format!("/api/v2/templates/{template}/versions");
        assert_eq!(server.get(&owner, &path).await.expect(200).as_array().unwrap().len(), 1);
        let all = server.get(&owner, &format!("{path}?include_archived=true")).await.expect(200);
        assert_eq!(all.as_array().unwrap().len(), 2);
        server.post(&owner, &format!("/api/v2/templateversions/{old}/unarchive"), Value::Null).await.expect(200);
        let swept = server.post(&owner, &format!("{path}/archive"), json!({ "all": false })).await.expect(200);
        assert_eq!(swept["archived_ids"], json!([old]));
    }

    async fn dry_runs(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let other = server.user(&owner, "eve", &[]).await;
        let (_, version) = server.template(&owner, "one").await;
        let path = format!("/api/v2/templateversions/{version}/dry-run");
        let request = json!({ "workspace_name": "w", "rich_parameter_values": [] });
        let job = server.post(&member, &path, request).await.expect(201);
        assert_eq!(job["type"], "template_version_dry_run");
        assert_eq!(job["input"], json!({ "template_version_id": version }));
        let one = format!("{path}/{}", job["id"].as_str().unwrap());
        assert_eq!(server.get(&member, &one).await.expect(200)["status"], "pending");
        assert_eq!(server.get(&member, &format!("{one}/matched-provisioners")).await.expect(200)["count"], 0);
        server.get(&member, &format!("{one}/resources")).await.expect(400);
        server.get(&other, &one).await.expect(404);
        server.patch(&other, &format!("{one}/cancel"), Value::Null).await.expect(404);
        server.patch(&member, &format!("{one}/cancel"), Value::Null).await.expect(200);
        server.patch(&member, &format!("{one}/cancel"), Value::Null).await.expect(400);
        assert_eq!(server.get(&member, &format!("{one}/resources")).await.expect(200), json!([]));
        let import = server.get(&owner, &format!("/api/v2/templateversions/{version}")).await.expect(200);
        server.get(&member, &format!("{path}/{}", import["job"]["id"].as_str().unwrap())).await.expect(404);
        let unknown = json!({ "rich_parameter_values": [{ "name": "x", "value": "y" }] });
        assert_eq!(server.post(&member, &path, unknown).await.refused(400), "x");
    }
}
