//! How data sources use the variables of a job that the recordings do not cover, and which variables they refuse.

use serde_json::{Value, json};

use crate::terraform::{Job, template, values};

const TEMPLATE: &str = r#"
data "coder_workspace" "w" {}
data "coder_workspace_owner" "o" {}
data "coder_task" "t" {}
"#;

/// The state of every data source after a plan with these variables.
async fn read(variables: &[(&str, &str)]) -> Value {
    let job = Job::new(&template(TEMPLATE), variables);
    job.plan(&[]).await;
    job.apply().await
}

/// The errors about the variables.
async fn refused(variables: &[(&str, &str)]) -> Vec<String> {
    let job = Job::new(&template(TEMPLATE), variables);
    let found = job.diagnostics(&["plan", "-json", "-input=false"]).await;
    assert!(found.iter().all(|each| each.severity == "error"), "{found:?}");
    found.into_iter().map(|each| each.text).collect()
}

#[tokio::test]
async fn a_claim_is_no_prebuild() {
    coder_requirements::require!(Terraform);
    let variables = [
        ("CODER_WORKSPACE_IS_PREBUILD", "true"),
        ("CODER_WORKSPACE_IS_PREBUILD_CLAIM", "True"),
        ("CODER_WORKSPACE_TRANSITION", "destroy"),
        ("CODER_AGENT_URL", "http://plain.example"),
        ("CODER_WORKSPACE_OWNER_GROUPS", "null"),
        ("CODER_WORKSPACE_OWNER_RBAC_ROLES", "null"),
        ("CODER_TASK_ID", "00000000-0000-0000-0000-000000000000"),
        ("CODER_TASK_PROMPT", "p"),
    ];
    let state = read(&variables).await;
    let workspace = values(&state, "data.coder_workspace.w");
    for (name, value) in [
        ("is_prebuild", json!(false)),
        ("prebuild_count", json!(0)),
        ("is_prebuild_claim", json!(true)),
        ("start_count", json!(0)),
        ("transition", json!("destroy")),
        ("access_port", json!(80)),
        ("access_url", json!("http://plain.example")),
    ] {
        assert_eq!(workspace[name], value, "{name}");
    }
    let owner = values(&state, "data.coder_workspace_owner.o");
    assert_eq!((&owner["groups"], &owner["rbac_roles"]), (&json!([]), &json!([])));
    let task = values(&state, "data.coder_task.t");
    assert_eq!((&task["enabled"], &task["prompt"]), (&json!(false), &json!("p")));
    assert_ne!(task["id"], "00000000-0000-0000-0000-000000000000");
}

#[tokio::test]
async fn flags_are_true_in_any_case_and_nothing_else() {
    coder_requirements::require!(Terraform);
    for (flag, claim, expected) in [("TRUE", "no", (true, 1, false)), ("1", "false", (false, 0, false))] {
        let variables = [("CODER_WORKSPACE_IS_PREBUILD", flag), ("CODER_WORKSPACE_IS_PREBUILD_CLAIM", claim)];
        let state = read(&variables).await;
        let workspace = values(&state, "data.coder_workspace.w");
        let (prebuild, count, is_claim) = expected;
        assert_eq!(workspace["is_prebuild"], prebuild, "{flag} {claim}");
        assert_eq!(workspace["prebuild_count"], count);
        assert_eq!(workspace["is_prebuild_claim"], is_claim);
    }
}

#[tokio::test]
async fn invalid_json_and_invalid_ids_are_refused() {
    coder_requirements::require!(Terraform);
    let variables = [
        ("CODER_WORKSPACE_OWNER_GROUPS", "{"),
        ("CODER_WORKSPACE_OWNER_RBAC_ROLES", "[1]"),
        ("CODER_TASK_ID", "seven"),
    ];
    let found = refused(&variables).await;
    let all = found.join("\n");
    for part in ["invalid user groups", "invalid user roles", "invalid task id"] {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert_eq!(found.len(), 3, "{all}");
}

#[tokio::test]
async fn a_build_names_its_template() {
    coder_requirements::require!(Terraform);
    let given = [
        ("CODER_WORKSPACE_BUILD_ID", "b"),
        ("CODER_WORKSPACE_TEMPLATE_ID", "i"),
        ("CODER_WORKSPACE_TEMPLATE_NAME", "n"),
        ("CODER_WORKSPACE_TEMPLATE_VERSION", "v"),
    ];
    for (left_out, text) in [
        (1, "template ID is missing: CODER_WORKSPACE_TEMPLATE_ID is required"),
        (2, "template name is missing: CODER_WORKSPACE_TEMPLATE_NAME is required"),
        (3, "template version is missing: CODER_WORKSPACE_TEMPLATE_VERSION is required"),
    ] {
        let mut variables = given.to_vec();
        variables.remove(left_out);
        let found = refused(&variables).await;
        assert!(found.len() == 1 && found[0].contains(text), "{found:?}");
    }
    let found = refused(&given).await;
    assert_eq!(found, Vec::<String>::new());
}

#[tokio::test]
async fn a_task_that_is_no_id_leaves_the_resource_a_workspace() {
    coder_requirements::require!(Terraform);
    let text = template(
        "resource \"coder_ai_task\" \"t\" {\n  app_id = \"5ece4674-dd35-4f16-88c8-82e40e72e2fd\"\n}\n",
    );
    let job = Job::new(&text, &[("CODER_TASK_ID", "seven")]);
    let plan = job.plan(&[]).await;
    let planned = &plan["planned_values"]["root_module"]["resources"][0]["values"];
    assert_eq!(planned["app_id"], "5ece4674-dd35-4f16-88c8-82e40e72e2fd");
    let state = job.apply().await;
    let task = values(&state, "coder_ai_task.t");
    assert_eq!((&task["enabled"], &task["prompt"]), (&json!(false), &Value::Null));
    let id = task["id"].as_str().unwrap();
    assert!(id.len() == 36 && &id[14..15] == "4", "a random identifier: {id}");
}

/// Nothing of it is known before apply, so the plan shows no values at all.
#[tokio::test]
async fn a_resource_without_known_values_has_none_in_the_plan() {
    coder_requirements::require!(Terraform);
    let body = "resource \"coder_agent\" \"a\" {\n  os = \"linux\"\n  arch = \"amd64\"\n}\n\
                resource \"coder_external_agent\" \"e\" {\n  agent_id = coder_agent.a.id\n}\n";
    let job = Job::new(&template(body), &[]);
    let plan = job.plan(&[]).await;
    let planned = plan["planned_values"]["root_module"]["resources"].as_array().unwrap();
    let external = planned.iter().find(|each| each["address"] == "coder_external_agent.e").unwrap();
    assert_eq!(external.get("values"), None);
    job.apply().await;
    let body = body.replace("amd64", "arm64");
    std::fs::write(job.folder().join("main.tf"), template(&body)).unwrap();
    let plan = job.plan(&[]).await;
    let changes = plan["resource_changes"].as_array().unwrap();
    for change in changes {
        assert_eq!(change["action_reason"], "replace_because_cannot_update", "{change}");
    }
    assert_eq!(changes.len(), 2);
}
