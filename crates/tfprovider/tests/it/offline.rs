//! With the provider reattached, nothing is downloaded for any template.

use crate::terraform::{Job, values};

#[tokio::test]
async fn init_looks_at_no_version_and_no_lock_file() {
    let template = r#"
terraform {
  required_providers {
    coder = {
      source  = "coder/coder"
      version = "~> 99.0"
    }
  }
}

module "inner" {
  source = "./inner"
}

resource "coder_env" "e" {
  agent_id = module.inner.agent
  name     = "A"
  value    = "b"
}
"#;
    let inner = r#"
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}

resource "coder_agent" "main" {
  os   = "darwin"
  arch = "arm64"
}

output "agent" {
  value = coder_agent.main.id
}
"#;
    let lock = "provider \"registry.terraform.io/coder/coder\" {\n  version = \"2.12.0\"\n  hashes = [\"h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"]\n}\n";
    coder_requirements::require!(Terraform);
    let job = Job::new(template, &[]);
    std::fs::create_dir(job.folder().join("inner")).unwrap();
    std::fs::write(job.folder().join("inner/main.tf"), inner).unwrap();
    std::fs::write(job.folder().join(".terraform.lock.hcl"), lock).unwrap();
    let output = job.run(&["init", "-no-color", "-input=false"]).await;
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    job.plan(&[]).await;
    let state = job.apply().await;
    assert_eq!(values(&state, "coder_env.e")["agent_id"].as_str().map(str::len), Some(36));
    let graph = job.run(&["graph"]).await;
    assert!(graph.status.success() && String::from_utf8_lossy(&graph.stdout).contains("coder_env.e"));
    let destroyed = job.run(&["apply", "-destroy", "-auto-approve", "-no-color", "-input=false"]).await;
    assert!(destroyed.status.success(), "{}", String::from_utf8_lossy(&destroyed.stderr));
}
