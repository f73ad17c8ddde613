//! A start build through server and daemon, against Terraform alone with the official provider.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::Setup;
use crate::process::{Database, Deployment, Running, cpu_seconds};
use crate::report::{Row, median};

const RUNS: usize = 9;
const PROVIDER: &str = "github.com/coder/terraform-provider-coder/v2";
const PROVIDER_VERSION: &str = "2.13.1";

const TEMPLATE: &str = r#"
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

/// Wall time and CPU time of one run, in seconds.
struct Cost {
    wall: f64,
    cpu: f64,
}

/// Alternates bare and ours, and compares the medians.
pub(crate) fn against_bare_terraform(setup: &Setup) -> Result<Vec<Row>> {
    let mirror = official_provider(&setup.cache)?;
    let ours = Ours::prepare(setup)?;
    let (mut bare, mut built) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        bare.push(bare_run(&mirror)?);
        built.push(ours.start_build()?);
    }
    let middle =
        |costs: &[Cost], pick: fn(&Cost) -> f64| median(&mut costs.iter().map(pick).collect::<Vec<_>>());
    let (bare_wall, bare_cpu) = (middle(&bare, |cost| cost.wall), middle(&bare, |cost| cost.cpu));
    let (our_wall, our_cpu) = (middle(&built, |cost| cost.wall), middle(&built, |cost| cost.cpu));
    Ok(vec![
        Row::seen("bare `init && plan && apply`: wall", bare_wall * 1000.0, "ms"),
        Row::seen("bare `init && plan && apply`: CPU", bare_cpu * 1000.0, "ms"),
        Row::at_most("start build ÷ bare: wall", our_wall / bare_wall, 1.2, "×"),
        Row::at_most("start build ÷ bare: CPU", our_cpu / bare_cpu, 1.2, "×"),
    ])
}

/// Our server and one external daemon with a workspace that is started again and again.
struct Ours {
    deployment: Deployment,
    daemon: Running,
}

impl Ours {
    fn prepare(setup: &Setup) -> Result<Self> {
        let deployment = Deployment::start(setup, &Database::Sqlite, &["--provisioner-daemons=0"])?;
        let daemon = deployment.daemon("builder")?;
        let template = deployment.folder.path().join("template");
        write_template(&template)?;
        deployment.cli(&["templates", "push", "bench", "-d", &template.to_string_lossy(), "-y"])?;
        deployment.cli(&["create", "box", "--template", "bench", "-y"])?;
        Ok(Self { deployment, daemon })
    }

    /// Stops the workspace, then measures a start from the request to the end of its job.
    fn start_build(&self) -> Result<Cost> {
        self.deployment.cli(&["stop", "box", "-y"])?;
        let cpu = || {
            Ok::<f64, anyhow::Error>(
                cpu_seconds(self.daemon.0.id())? + cpu_seconds(self.deployment.server.0.id())?,
            )
        };
        let before = cpu()?;
        self.deployment.cli(&["start", "box", "-y"])?;
        let cost_cpu = cpu()? - before;
        let list: Value = serde_json::from_str(&self.deployment.cli(&["list", "-o", "json"])?)?;
        let job = &list[0]["latest_build"]["job"];
        let wall = seconds(&job["completed_at"])? - seconds(&job["created_at"])?;
        Ok(Cost { wall, cpu: cost_cpu })
    }
}

/// Seconds within the day of an RFC 3339 UTC time; two of one build differ by seconds.
fn seconds(time: &Value) -> Result<f64> {
    let text = time.as_str().context("the job has no such time")?;
    let clock = text.split_once('T').context("a time")?.1.trim_end_matches('Z');
    let mut total = 0.0;
    for part in clock.split(':') {
        total = total * 60.0 + part.parse::<f64>()?;
    }
    Ok(total)
}

fn write_template(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("main.tf"), TEMPLATE)?;
    Ok(())
}

/// Terraform alone, in a fresh directory, with the provider from an unpacked mirror.
fn bare_run(mirror: &Path) -> Result<Cost> {
    let folder = tempfile::tempdir()?;
    write_template(folder.path())?;
    let rc = folder.path().join("terraform.rc");
    let mirror = mirror.to_string_lossy();
    std::fs::write(
        &rc,
        format!("provider_installation {{\n  filesystem_mirror {{\n    path = {mirror:?}\n  }}\n}}\n"),
    )?;
    let own = std::process::id();
    let (start, before) = (Instant::now(), cpu_seconds(own)?);
    let steps: [&[&str]; 3] = [
        &["init", "-no-color", "-input=false"],
        &["plan", "-no-color", "-input=false", "-out=plan"],
        &["apply", "-no-color", "-input=false", "-auto-approve", "plan"],
    ];
    for arguments in steps {
        let output = Command::new("terraform")
            .args(arguments)
            .current_dir(folder.path())
            .env("TF_CLI_CONFIG_FILE", &rc)
            .env("CHECKPOINT_DISABLE", "1")
            .env("CODER_WORKSPACE_TRANSITION", "start")
            .env("CODER_AGENT_URL", "http://localhost:3000")
            .stdin(Stdio::null())
            .output()
            .context("terraform must be in the PATH")?;
        if !output.status.success() {
            bail!("terraform {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        }
    }
    Ok(Cost { wall: start.elapsed().as_secs_f64(), cpu: cpu_seconds(own)? - before })
}

/// Builds the official provider from its Go module, once, and lays it out as an unpacked mirror.
fn official_provider(cache: &Path) -> Result<PathBuf> {
    let mirror = cache.join("mirror");
    let os_arch = format!("{}_{}", "linux", if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" });
    let folder = mirror.join("registry.terraform.io/coder/coder").join(PROVIDER_VERSION).join(os_arch);
    let binary = folder.join(format!("terraform-provider-coder_v{PROVIDER_VERSION}"));
    if binary.exists() {
        return Ok(mirror);
    }
    std::fs::create_dir_all(&folder)?;
    let module = cache.join("official-provider");
    std::fs::create_dir_all(&module)?;
    let go = |arguments: &[&str]| -> Result<()> {
        let status = Command::new("go")
            .args(arguments)
            .current_dir(&module)
            .status()
            .context("go must be in the PATH")?;
        if !status.success() {
            bail!("go {} failed", arguments.join(" "));
        }
        Ok(())
    };
    if !module.join("go.mod").exists() {
        go(&["mod", "init", "official"])?;
    }
    go(&["get", &format!("{PROVIDER}@v{PROVIDER_VERSION}")])?;
    go(&["build", "-o", &binary.to_string_lossy(), PROVIDER])?;
    Ok(mirror)
}
