//! `coder_local_agent`: started at creation, again when it no longer runs, and stopped with its resource.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use coder_tfprovider::{BoxedFuture, LocalAgent, LocalAgents, ProviderServer};
use uuid::Uuid;

use crate::terraform::{Job, template, values};

const TEMPLATE: &str = r#"
variable "agents" {
  type    = number
  default = 1
}

resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
}

resource "coder_local_agent" "main" {
  count = var.agents
  token = coder_agent.main.token
}
"#;

const WORKSPACE: &str = "5d0a3a52-7a1c-4c0f-9a83-2f9d8d1e6b10";
const OTHER_WORKSPACE: &str = "6d0a3a52-7a1c-4c0f-9a83-2f9d8d1e6b10";

/// Notes what it is asked for.
#[derive(Default)]
struct Runner {
    running: Mutex<BTreeSet<(Uuid, Uuid)>>,
    log: Mutex<Vec<String>>,
    refuses: bool,
}

impl LocalAgents for Runner {
    fn start(&self, agent: LocalAgent) -> BoxedFuture<'_, Result<(), String>> {
        Box::pin(async move {
            if self.refuses {
                return Err("there is no memory".to_owned());
            }
            self.running.lock().unwrap().insert((agent.workspace, agent.id));
            self.log.lock().unwrap().push(format!("start {} {}", agent.url, agent.token.expose()));
            Ok(())
        })
    }

    fn is_running(&self, workspace: Uuid, agent: Uuid) -> bool {
        self.running.lock().unwrap().contains(&(workspace, agent))
    }

    fn stop(&self, workspace: Uuid, agent: Uuid) -> BoxedFuture<'_, ()> {
        Box::pin(async move {
            let ran = self.running.lock().unwrap().remove(&(workspace, agent));
            self.log.lock().unwrap().push(format!("stop ran={ran}"));
        })
    }
}

fn variables(workspace: &str) -> [(&str, &str); 2] {
    [("CODER_AGENT_URL", "http://127.0.0.1:3000"), ("CODER_WORKSPACE_ID", workspace)]
}

fn actions(plan: &serde_json::Value) -> Vec<String> {
    let changes = plan["resource_changes"].as_array().unwrap();
    let change = changes.iter().find(|change| change["type"] == "coder_local_agent").unwrap();
    let actions = change["change"]["actions"].as_array().unwrap();
    actions.iter().map(|action| action.as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn agent_follows_its_resource() {
    coder_requirements::require!(Terraform);
    let runner = Arc::new(Runner::default());
    let provider = ProviderServer::with_local_agents(runner.clone());
    let job = Job::on(&provider, &template(TEMPLATE), &variables(WORKSPACE));
    assert_eq!(actions(&job.plan(&[]).await), ["create"]);
    assert!(runner.log.lock().unwrap().is_empty(), "a plan starts nothing");
    let state = job.apply().await;
    let token = values(&state, "coder_agent.main")["token"].as_str().unwrap().to_owned();
    assert_eq!(*runner.log.lock().unwrap(), [format!("start http://127.0.0.1:3000 {token}")]);

    // The agent's new token needs a new process.
    assert_eq!(actions(&job.plan(&[]).await), ["delete", "create"]);
    job.apply().await;
    assert_eq!(runner.log.lock().unwrap()[1], "stop ran=true");
    assert!(runner.log.lock().unwrap()[2].starts_with("start "));

    // One that has ended, with its daemon for instance, is started and not stopped.
    runner.running.lock().unwrap().clear();
    assert_eq!(actions(&job.plan(&[]).await), ["create"]);
    job.apply().await;
    assert_eq!(runner.log.lock().unwrap().len(), 4);

    // The same id in the state of another workspace is not an agent of this one.
    job.listening().set_environment(variables(OTHER_WORKSPACE).into_iter().collect());
    assert_eq!(actions(&job.plan(&[]).await), ["create"]);
    job.listening().set_environment(variables(WORKSPACE).into_iter().collect());
    assert_eq!(actions(&job.plan(&["agents=0"]).await), ["delete"]);
    job.apply().await;
    assert_eq!(runner.log.lock().unwrap()[4], "stop ran=true");
    assert!(runner.running.lock().unwrap().is_empty());
}

#[tokio::test]
async fn failed_start_leaves_no_resource() {
    coder_requirements::require!(Terraform);
    let provider = ProviderServer::with_local_agents(Arc::new(Runner { refuses: true, ..Runner::default() }));
    let job = Job::on(&provider, &template(TEMPLATE), &variables(WORKSPACE));
    job.plan(&[]).await;
    let output = job.run(&["apply", "-input=false", "-no-color", "plan"]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("there is no memory"), "{said}");
    let state = std::fs::read_to_string(job.folder().join("terraform.tfstate")).unwrap();
    assert!(!state.contains("coder_local_agent"), "{state}");
}

#[tokio::test]
async fn ordinary_provider_does_not_have_the_type() {
    coder_requirements::require!(Terraform);
    let job = Job::new(&template(TEMPLATE), &variables(WORKSPACE));
    let output = job.run(&["plan", "-no-color", "-input=false"]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("coder_local_agent"), "{said}");
}
