//! Runs the real Terraform in a separate directory, with a provider in this process.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Output, Stdio};

use coder_tfprovider::{ProviderListener, ProviderServer};
use serde_json::Value;
use tempfile::TempDir;

/// One job: a template, its state, its variables and the provider that answers for it.
pub(crate) struct Job {
    folder: TempDir,
    listening: ProviderListener,
    environment: BTreeMap<String, String>,
}

/// A diagnostic of Terraform about one place of a template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Diagnostic {
    pub(crate) line: u64,
    pub(crate) address: String,
    pub(crate) severity: String,
    pub(crate) text: String,
}

impl Job {
    /// A job with the given template. The test begins with `require!(Terraform)`.
    pub(crate) fn new(template: &str, environment: &[(&str, &str)]) -> Self {
        Self::on(&ProviderServer::new(), template, environment)
    }

    /// A job of a daemon that has others too.
    pub(crate) fn on(provider: &ProviderServer, template: &str, environment: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("main.tf"), template).unwrap();
        std::fs::write(folder.path().join("terraform.rc"), "").unwrap();
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let environment: BTreeMap<_, _> = environment.iter().map(owned).collect();
        let listening = provider.listen(folder.path(), folder.path(), environment.clone().into()).unwrap();
        Self { folder, listening, environment }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn listening(&self) -> &ProviderListener {
        &self.listening
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Output {
        let path = std::env::var_os("PATH").unwrap();
        tokio::process::Command::new("terraform")
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .envs(&self.environment)
            .env("PATH", path)
            .env("HOME", self.folder.path())
            .env("CHECKPOINT_DISABLE", "1")
            // Short processes are faster without collecting garbage.
            .env("GOGC", "off")
            .env("TF_CLI_CONFIG_FILE", self.folder.path().join("terraform.rc"))
            .env("TF_REATTACH_PROVIDERS", self.listening.reattach().to_string())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .unwrap()
    }

    async fn succeed(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.run(arguments).await;
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "terraform {arguments:?}:\n{said}");
        output.stdout
    }

    /// The plan as `show -json` prints it, for variables such as `v=2`.
    pub(crate) async fn plan(&self, variables: &[&str]) -> Value {
        let mut arguments = vec!["plan", "-input=false", "-out=plan"];
        variables.iter().for_each(|variable| arguments.extend(["-var", variable]));
        self.succeed(&arguments).await;
        serde_json::from_slice(&self.succeed(&["show", "-json", "plan"]).await).unwrap()
    }

    /// Applies the last plan; the state as `show -json` prints it.
    pub(crate) async fn apply(&self) -> Value {
        self.succeed(&["apply", "-input=false", "plan"]).await;
        serde_json::from_slice(&self.succeed(&["show", "-json"]).await).unwrap()
    }

    /// The schema of the provider in `terraform providers schema -json`.
    pub(crate) async fn schema(&self) -> Value {
        let mut schema: Value =
            serde_json::from_slice(&self.succeed(&["providers", "schema", "-json"]).await).unwrap();
        schema["provider_schemas"]["registry.terraform.io/coder/coder"].take()
    }

    /// The errors and warnings of a command that prints JSON, in the order of lines.
    pub(crate) async fn diagnostics(&self, arguments: &[&str]) -> Vec<Diagnostic> {
        let output = self.run(arguments).await;
        let lines = String::from_utf8(output.stdout).unwrap();
        let mut found: Vec<_> = lines
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|line| line["diagnostic"].is_object())
            .map(|line| {
                let diagnostic = &line["diagnostic"];
                let text = |name: &str| diagnostic[name].as_str().unwrap_or_default();
                Diagnostic {
                    line: diagnostic["range"]["start"]["line"].as_u64().unwrap_or_default(),
                    address: text("address").to_owned(),
                    severity: text("severity").to_owned(),
                    text: format!("{} {}", text("summary"), text("detail")),
                }
            })
            .collect();
        found.sort();
        found
    }
}

/// The values of one resource in a state.
pub(crate) fn values<'a>(state: &'a Value, address: &str) -> &'a Value {
    let resources = state["values"]["root_module"]["resources"].as_array().unwrap();
    &resources.iter().find(|resource| resource["address"] == address).unwrap()["values"]
}

/// A template's text after the block that every template starts with.
pub(crate) fn template(body: &str) -> String {
    format!(
        "terraform {{\n  required_providers {{\n    coder = {{\n      source = \"coder/coder\"\n    }}\n  }}\n}}\n{body}"
    )
}
