//! Builds and imports through server and daemon, against Terraform alone with the official provider.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::Setup;
use crate::bare::{self, Cost};
use crate::process::{Database, Deployment, Running, cpu_seconds};
use crate::report::{Row, median};

/// The figures are medians of so many runs.
const RUN_COUNT: usize = 9;

/// One agent and one app.
pub(crate) const SMALL_TEMPLATE: &str = r#"
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}

data "coder_workspace" "me" {}

resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
}

resource "coder_app" "web" {
  agent_id = coder_agent.main.id
  slug     = "web"
  url      = "http://localhost:8080"
}

resource "terraform_data" "box" {
  count = data.coder_workspace.me.start_count
  input = coder_agent.main.id
}
"#;

const REQUIRED_PROVIDERS: &str = r#"required_providers {
    time  = { source = "hashicorp/time" }
    clock = { source = "example/clock" }"#;

/// What the template with a module and two more providers has in addition.
const MODULE_BLOCKS: &str = r#"
module "tools" {
  source   = "MODULE_ADDRESS"
  agent_id = coder_agent.main.id
}

resource "time_static" "made" {}

resource "time_static" "other" {
  provider = clock
  triggers = { made = time_static.made.id }
}
"#;

const MODULE_CODE: &str = r#"
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}

variable "agent_id" {
  type = string
}

resource "coder_script" "tools" {
  agent_id     = var.agent_id
  display_name = "Tools"
  script       = "true"
  run_on_start = true
}
"#;

/// A start build and an import of a template with one agent and one app.
pub(crate) fn against_bare_terraform(setup: &Setup) -> Result<Vec<Row>> {
    let mirror = bare::mirror(&setup.cache)?;
    let ours = Ours::prepare(setup, SMALL_TEMPLATE, None)?;
    let (mut alone, mut official, mut built, mut imported) = (vec![], vec![], vec![], vec![]);
    for _ in 0..RUN_COUNT {
        alone.push(bare::run(SMALL_TEMPLATE, &mirror, bare::BARE_COMMANDS)?);
        built.push(ours.start_build()?);
        official.push(bare::run(SMALL_TEMPLATE, &mirror, bare::OFFICIAL_COMMANDS)?);
        imported.push(ours.import(SMALL_TEMPLATE)?);
    }
    let wall = |costs: &[Cost]| middle(costs, |cost| cost.wall);
    let cpu = |costs: &[Cost]| middle(costs, |cost| cost.cpu);
    Ok(vec![
        Row::seen("bare `init && plan && apply`: wall", wall(&alone) * 1000.0, "ms"),
        Row::seen("bare `init && plan && apply`: CPU", cpu(&alone) * 1000.0, "ms"),
        Row::at_most(
            "start build, one agent and one app, warm ÷ bare: wall",
            wall(&built) / wall(&alone),
            0.75,
            "×",
        ),
        Row::at_most(
            "template import, one agent and one app ÷ bare: wall",
            wall(&imported) / wall(&alone),
            1.2,
            "×",
        ),
        Row::at_most(
            "CPU of a build ÷ the official command sequence",
            cpu(&built) / cpu(&official),
            0.3,
            "×",
        ),
    ])
}

/// A start build of a template with a remote module and two more providers.
pub(crate) fn with_module(setup: &Setup) -> Result<Vec<Row>> {
    let mirror = bare::mirror_of_three(&setup.cache)?;
    let repository = tempfile::tempdir()?;
    let requirements = SMALL_TEMPLATE.replace("required_providers {", REQUIRED_PROVIDERS);
    let template = format!(
        "{requirements}{}",
        MODULE_BLOCKS.replace("MODULE_ADDRESS", &remote_module(repository.path())?)
    );
    let ours = Ours::prepare(setup, &template, Some(&mirror))?;
    let (mut alone, mut built) = (vec![], vec![]);
    for _ in 0..RUN_COUNT {
        alone.push(bare::run(&template, &mirror, bare::BARE_COMMANDS)?);
        built.push(ours.start_build()?);
    }
    let ratio = middle(&built, |cost| cost.wall) / middle(&alone, |cost| cost.wall);
    Ok(vec![Row::at_most(
        "the same with a remote module and two other providers ÷ bare: wall",
        ratio,
        1.0,
        "×",
    )])
}

fn middle(costs: &[Cost], pick: fn(&Cost) -> f64) -> f64 {
    median(&mut costs.iter().map(pick).collect::<Vec<_>>())
}

/// A repository with the module, and the source address that fetches it.
fn remote_module(folder: &Path) -> Result<String> {
    std::fs::write(folder.join("main.tf"), MODULE_CODE)?;
    let steps: [&[&str]; 3] = [
        &["init", "-q"],
        &["add", "main.tf"],
        &["-c", "user.name=measured", "-c", "user.email=measured@example.com", "commit", "-q", "-m", "Add"],
    ];
    for arguments in steps {
        let mut git = Command::new("git");
        let status = git.args(arguments).current_dir(folder).stdin(Stdio::null()).status();
        if !status.context("git must be in the PATH")?.success() {
            bail!("git {} failed", arguments.join(" "));
        }
    }
    Ok(format!("git::file://{}", folder.display()))
}

/// A server and one external daemon, with a workspace that is started again and again.
struct Ours {
    deployment: Deployment,
    daemon: Running,
    imports: std::cell::Cell<u32>,
}

impl Ours {
    fn prepare(setup: &Setup, template: &str, mirror: Option<&Path>) -> Result<Self> {
        let deployment = Deployment::start(setup, &Database::Sqlite, &["--provisioner-daemons=0"])?;
        let environment = match mirror {
            Some(mirror) => {
                let rc = deployment.folder.path().join("terraform.rc");
                std::fs::write(&rc, bare::configuration(mirror))?;
                vec![("TF_CLI_CONFIG_FILE", rc.to_string_lossy().into_owned())]
            }
            None => Vec::new(),
        };
        let daemon = deployment.daemon("builder", &[], &environment)?;
        deployment.push("bench", template)?;
        deployment.cli(&["create", "box", "--template", "bench", "-y"])?;
        Ok(Self { deployment, daemon, imports: std::cell::Cell::new(0) })
    }

    /// Stops the workspace, then measures a start from the request to the end of its job.
    fn start_build(&self) -> Result<Cost> {
        self.deployment.cli(&["stop", "box", "-y"])?;
        let before = self.cpu()?;
        self.deployment.cli(&["start", "box", "-y"])?;
        let cpu = self.cpu()? - before;
        let list: Value = serde_json::from_str(&self.deployment.cli(&["list", "-o", "json"])?)?;
        Ok(Cost { wall: took(&list[0]["latest_build"]["job"])?, cpu })
    }

    /// Pushes a version with new content, and measures its import.
    fn import(&self, template: &str) -> Result<Cost> {
        self.imports.set(self.imports.get() + 1);
        let before = self.cpu()?;
        self.deployment.push("imported", &format!("# Number {}.\n{template}", self.imports.get()))?;
        let cpu = self.cpu()? - before;
        let versions = self.deployment.cli(&["templates", "versions", "list", "imported", "-o", "json"])?;
        let versions: Value = serde_json::from_str(&versions)?;
        let newest = versions.as_array().and_then(|all| all.iter().max_by_key(|one| created(one).to_owned()));
        let newest = newest.context("the template has a version")?;
        Ok(Cost { wall: took(&version_of(newest)["job"])?, cpu })
    }

    fn cpu(&self) -> Result<f64> {
        Ok(cpu_seconds(self.daemon.0.id())? + cpu_seconds(self.deployment.server.0.id())?)
    }
}

/// The version itself; the list may wrap it.
fn version_of(row: &Value) -> &Value {
    if row["job"].is_object() { row } else { &row["TemplateVersion"] }
}

fn created(row: &Value) -> &str {
    version_of(row)["created_at"].as_str().unwrap_or_default()
}

/// Seconds from the request for a job to its end.
fn took(job: &Value) -> Result<f64> {
    Ok(seconds(&job["completed_at"])? - seconds(&job["created_at"])?)
}

/// Seconds within the day of an RFC 3339 UTC time; two of one build differ by seconds.
pub(crate) fn seconds(time: &Value) -> Result<f64> {
    let text = time.as_str().context("the job has no such time")?;
    let clock = text.split_once('T').context("a time")?.1.trim_end_matches('Z');
    let mut total = 0.0;
    for part in clock.split(':') {
        total = total * 60.0 + part.parse::<f64>()?;
    }
    Ok(total)
}
