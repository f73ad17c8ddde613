//! Jobs that run at the same time on one provider do not see each other.

use coder_tfprovider::ProviderServer;

use crate::terraform::{Job, template, values};

const TEMPLATE: &str = r#"
data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}
data "coder_provisioner" "here" {}

resource "coder_agent" "main" {
  os   = data.coder_provisioner.here.os == "linux" ? "linux" : "darwin"
  arch = "amd64"
  env  = { OWNER = data.coder_workspace_owner.me.name }
}

resource "terraform_data" "name" {
  count = data.coder_workspace.me.start_count
  input = data.coder_workspace.me.name
}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_job_has_its_own_environment() {
    coder_requirements::require!(Terraform);
    let provider = ProviderServer::new();
    let mut jobs = tokio::task::JoinSet::new();
    for index in 0..4 {
        let provider = provider.clone();
        jobs.spawn(async move {
            let (name, owner) = (format!("workspace-{index}"), format!("owner-{index}"));
            let variables = [
                ("CODER_WORKSPACE_NAME", name.as_str()),
                ("CODER_WORKSPACE_OWNER", owner.as_str()),
                ("CODER_WORKSPACE_TRANSITION", "start"),
            ];
            let job = Job::on(&provider, &template(TEMPLATE), &variables);
            job.plan(&[]).await;
            let state = job.apply().await;
            assert_eq!(values(&state, "terraform_data.name[0]")["input"], name);
            assert_eq!(values(&state, "coder_agent.main")["env"]["OWNER"], owner);
        });
    }
    jobs.join_all().await;
}

#[tokio::test]
async fn steps_may_differ_in_their_environment() {
    coder_requirements::require!(Terraform);
    let job = Job::new(&template(TEMPLATE), &[("CODER_WORKSPACE_TRANSITION", "start")]);
    job.plan(&[]).await;
    job.listening().set_environment([("CODER_AGENT_SCRIPT_linux_amd64", "at apply")].into_iter().collect());
    let state = job.apply().await;
    assert_eq!(values(&state, "coder_agent.main")["init_script"], "at apply");
    job.listening().set_environment([("CODER_WORKSPACE_TRANSITION", "stop")].into_iter().collect());
    let plan = job.plan(&[]).await;
    let changes = plan["resource_changes"].as_array().unwrap();
    let name = changes.iter().find(|each| each["address"] == "terraform_data.name[0]").unwrap();
    assert_eq!(name["change"]["actions"][0], "delete");
}
