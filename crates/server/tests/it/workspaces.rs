//! Workspaces (http-api 7.1).

use serde_json::{Value, json};

use crate::harness::{TestServer, on_both_engines};

const PATH: &str = "/api/v2/users/me/workspaces";

on_both_engines! {
    async fn a_workspace_with_its_first_build(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let (template, version) = server.template(&owner, "hello").await;
        let request = json!({ "template_version_id": version, "template_id": "00000000-0000-0000-0000-000000000000",
            "name": "W1", "rich_parameter_values": null, "ttl_ms": null,
            "template_version_preset_id": "00000000-0000-0000-0000-000000000000" });
        let made = server.post(&member, PATH, request).await.expect(201);
        let build = &made["latest_build"];
        assert_eq!(build["build_number"], 1);
        assert_eq!(build["transition"], "start");
        assert_eq!(build["reason"], "initiator");
        assert_eq!(build["resources"], json!([]));
        assert_eq!(build["template_version_name"], "");
        assert_eq!(build["status"], "pending");
        assert_eq!(build["job"]["input"], json!({ "workspace_build_id": build["id"] }));
        assert_eq!(made["owner_name"], "dev");
        assert_eq!(made["template_name"], "hello");
        assert_eq!(made["outdated"], false);
        assert_eq!(made["health"], json!({ "healthy": true, "failing_agents": [] }));

        let by_name = "/api/v2/users/me/workspace/w1?include_deleted=false";
        assert_eq!(server.get(&member, by_name).await.expect(200)["id"], made["id"]);
        server.get(&owner, by_name).await.expect(404);
        assert_eq!(server.get(&owner, "/api/v2/users/dev/workspace/w1").await.expect(200)["id"], made["id"]);
        let number = server.get(&member, "/api/v2/users/me/workspace/w1/builds/1").await.expect(200);
        assert_eq!(number["id"], build["id"]);
        server.get(&member, "/api/v2/users/me/workspace/w1/builds/2").await.expect(404);
        server.get(&member, "/api/v2/users/me/workspace/w1/builds/x").await.expect(400);
        let taken = json!({ "template_id": template, "name": "w1" });
        assert_eq!(server.post(&member, PATH, taken.clone()).await.refused(409), "name");
        server.post(&owner, PATH, taken).await.expect(201);
    }

    async fn settings_that_nothing_acts_on_are_answered_with_a_warning(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "hello").await;
        let path = format!("/api/v2/templates/{template}");
        let patch = async |more: Value| {
            let mut body = json!({ "activity_bump_ms": 3_600_000 });
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let answer = server.patch(&owner, &path, body).await;
            let all = answer.headers.get_all("x-coder-entitlements-warning").iter();
            all.map(|text| text.to_str().unwrap().split([',', ':']).next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert!(patch(json!({ "description": "d" })).await.is_empty());
        let executed = json!({ "activity_bump_ms": 7_200_000, "default_ttl_ms": 60_000, "failure_ttl_ms": 60_000,
            "time_til_dormant_ms": 60_000, "time_til_dormant_autodelete_ms": 60_000, "max_port_share_level": "owner",
            "autostop_requirement": { "days_of_week": ["monday"], "weeks": 1 },
            "autostart_requirement": { "days_of_week": ["monday"] }, "update_workspace_dormant_at": true });
        assert!(patch(executed).await.is_empty());
        let classic = patch(json!({ "use_classic_parameter_flow": false })).await;
        assert_eq!(classic, ["use_classic_parameter_flow is stored as false"]);
    }

    async fn clients_learn_which_parameter_form_exists(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "hello").await;
        let path = format!("/api/v2/templates/{template}");
        assert_eq!(server.get(&owner, &path).await.expect(200)["use_classic_parameter_flow"], true);
        let body = json!({ "use_classic_parameter_flow": false, "activity_bump_ms": 3_600_000 });
        let answer = server.patch(&owner, &path, body).await;
        assert_eq!(answer.headers.get_all("x-coder-entitlements-warning").iter().count(), 1);
        assert_eq!(answer.expect(200)["use_classic_parameter_flow"], true);
        let made = server.post(&owner, PATH, json!({ "name": "w", "template_id": template })).await.expect(201);
        assert_eq!(made["template_use_classic_parameter_flow"], true);
    }

    async fn bad_requests(server: TestServer) {
        let owner = server.owner().await;
        let (template, version) = server.template(&owner, "hello").await;
        let (loose, _) = server.version(&owner, json!({})).await;
        let (waiting, _) = server.version(&owner, json!({ "template_id": template })).await;
        let (broken, job) = server.version(&owner, json!({ "template_id": template })).await;
        server.finish(job, "no").await;
        let ask = async |body: Value| server.post(&owner, PATH, body).await;
        assert_eq!(ask(json!({ "name": "w" })).await.refused(400), "template_id");
        let both = json!({ "name": "w", "template_id": template, "template_version_id": version });
        assert_eq!(ask(both).await.refused(400), "template_id");
        assert_eq!(ask(json!({ "name": "a_b", "template_id": template })).await.refused(400), "name");
        assert_eq!(ask(json!({ "name": "w", "template_id": template, "ttl_ms": 5 })).await.refused(400), "ttl_ms");
        let schedule = json!({ "name": "w", "template_id": template, "autostart_schedule": "never" });
        assert_eq!(ask(schedule).await.refused(400), "schedule");
        assert_eq!(ask(json!({ "name": "w", "template_version_id": loose })).await.refused(400), "template_version_id");
        assert_eq!(ask(json!({ "name": "w", "template_version_id": waiting })).await.status, 406);
        assert_eq!(ask(json!({ "name": "w", "template_version_id": broken })).await.status, 400);
        let values = json!({ "name": "w", "template_id": template, "rich_parameter_values": [{ "name": "x", "value": "" }] });
        assert_eq!(ask(values).await.refused(400), "x");
        let list = server.get(&owner, "/api/v2/workspaces").await.expect(200);
        assert_eq!(list, json!({ "workspaces": [], "count": 0 }), "a refused request stores nothing");
    }

    async fn list_and_search(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let (template, _) = server.template(&owner, "hello").await;
        let (_, _, job) = server.workspace(&member, template, "beta").await;
        server.workspace(&member, template, "alpha").await;
        server.workspace(&owner, template, "gamma").await;
        server.finish(job, "").await;
        let names = async |token: &str, q: &str| {
            let list = server.get(token, &format!("/api/v2/workspaces?q={q}")).await.expect(200);
            let rows = list["workspaces"].as_array().unwrap();
            assert_eq!(list["count"].as_u64(), Some(rows.len() as u64));
            rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(",")
        };
        assert_eq!(names(&member, "").await, "beta,alpha", "running workspaces come first, and those of others are not visible");
        assert_eq!(names(&owner, "").await, "beta,gamma,alpha");
        assert_eq!(names(&owner, "owner:me").await, "gamma");
        assert_eq!(names(&owner, "dev/alp").await, "alpha");
        assert_eq!(names(&owner, "owner:dev%20status:running").await, "beta");
        assert_eq!(names(&owner, "template:HELLO%20name:amm").await, "gamma");
        assert_eq!(names(&owner, "organization:none").await, "");
        assert_eq!(server.get(&owner, "/api/v2/workspaces?q=status:bogus").await.refused(400), "q");
        let page = server.get(&owner, "/api/v2/workspaces?limit=1&offset=1").await.expect(200);
        assert_eq!((page["count"].as_i64(), page["workspaces"].as_array().unwrap().len()), (Some(3), 1));
    }

    async fn settings(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "hello").await;
        let (id, _, _) = server.workspace(&owner, template, "w").await;
        let stranger = server.user(&owner, "dev", &[]).await;
        let path = format!("/api/v2/workspaces/{id}");
        let put = async |token: &str, what: &str, body: Value| {
            server.put(token, &format!("{path}/{what}"), body).await.status.as_u16()
        };
        assert_eq!(put(&owner, "autostart", json!({ "schedule": "CRON_TZ=UTC 30 9 * * 1-5" })).await, 204);
        assert_eq!(put(&owner, "autostart", json!({ "schedule": "x" })).await, 400);
        assert_eq!(put(&owner, "ttl", json!({ "ttl_ms": 3_600_000 })).await, 204);
        assert_eq!(put(&owner, "autoupdates", json!({ "automatic_updates": "always" })).await, 204);
        assert_eq!(put(&owner, "autoupdates", json!({ "automatic_updates": "now" })).await, 400);
        assert_eq!(put(&owner, "favorite", Value::Null).await, 204);
        assert_eq!(put(&stranger, "ttl", json!({ "ttl_ms": null })).await, 404);
        let row = server.get(&owner, &path).await.expect(200);
        assert_eq!(row["autostart_schedule"], "CRON_TZ=UTC 30 9 * * 1-5");
        assert_eq!((row["ttl_ms"].as_i64(), row["favorite"].as_bool()), (Some(3_600_000), Some(true)));
        assert_eq!(row["automatic_updates"], "always");
        assert_eq!(put(&owner, "dormant", json!({ "dormant": false })).await, 304);
        assert_eq!(put(&owner, "dormant", json!({ "dormant": true })).await, 200);
        assert!(server.get(&owner, &path).await.expect(200)["dormant_at"].is_string());
        assert_eq!(put(&owner, "autostart", json!({ "schedule": null })).await, 204);
        assert!(server.get(&owner, &path).await.expect(200)["autostart_schedule"].is_null());
        server.delete(&owner, &format!("{path}/favorite")).await.expect(204);
        server.patch(&owner, &path, json!({ "name": "other" })).await.expect(400);
        server.get(&owner, &format!("{path}/resolve-autostart")).await.expect(200);
        server.get(&owner, &format!("{path}/timings")).await.expect(200);
    }
}
