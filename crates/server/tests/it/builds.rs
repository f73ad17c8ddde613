//! Workspace builds: the order of checks, state, cancel (scheduling-and-auth 3.5, 3.7).

use base64::Engine;
use coder_domain::ids::{JobId, PresetId};
use coder_store::templates::version_details::{self, Parameter, ParameterOption, Preset};
use serde_json::{Value, json};

use crate::harness::{Answer, TestServer, on_both_engines, tar};

async fn build(server: &TestServer, token: &str, workspace: &str, body: Value) -> Answer {
    server.post(token, &format!("/api/v2/workspaces/{workspace}/builds"), body).await
}

const DEPENDENT: &str = r#"
data "coder_parameter" "region" {
  name    = "region"
  mutable = true
  default = "eu"
}
locals { sizes = { eu = ["l"], us = ["s"] }[data.coder_parameter.region.value] }
data "coder_parameter" "size" {
  name    = "size"
  mutable = true
  default = local.sizes[0]
  dynamic "option" {
    for_each = local.sizes
    content {
      name  = option.value
      value = option.value
    }
  }
}
data "coder_parameter" "threads" {
  count   = data.coder_parameter.region.value == "us" ? 1 : 0
  name    = "threads"
  type    = "number"
  mutable = true
  default = 4
  validation {
    min = 1
  }
}
data "coder_parameter" "only_eu" {
  for_each = data.coder_parameter.region.value == "eu" ? toset(["only_eu"]) : []
  name     = each.key
  mutable  = true
  default  = "x"
}
"#;

fn job_of(build: &Value) -> JobId {
    build["job"]["id"].as_str().unwrap().parse().unwrap()
}

on_both_engines! {
    async fn stop_start_delete(server: TestServer) {
        let owner = server.owner().await;
        let (template, version) = server.template(&owner, "hello").await;
        let (id, _, job) = server.workspace(&owner, template, "w").await;
        build(&server, &owner, &id, json!({ "transition": "stop" })).await.expect(409);
        server.finish(job, "").await;
        let stop = build(&server, &owner, &id, json!({ "transition": "stop" })).await.expect(201);
        assert_eq!((stop["build_number"].as_i64(), stop["status"].as_str()), (Some(2), Some("pending")));
        assert_eq!(stop["template_version_id"], json!(version));
        server.finish(job_of(&stop), "").await;
        let path = format!("/api/v2/workspaces/{id}");
        assert_eq!(server.get(&owner, &path).await.expect(200)["latest_build"]["status"], "stopped");
        let start = build(&server, &owner, &id, json!({ "transition": "start", "reason": "cli" })).await.expect(201);
        assert_eq!(start["reason"], "cli");
        server.finish(job_of(&start), "boom").await;
        assert_eq!(server.get(&owner, &path).await.expect(200)["latest_build"]["status"], "failed");
        let list = server.get(&owner, &format!("{path}/builds?limit=2")).await.expect(200);
        assert_eq!(list[0]["build_number"], 3);
        assert_eq!(list.as_array().unwrap().len(), 2);

        let delete = build(&server, &owner, &id, json!({ "transition": "delete", "orphan": true })).await.expect(201);
        assert_eq!(delete["status"], "deleted", "no daemon could take it, so the server ends it");
        server.get(&owner, &path).await.expect(410);
        server.get(&owner, &format!("{path}?include_deleted=true")).await.expect(200);
        build(&server, &owner, &id, json!({ "transition": "start" })).await.expect(409);
        server.workspace(&owner, template, "w").await;
    }

    async fn who_may_build(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let stranger = server.user(&owner, "eve", &[]).await;
        let author = server.user(&owner, "author", &["template-admin"]).await;
        let (template, _) = server.template(&owner, "hello").await;
        let (id, _, job) = server.workspace(&member, template, "w").await;
        server.finish(job, "").await;
        let stop = json!({ "transition": "stop" });
        build(&server, &stranger, &id, stop.clone()).await.expect(404);
        build(&server, &author, &id, stop.clone()).await.expect(403);
        let state = json!({ "transition": "stop", "state": "e30=" });
        build(&server, &member, &id, state).await.expect(403);
        build(&server, &member, &id, json!({ "transition": "delete", "orphan": true })).await.expect(403);
        build(&server, &owner, &id, json!({ "transition": "stop", "orphan": true })).await.expect(400);
        build(&server, &member, &id, json!({ "transition": "stop", "log_level": "debug" })).await.expect(400);
        build(&server, &owner, &id, json!({ "transition": "stop", "log_level": "debug" })).await.expect(400);
        build(&server, &member, &id, json!({ "transition": "stop", "log_level": "loud" })).await.expect(400);
        build(&server, &member, &id, json!({ "transition": "stop", "reason": "autostop" })).await.expect(400);
        build(&server, &member, &id, json!({ "transition": "explode" })).await.expect(400);
        build(&server, &member, &id, stop).await.expect(201);
    }

    async fn versions_of_a_build(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let (template, first) = server.template(&owner, "hello").await;
        let (_, foreign) = server.template(&owner, "other").await;
        let (id, _, job) = server.workspace(&member, template, "w").await;
        server.finish(job, "").await;
        let (second, import) = server.version(&owner, json!({ "template_id": template })).await;
        let with = |version: coder_domain::ids::TemplateVersionId| json!({ "transition": "start", "template_version_id": version });
        build(&server, &member, &id, with(foreign)).await.expect(400);
        build(&server, &member, &id, with(second)).await.expect(406);
        server.finish(import, "").await;
        server.patch(&owner, &format!("/api/v2/templates/{template}/versions"), json!({ "id": second })).await.expect(200);
        let path = format!("/api/v2/workspaces/{id}");
        assert_eq!(server.get(&member, &path).await.expect(200)["outdated"], true);
        let policy = json!({ "require_active_version": true });
        server.patch(&owner, &format!("/api/v2/templates/{template}"), policy).await.expect(200);
        build(&server, &member, &id, with(first)).await.expect(403);
        let started = build(&server, &member, &id, json!({ "transition": "start" })).await.expect(201);
        assert_eq!(started["template_version_id"], json!(second), "members get the active version");
    }

    async fn bld_2_state_is_carried_from_build_to_build(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let (template, _) = server.template(&owner, "hello").await;
        let (id, first, job) = server.workspace(&owner, template, "w").await;
        let state = |build: &str| format!("/api/v2/workspacebuilds/{build}/state");
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        server.put(&owner, &state(&first), json!({ "state": encode("one") })).await.expect(409);
        server.finish(job, "failed meanwhile").await;
        assert_eq!(server.get(&owner, &state(&first)).await.text(), "");
        server.put(&owner, &state(&first), json!({ "state": encode("one") })).await.expect(204);
        let next = build(&server, &owner, &id, json!({ "transition": "stop" })).await.expect(201);
        let next_state = server.get(&owner, &state(next["id"].as_str().unwrap())).await;
        assert_eq!(next_state.headers["content-type"], "application/json");
        assert_eq!(next_state.text(), "one");
        server.finish(job_of(&next), "").await;
        let own = json!({ "transition": "start", "state": encode("two") });
        let third = build(&server, &owner, &id, own).await.expect(201);
        assert_eq!(server.get(&owner, &state(third["id"].as_str().unwrap())).await.text(), "two");
        let (_, own, _) = server.workspace(&member, template, "mine").await;
        server.get(&member, &state(&own)).await.expect(404);
        server.put(&member, &state(&own), json!({ "state": "" })).await.expect(404);
    }

    async fn parameters_of_builds(server: TestServer) {
        let owner = server.owner().await;
        let (template, version) = server.template(&owner, "hello").await;
        let parameter = |name: &str, mutable: bool, default: &str| Parameter {
            name: name.to_owned(),
            kind: "string".to_owned(),
            mutable,
            default_value: default.to_owned(),
            required: default.is_empty(),
            ..Parameter::default()
        };
        let mut tx = server.app.store.begin().await.unwrap();
        let all = [parameter("size", true, "small"), parameter("zone", false, "")];
        version_details::insert_parameters(&mut tx, version, &all).await.unwrap();
        tx.commit().await.unwrap();

        let request = json!({ "template_id": template, "name": "w" });
        let path = "/api/v2/users/me/workspaces";
        let refusal = server.post(&owner, path, request).await.expect(400);
        assert_eq!(refusal["message"], "Unable to validate parameters");
        let missing = "Required parameter not provided; parameter value is null";
        assert_eq!(refusal["validations"], json!([{ "field": "zone", "detail": missing }]));
        let request = json!({ "template_id": template, "name": "w", "rich_parameter_values": [{ "name": "zone", "value": "eu" }] });
        let made = server.post(&owner, path, request).await.expect(201);
        let values = async |id: &Value| {
            let path = format!("/api/v2/workspacebuilds/{}/parameters", id.as_str().unwrap());
            server.get(&owner, &path).await.expect(200)
        };
        let pair = |name: &str, value: &str| json!({ "name": name, "value": value });
        assert_eq!(values(&made["latest_build"]["id"]).await, json!([pair("size", "small"), pair("zone", "eu")]));
        server.finish(job_of(&made["latest_build"]), "").await;
        let id = made["id"].as_str().unwrap();
        let moved = json!({ "transition": "start", "rich_parameter_values": [pair("zone", "us")] });
        assert_eq!(build(&server, &owner, id, moved).await.refused(400), "zone");
        let grown = json!({ "transition": "start", "rich_parameter_values": [pair("size", "big")] });
        let grown = build(&server, &owner, id, grown).await.expect(201);
        assert_eq!(values(&grown["id"]).await, json!([pair("size", "big"), pair("zone", "eu")]));
    }

    async fn a_parameter_with_a_null_default_stays_unset_until_somebody_chooses(server: TestServer) {
        let owner = server.owner().await;
        let (template, version) = server.template(&owner, "hello").await;
        let option = |value: &str| ParameterOption { value: value.to_owned(), ..Default::default() };
        let parameter = |name: &str, options: &[ParameterOption]| Parameter {
            name: name.to_owned(),
            kind: "string".to_owned(),
            mutable: true,
            options: options.to_vec(),
            ..Parameter::default()
        };
        let all = [parameter("note", &[]), parameter("region", &[option("eu"), option("us")])];
        let mut tx = server.app.store.begin().await.unwrap();
        version_details::insert_parameters(&mut tx, version, &all).await.unwrap();
        tx.commit().await.unwrap();
        let values = async |build: &Value| {
            let path = format!("/api/v2/workspacebuilds/{}/parameters", build["id"].as_str().unwrap());
            server.get(&owner, &path).await.expect(200)
        };
        let pair = |name: &str, value: &str| json!({ "name": name, "value": value });
        let make = async |name: &str, given: Value| {
            let request = json!({ "template_id": template, "name": name, "rich_parameter_values": given });
            server.post(&owner, "/api/v2/users/me/workspaces", request).await
        };
        assert_eq!(make("w", json!([pair("region", "")])).await.refused(400), "region");
        let made = make("w", json!([])).await.expect(201);
        assert_eq!(values(&made["latest_build"]).await, json!([pair("note", "")]));
        server.finish(job_of(&made["latest_build"]), "").await;
        let id = made["id"].as_str().unwrap();
        let chosen = json!({ "transition": "start", "rich_parameter_values": [pair("region", "us")] });
        let chosen = build(&server, &owner, id, chosen).await.expect(201);
        assert_eq!(values(&chosen).await, json!([pair("note", ""), pair("region", "us")]));
    }

    async fn a_build_without_a_chosen_preset_has_the_one_whose_values_fit(server: TestServer) {
        let owner = server.owner().await;
        let (template, version) = server.template(&owner, "hello").await;
        let parameter = |name: &str| Parameter {
            name: name.to_owned(),
            kind: "string".to_owned(),
            mutable: true,
            default_value: "s".to_owned(),
            ..Parameter::default()
        };
        let preset = |name: &str, values: &[(&str, &str)]| Preset {
            id: PresetId::random(),
            name: name.to_owned(),
            is_default: false,
            description: String::new(),
            icon: String::new(),
            desired_instances: None,
            parameters: values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            prebuild: Value::Null,
        };
        let presets = async |version| {
            let all = [
                preset("small", &[("size", "s")]),
                preset("large", &[("size", "l")]),
                preset("near", &[("size", "l"), ("zone", "eu")]),
            ];
            let mut tx = server.app.store.begin().await.unwrap();
            version_details::insert_parameters(&mut tx, version, &[parameter("size"), parameter("zone")]).await.unwrap();
            version_details::insert_presets(&mut tx, version, &all).await.unwrap();
            tx.commit().await.unwrap();
            all.map(|preset| preset.id.to_string())
        };
        let [small, large, near] = presets(version).await;
        let pair = |name: &str, value: &str| json!({ "name": name, "value": value });
        let request = json!({ "template_id": template, "name": "w", "template_version_preset_id": large });
        let made = server.post(&owner, "/api/v2/users/me/workspaces", request).await.expect(201);
        assert_eq!(made["latest_build"]["template_version_preset_id"], large);
        server.finish(job_of(&made["latest_build"]), "").await;
        let id = made["id"].as_str().unwrap();
        for (given, wanted) in [
            (json!([]), json!(large)),
            (json!([pair("zone", "eu")]), json!(near)),
            (json!([pair("size", "s")]), json!(small)),
            (json!([pair("size", "xl")]), Value::Null),
        ] {
            let request = json!({ "transition": "start", "rich_parameter_values": given });
            let built = build(&server, &owner, id, request).await.expect(201);
            assert_eq!(built["template_version_preset_id"], wanted, "{given}");
            server.finish(job_of(&built), "").await;
        }
        // An update of the workspace to another version, which has other presets.
        let (newer, job) = server.version(&owner, json!({ "template_id": template })).await;
        let [_, large, _] = presets(newer).await;
        server.finish(job, "").await;
        let request = json!({ "transition": "start", "template_version_id": newer,
            "rich_parameter_values": [pair("size", "l"), pair("zone", "us")] });
        let updated = build(&server, &owner, id, request).await.expect(201);
        assert_eq!(updated["template_version_preset_id"], json!(large));
    }

    async fn parameters_that_depend_on_others_follow_the_values_of_the_build(server: TestServer) {
        let owner = server.owner().await;
        let answer = server.upload(&owner, "application/x-tar", tar(&[("main.tf", DEPENDENT)])).await;
        let (version, job) = server.version(&owner, json!({ "file_id": answer.json()["hash"] })).await;
        // What an import finds with the defaults.
        let parameter = |name: &str, default: &str, options: &[&str]| Parameter {
            name: name.to_owned(),
            kind: "string".to_owned(),
            mutable: true,
            default_value: default.to_owned(),
            options: options.iter().map(|value| ParameterOption { value: (*value).to_owned(), ..Default::default() }).collect(),
            ..Parameter::default()
        };
        let all = [parameter("region", "eu", &[]), parameter("size", "l", &["l"]), parameter("only_eu", "x", &[])];
        let mut tx = server.app.store.begin().await.unwrap();
        version_details::insert_parameters(&mut tx, version, &all).await.unwrap();
        tx.commit().await.unwrap();
        server.finish(job, "").await;
        let request = json!({ "name": "t", "template_version_id": version });
        let template = server.post(&owner, "/api/v2/organizations/default/templates", request).await.expect(201);

        let pair = |name: &str, value: &str| json!({ "name": name, "value": value });
        let make = async |name: &str, given: &[Value]| {
            let request = json!({ "template_id": template["id"], "name": name, "rich_parameter_values": given });
            server.post(&owner, "/api/v2/users/me/workspaces", request).await
        };
        let values = async |build: &Value| {
            let path = format!("/api/v2/workspacebuilds/{}/parameters", build["id"].as_str().unwrap());
            server.get(&owner, &path).await.expect(200)
        };
        let made = make("eu", &[]).await.expect(201);
        assert_eq!(values(&made["latest_build"]).await, json!([pair("only_eu", "x"), pair("region", "eu"), pair("size", "l")]));
        assert_eq!(make("b", &[pair("region", "us"), pair("size", "l")]).await.refused(400), "size");
        assert_eq!(make("b", &[pair("region", "us"), pair("only_eu", "y")]).await.refused(400), "only_eu");
        assert_eq!(make("b", &[pair("region", "us"), pair("threads", "0")]).await.refused(400), "threads");
        let made = make("us", &[pair("region", "us"), pair("threads", "8")]).await.expect(201);
        let us = json!([pair("region", "us"), pair("size", "s"), pair("threads", "8")]);
        assert_eq!(values(&made["latest_build"]).await, us);
        server.finish(job_of(&made["latest_build"]), "").await;
        let id = made["id"].as_str().unwrap();
        let stopped = build(&server, &owner, id, json!({ "transition": "stop" })).await.expect(201);
        assert_eq!(values(&stopped).await, us, "values of dependent parameters are kept");
        server.finish(job_of(&stopped), "").await;
        let back = json!({ "transition": "start", "rich_parameter_values": [pair("region", "eu"), pair("size", "l")] });
        let back = build(&server, &owner, id, back).await.expect(201);
        assert_eq!(values(&back).await, json!([pair("only_eu", "x"), pair("region", "eu"), pair("size", "l")]));

        let tried = json!({ "workspace_name": "w", "rich_parameter_values": [pair("region", "us"), pair("threads", "8")] });
        let path = format!("/api/v2/templateversions/{version}/dry-run");
        server.post(&owner, &path, tried).await.expect(201);
    }

    async fn parameters_of_modules_that_come_with_values_are_left_to_terraform(server: TestServer) {
        let owner = server.owner().await;
        let main = r#"data "coder_parameter" "ide" {
  name    = "ide"
  default = "vim"
}
module "jetbrains" {
  count  = data.coder_parameter.ide.value == "jetbrains" ? 1 : 0
  source = "./jetbrains"
}
"#;
        let answer = server.upload(&owner, "application/x-tar", tar(&[("main.tf", main)])).await;
        let (version, job) = server.version(&owner, json!({ "file_id": answer.json()["hash"] })).await;
        let ide = Parameter { name: "ide".to_owned(), kind: "string".to_owned(), default_value: "vim".to_owned(), ..Parameter::default() };
        let mut tx = server.app.store.begin().await.unwrap();
        version_details::insert_parameters(&mut tx, version, &[ide]).await.unwrap();
        tx.commit().await.unwrap();
        server.finish(job, "").await;
        let request = json!({ "name": "t", "template_version_id": version });
        let template = server.post(&owner, "/api/v2/organizations/default/templates", request).await.expect(201);
        let pair = |name: &str, value: &str| json!({ "name": name, "value": value });
        let given = json!([pair("ide", "jetbrains"), pair("jetbrains_ide", "GO")]);
        let request = json!({ "template_id": template["id"], "name": "w", "rich_parameter_values": given });
        let made = server.post(&owner, "/api/v2/users/me/workspaces", request).await.expect(201);
        server.finish(job_of(&made["latest_build"]), "").await;
        let id = made["id"].as_str().unwrap();
        let stopped = build(&server, &owner, id, json!({ "transition": "stop" })).await.expect(201);
        let path = format!("/api/v2/workspacebuilds/{}/parameters", stopped["id"].as_str().unwrap());
        assert_eq!(server.get(&owner, &path).await.expect(200), given);
    }

    async fn cancel(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let stranger = server.user(&owner, "eve", &[]).await;
        let (template, _) = server.template(&owner, "hello").await;
        let (_, id, _) = server.workspace(&member, template, "w").await;
        let path = format!("/api/v2/workspacebuilds/{id}/cancel");
        let ask = async |token: &str, query: &str| server.patch(token, &format!("{path}{query}"), Value::Null).await.status.as_u16();
        assert_eq!(ask(&stranger, "").await, 404);
        assert_eq!(ask(&member, "?expect_status=done").await, 400);
        assert_eq!(ask(&member, "").await, 403, "the template does not let owners cancel");
        assert_eq!(ask(&owner, "?expect_status=running").await, 412);
        assert_eq!(ask(&member, "?expect_status=pending").await, 200);
        assert_eq!(ask(&owner, "").await, 400);
        let view = server.get(&member, &format!("/api/v2/workspacebuilds/{id}")).await.expect(200);
        assert_eq!(view["status"], "canceled");
        assert_eq!(view["matched_provisioners"], json!({ "count": 0, "available": 0, "most_recently_seen": null }));
    }

    async fn two_builds_at_once_make_one(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = server.template(&owner, "hello").await;
        let (id, _, job) = server.workspace(&owner, template, "w").await;
        server.finish(job, "").await;
        let stop = || build(&server, &owner, &id, json!({ "transition": "stop" }));
        let (one, two) = tokio::join!(stop(), stop());
        let mut statuses = [one.status.as_u16(), two.status.as_u16()];
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409]);
    }
}
