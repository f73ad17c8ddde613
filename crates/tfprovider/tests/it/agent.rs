//! An agent's token and script, from plan to state and through refreshes.

use crate::parameter::hashed;
use crate::terraform::{Job, template, values};

const TEMPLATE: &str = r#"
data "coder_workspace" "me" {}

resource "coder_agent" "main" {
  os   = "linux"
  arch = "arm64"
  auth = "token"
}

resource "coder_agent" "other" {
  os   = "windows"
  arch = "amd64"
  auth = "azure-instance-identity"
}

resource "coder_devcontainer" "box" {
  agent_id         = coder_agent.main.id
  workspace_folder = "/workspace"
}

resource "coder_env" "path" {
  agent_id       = coder_agent.main.id
  name           = "PATH"
  value          = "/opt/bin"
  merge_strategy = "append"
}
"#;

const SCRIPTS: [(&str, &str); 3] = [
    ("CODER_AGENT_URL", "https://coder.example:3000/prefix"),
    ("CODER_AGENT_SCRIPT_linux_arm64", "curl ${ACCESS_URL}bin/coder-linux-arm64 # ${AUTH_TYPE}"),
    ("CODER_AGENT_SCRIPT_windows_amd64", "iwr ${ACCESS_URL} ${AUTH_TYPE}"),
];

#[tokio::test]
async fn a_new_agent_gets_id_token_and_script_at_apply() {
    coder_requirements::require!(Terraform);
    let job = Job::new(&template(TEMPLATE), &SCRIPTS);
    let plan = job.plan(&[]).await;
    let main = plan["resource_changes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|each| each["address"] == "coder_agent.main");
    let unknown = &main.unwrap()["change"]["after_unknown"];
    for name in ["id", "token", "init_script", "display_apps"] {
        assert_eq!(unknown[name], true, "{name}");
    }
    let state = job.apply().await;
    let main = values(&state, "coder_agent.main");
    assert_eq!(main["init_script"], "curl https://coder.example:3000/bin/coder-linux-arm64 # token");
    assert_eq!(main["token"].as_str().map(str::len), Some(36));
    assert_ne!(main["token"], main["id"]);
    let other = values(&state, "coder_agent.other");
    assert_eq!(other["init_script"], "iwr https://coder.example:3000/ azure-instance-identity");
    assert_ne!(main["token"], other["token"]);
    assert_eq!(values(&state, "coder_devcontainer.box")["subagent_id"].as_str().map(str::len), Some(36));
    assert_eq!(values(&state, "coder_env.path")["merge_strategy"], "append");
    let on_disk = std::fs::read_to_string(job.folder().join("terraform.tfstate")).unwrap();
    assert!(on_disk.contains(main["token"].as_str().unwrap()), "the token is kept in the state");
}

#[tokio::test]
async fn a_refresh_takes_the_token_of_the_running_agent_or_a_new_one() {
    coder_requirements::require!(Terraform);
    let job = Job::new(&template(TEMPLATE), &SCRIPTS);
    job.plan(&[]).await;
    let first = job.apply().await;
    let token = |state: &serde_json::Value| values(state, "coder_agent.main")["token"].clone();
    let plan = job.plan(&[]).await;
    let actions: Vec<_> = plan["resource_changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|each| each["change"]["actions"][0].clone())
        .collect();
    assert!(actions.iter().all(|action| action == "no-op"), "{actions:?}");
    let second = job.apply().await;
    assert_ne!(token(&first), token(&second));
    let kept = hashed("CODER_RUNNING_WORKSPACE_AGENT_TOKEN_", "");
    job.listening().set_environment([(kept.as_str(), "kept-token")].into_iter().collect());
    job.plan(&[]).await;
    let third = job.apply().await;
    assert_eq!(token(&third), "kept-token");
    assert_eq!(values(&third, "coder_agent.main")["init_script"], "", "scripts also follow the job");
}

#[tokio::test]
async fn a_state_of_another_version_is_read() {
    coder_requirements::require!(Terraform);
    let job = Job::new(&template(TEMPLATE), &SCRIPTS);
    job.plan(&[]).await;
    let before = job.apply().await;
    let file = job.folder().join("terraform.tfstate");
    let mut state: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for resource in state["resources"].as_array_mut().unwrap() {
        if resource["mode"] == "managed" {
            let instance = &mut resource["instances"][0];
            instance["schema_version"] = 0.into();
            let attributes = instance["attributes"].as_object_mut().unwrap();
            attributes.insert("login_before_ready".to_owned(), true.into());
            attributes.remove("motd_file");
        }
    }
    std::fs::write(&file, state.to_string()).unwrap();
    let plan = job.plan(&[]).await;
    let changes = plan["resource_changes"].as_array().unwrap();
    assert!(changes.iter().all(|each| each["change"]["actions"][0] == "no-op"), "{changes:?}");
    let after = job.apply().await;
    assert_eq!(values(&before, "coder_agent.main")["id"], values(&after, "coder_agent.main")["id"]);

    state["resources"].as_array_mut().unwrap().retain(|resource| resource["type"] == "coder_agent");
    state["resources"][0]["instances"][0]["schema_version"] = 7.into();
    std::fs::write(&file, state.to_string()).unwrap();
    let output = job.run(&["plan", "-no-color", "-input=false"]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("newer provider version"), "{said}");
}
