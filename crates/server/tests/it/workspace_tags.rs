//! Tags in a template's source, at import and at build (scheduling-and-auth TAG-11 to TAG-20).

use coder_domain::ids::{FileId, TemplateId, TemplateVersionId};
use coder_domain::secret::Secret;
use coder_store::templates::version_details::{self, Parameter, Variable};
use coder_store::{files, users};
use serde_json::{Value, json};

use crate::harness::{Answer, TestServer, on_both_engines, tar};

const PATH: &str = "/api/v2/organizations/default/templateversions";

/// A template whose tags are `lines`.
fn source(lines: &str) -> String {
    format!(
        "variable \"cluster\" {{\n  default = \"prod\"\n}}\nvariable \"required\" {{\n  type = string\n}}\n\
         data \"coder_parameter\" \"size\" {{\n  name = \"size\"\n  default = \"small\"\n}}\n\
         data \"coder_parameter\" \"zone\" {{\n  name = \"zone\"\n  default = var.cluster\n}}\n\
         resource \"null_resource\" \"r\" {{}}\n\
         data \"coder_workspace_tags\" \"tags\" {{\n  tags = {{\n{lines}\n  }}\n}}\n"
    )
}

async fn upload(server: &TestServer, token: &str, files: &[(&str, &str)]) -> FileId {
    let answer = server.upload(token, "application/x-tar", tar(files)).await;
    assert!(answer.status.is_success(), "{answer:?}");
    answer.json()["hash"].as_str().unwrap().parse().unwrap()
}

/// Pushes a source.
async fn push(server: &TestServer, token: &str, main: &str, more: Value) -> Answer {
    let file = upload(server, token, &[("main.tf", main)]).await;
    let mut request = json!({ "file_id": file, "storage_method": "file", "provisioner": "terraform" });
    request.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    server.post(token, PATH, request).await
}

/// The tags of the import, without `scope` and `owner` of an organization's job.
async fn imported(server: &TestServer, token: &str, main: &str, tags: Value) -> Value {
    let mut made = push(server, token, main, json!({ "tags": tags })).await.expect(201);
    let mut tags = made["job"]["tags"].take();
    let map = tags.as_object_mut().unwrap();
    assert_eq!((map.remove("scope"), map.remove("owner")), (Some(json!("organization")), Some(json!(""))));
    tags
}

/// A template of this source, with an ended import.
async fn template(
    server: &TestServer,
    token: &str,
    main: &str,
    more: Value,
) -> (TemplateId, TemplateVersionId) {
    let made = push(server, token, main, more).await.expect(201);
    server.finish(made["job"]["id"].as_str().unwrap().parse().unwrap(), "").await;
    let request = json!({ "name": "tagged", "template_version_id": made["id"] });
    let answer = server.post(token, "/api/v2/organizations/default/templates", request).await.expect(201);
    (answer["id"].as_str().unwrap().parse().unwrap(), made["id"].as_str().unwrap().parse().unwrap())
}

async fn create(
    server: &TestServer,
    token: &str,
    template: TemplateId,
    parameters: &[(&str, &str)],
) -> Answer {
    let parameters: Vec<_> =
        parameters.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    let request = json!({ "template_id": template, "name": "w", "rich_parameter_values": parameters });
    server.post(token, "/api/v2/users/me/workspaces", request).await
}

on_both_engines! {
    async fn tag_11_the_source_is_read_and_the_request_wins(server: TestServer) {
        let owner = server.owner().await;
        let empty = upload(&server, &owner, &[]).await;
        let (_, _) = server.version(&owner, json!({ "file_id": empty })).await;
        let main = source("a = \"static\"\nb = var.cluster\nc = data.coder_parameter.size.value\nd = data.coder_parameter.zone.value\nn = 5");
        let all = json!({ "a": "static", "b": "prod", "c": "small", "d": "prod", "n": "5" });
        for (main, request, want) in [
            ("resource \"null_resource\" \"x\" {}", json!({}), json!({})),
            ("resource \"null_resource\" \"x\" {}", json!({ "a": "request" }), json!({ "a": "request" })),
            (&source(""), json!({}), json!({})),
            (&main, json!({}), all),
            (&source("a = \"source\""), json!({ "b": "request" }), json!({ "a": "source", "b": "request" })),
            (&source("a = \"source\"\nb = 1"), json!({ "a": "request" }), json!({ "a": "request", "b": "1" })),
            // An empty value in a request is ignored.
            (&source("a = \"source\""), json!({ "a": "" }), json!({ "a": "source" })),
        ] {
            assert_eq!(imported(&server, &owner, main, request).await, want);
        }
    }

    async fn tags_and_parameters_may_be_about_the_owner(server: TestServer) {
        let owner = server.owner().await;
        server.user(&owner, "ann", &[]).await;
        let ann = server.login("ann@example.com").await;
        let main = r#"data "coder_workspace_owner" "me" {}
locals { is_admin = contains(data.coder_workspace_owner.me.rbac_roles[*].name, "owner") }
data "coder_parameter" "root" {
  count   = local.is_admin ? 1 : 0
  name    = "root"
  default = data.coder_workspace_owner.me.name
}
data "coder_workspace_tags" "tags" {
  tags = {
    who  = data.coder_workspace_owner.me.name
    kind = local.is_admin ? "admin" : join("+", data.coder_workspace_owner.me.groups)
  }
}
"#;
        let want = json!({ "who": "admin", "kind": "admin" });
        assert_eq!(imported(&server, &owner, main, json!({})).await, want, "the user who pushes counts as the owner");
        let (template, _) = template(&server, &owner, main, json!({})).await;
        for (token, who, kind, parameters) in [
            (&owner, "admin", "admin", json!([{ "name": "root", "value": "admin" }])),
            (&ann, "ann", "Everyone", json!([])),
        ] {
            let request = json!({ "template_id": template, "name": "w" });
            let made = server.post(token, "/api/v2/users/me/workspaces", request).await.expect(201);
            let build = &made["latest_build"];
            let tags = &build["job"]["tags"];
            assert_eq!((&tags["who"], &tags["kind"]), (&json!(who), &json!(kind)));
            let path = format!("/api/v2/workspacebuilds/{}/parameters", build["id"].as_str().unwrap());
            assert_eq!(server.get(token, &path).await.expect(200), parameters);
        }
    }

    async fn variables_of_the_request_count(server: TestServer) {
        let owner = server.owner().await;
        let main = source("a = var.required\nb = data.coder_parameter.zone.value");
        let values = json!([{ "name": "required", "value": "given" }, { "name": "cluster", "value": "dev" }]);
        let made = push(&server, &owner, &main, json!({ "user_variable_values": values })).await.expect(201);
        assert_eq!((&made["job"]["tags"]["a"], &made["job"]["tags"]["b"]), (&json!("given"), &json!("dev")));
        // A new version gets the values of the active one.
        let (template, version) = template(&server, &owner, &main, json!({ "user_variable_values": values })).await;
        let variable = Variable {
            name: "required".to_owned(),
            description: String::new(),
            kind: "string".to_owned(),
            value: Secret::new("stored"),
            default_value: Secret::new(""),
            required: true,
            sensitive: true,
        };
        let mut tx = server.app.store.begin().await.unwrap();
        version_details::update_variables(&mut tx, version, &[variable]).await.unwrap();
        tx.commit().await.unwrap();
        let next = push(&server, &owner, &main, json!({ "template_id": template })).await.expect(201);
        assert_eq!(next["job"]["tags"]["a"], "stored");
    }

    async fn tag_12_user_scope_is_the_importers(server: TestServer) {
        let owner = server.owner().await;
        let me = server.user_id(&owner).await;
        let main = source("scope = \"user\"\nowner = \"somebody\"\norganization = \"x\"");
        let made = push(&server, &owner, &main, json!({})).await.expect(201);
        assert_eq!(made["job"]["tags"], json!({ "scope": "user", "owner": me, "organization": "x" }));
        assert_eq!(made["organization_id"], made["job"]["organization_id"]);
        let other = imported(&server, &owner, &source("scope = \"elsewhere\"\nowner = \"somebody\""), json!({})).await;
        assert_eq!(other, json!({}));
    }

    async fn tag_13_what_has_no_value_is_named(server: TestServer) {
        let owner = server.owner().await;
        let main = source("a = var.required\nb = null_resource.r.id\nc = null\nd = [1]\ne = \"fine\"\nf = nosuch(1)\ng = 1\ng = 2");
        let refused = push(&server, &owner, &main, json!({})).await.expect(400);
        assert_eq!(refused["message"], "Unable to parse workspace tags.");
        let named: Vec<_> = refused["validations"].as_array().unwrap().iter()
            .map(|one| (one["field"].as_str().unwrap(), one["detail"].as_str().unwrap())).collect();
        let wanted = [("a", "var.required"), ("b", "null_resource.r.id"), ("c", "non-null string"), ("d", "a list"),
            ("f", "not available here"), ("g", "more than once")];
        assert_eq!(named.len(), wanted.len(), "{named:?}");
        for ((field, detail), (wanted, part)) in named.iter().zip(wanted) {
            assert!(*field == wanted && detail.contains(part), "{field}: {detail}");
        }
        let nul = push(&server, &owner, &source("a = \"x\\u0000\""), json!({})).await;
        assert_eq!(nul.refused(400), "a");
        let many: String = (0..1001).map(|n| format!("t{n} = 1\n")).collect();
        assert_eq!(push(&server, &owner, &source(&many), json!({})).await.refused(400), "tags");
    }

    async fn tag_14_the_request_makes_a_value_needless(server: TestServer) {
        let owner = server.owner().await;
        let main = source("a = var.required\nb = null_resource.r.id\nc = \"c\"");
        let only_one = push(&server, &owner, &main, json!({ "tags": { "a": "x" } })).await;
        assert_eq!(only_one.refused(400), "b");
        let tags = imported(&server, &owner, &main, json!({ "a": "x", "b": "y" })).await;
        assert_eq!(tags, json!({ "a": "x", "b": "y", "c": "c" }));
    }

    async fn tag_15_the_classic_flow_knows_less(server: TestServer) {
        let owner = server.owner().await;
        let main = format!("locals {{\n  l = \"x\"\n}}\n{}", source("a = local.l"));
        let (template, _) = template(&server, &owner, &main, json!({})).await;
        let path = format!("/api/v2/templates/{template}");
        push(&server, &owner, &main, json!({ "template_id": template })).await.expect(201);
        server.patch(&owner, &path, json!({ "use_classic_parameter_flow": true })).await.expect(200);
        let refused = push(&server, &owner, &main, json!({ "template_id": template })).await;
        assert_eq!(refused.refused(400), "a");
        let main = source("a = var.required\nb = \"x-${data.coder_parameter.size.value}\"");
        let made = push(&server, &owner, &main, json!({ "template_id": template })).await.expect(201);
        assert_eq!(made["job"]["tags"], json!({ "b": "x-small", "owner": "", "scope": "organization" }));
    }

    async fn tag_16_other_archives_are_refused(server: TestServer) {
        let owner = server.owner().await;
        let mut tx = server.app.store.begin().await.unwrap();
        let user = users::find_by_username(&mut tx, "admin").await.unwrap().unwrap();
        let insert = async |tx: &mut coder_store::Tx, mimetype: &'static str, data: Vec<u8>| {
            let (hash, size) = (files::hash(&data), data.len() as u64);
            let new = files::NewFile { hash, size, created_by: user.id, mimetype };
            files::insert(tx, &new, &mut &data[..], server.app.now()).await.unwrap().0.id
        };
        let text = insert(&mut tx, "text/plain", b"hello".to_vec()).await;
        let broken = insert(&mut tx, "application/x-tar", vec![7; 700]).await;
        tx.commit().await.unwrap();
        for file in [text, broken] {
            let answer = server.post(&owner, PATH, json!({ "file_id": file })).await;
            assert_eq!(answer.refused(400), "file_id");
        }
    }

    async fn a_source_that_is_no_configuration_fails_in_its_job(server: TestServer) {
        let owner = server.owner().await;
        push(&server, &owner, "resource {{{", json!({})).await.expect(201);
        let main = format!("{}\nresource {{{{{{", source("a = 1"));
        assert_eq!(imported(&server, &owner, &main, json!({ "b": "2" })).await, json!({ "b": "2" }));
    }

    async fn tag_17_builds_evaluate_with_their_values(server: TestServer) {
        let owner = server.owner().await;
        let main = source("a = data.coder_parameter.size.value\nb = upper(var.cluster)");
        let (template, version) = template(&server, &owner, &main, json!({ "tags": { "c": "import" } })).await;
        let size = Parameter {
            name: "size".to_owned(),
            kind: "string".to_owned(),
            default_value: "small".to_owned(),
            mutable: true,
            ..Parameter::default()
        };
        let mut tx = server.app.store.begin().await.unwrap();
        version_details::insert_parameters(&mut tx, version, &[size]).await.unwrap();
        tx.commit().await.unwrap();
        let made = create(&server, &owner, template, &[("size", "large")]).await.expect(201);
        let tags = &made["latest_build"]["job"]["tags"];
        assert_eq!(*tags, json!({ "a": "large", "b": "PROD", "c": "import", "owner": "", "scope": "organization" }));
    }

    async fn tag_18_at_build_the_source_wins(server: TestServer) {
        let owner = server.owner().await;
        let main = source("a = \"source\"\nb = \"\"\nc = data.coder_parameter.size.value");
        let request = json!({ "tags": { "a": "request", "b": "request", "d": "request" } });
        let (template, version) = template(&server, &owner, &main, request).await;
        let import = server.get(&owner, &format!("/api/v2/templateversions/{version}")).await.expect(200);
        assert_eq!(import["job"]["tags"]["a"], "request");
        let made = create(&server, &owner, template, &[]).await.expect(201);
        let want = json!({ "a": "source", "b": "", "c": "small", "d": "request", "owner": "", "scope": "organization" });
        assert_eq!(made["latest_build"]["job"]["tags"], want);
    }

    async fn tag_19_a_build_without_a_value_is_refused(server: TestServer) {
        let owner = server.owner().await;
        let main = source("a = var.required");
        let (template, _) = template(&server, &owner, &main, json!({ "tags": { "a": "import" } })).await;
        let refused = create(&server, &owner, template, &[]).await.expect(400);
        assert_eq!(refused["message"], "Unable to parse workspace tags.");
        assert_eq!(refused["validations"][0]["field"], "a");
    }

    async fn tag_20_user_scope_is_the_workspace_owners(server: TestServer) {
        let owner = server.owner().await;
        let member = server.user(&owner, "dev", &[]).await;
        let (template, _) = template(&server, &owner, &source("scope = \"user\""), json!({})).await;
        for token in [&owner, &member] {
            let me = server.user_id(token).await;
            let made = create(&server, token, template, &[]).await.expect(201);
            assert_eq!(made["latest_build"]["job"]["tags"], json!({ "scope": "user", "owner": me }));
        }
    }

    async fn a_source_without_tags_adds_nothing_to_any_build(server: TestServer) {
        let owner = server.owner().await;
        let (template, _) = template(&server, &owner, "resource \"null_resource\" \"x\" {}", json!({})).await;
        let want = json!({ "owner": "", "scope": "organization" });
        let member = server.user(&owner, "dev", &[]).await;
        for token in [&owner, &member] {
            let made = create(&server, token, template, &[]).await.expect(201);
            assert_eq!(made["latest_build"]["job"]["tags"], want);
        }
    }
}
