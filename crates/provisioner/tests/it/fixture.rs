//! Templates, jobs, and daemons to run them.

use coder_requirements::Requirement;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use coder_provisioner::{Config, Daemon, RunError, Shutdown, StatusHandle, TerraformSource};
use coder_wire::messages::provisioner::{Metadata, RichParameterValue, VariableValue, WorkspaceTransition};
use coder_wire::messages::provisionerd as pb;
use pb::acquired_job::Type;

use crate::fake_server::Server;

/// Agent, app, parameter and a built-in resource: nothing has to be downloaded.
pub(crate) const HELLO: &str = r#"
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
variable "greeting" {
  description = "What to say"
  type        = string
  default     = "hello"
}
data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}
data "coder_parameter" "region" {
  name    = "region"
  default = "eu"
  mutable = true
  option {
    name  = "Europe"
    value = "eu"
  }
  option {
    name  = "America"
    value = "us"
  }
}
data "coder_workspace_tags" "tags" {
  tags = {
    region = data.coder_parameter.region.value
    fixed  = "yes"
  }
}
resource "coder_agent" "main" {
  os             = "linux"
  arch           = "amd64"
  startup_script = "echo ${var.greeting}"
}
resource "coder_app" "code" {
  agent_id = coder_agent.main.id
  slug     = "code"
  url      = "http://localhost:8080"
}
resource "terraform_data" "machine" {
  count = data.coder_workspace.me.start_count
  input = "${var.greeting} ${data.coder_workspace_owner.me.name} ${data.coder_parameter.region.value} ${coder_agent.main.id}"
}
"#;

/// One resource, no provider.
pub(crate) const PLAIN: &str = "resource \"terraform_data\" \"a\" {\n  input = \"x\"\n}\n";

/// The path of Terraform; without it the test is skipped.
#[track_caller]
pub(crate) fn terraform() -> Option<PathBuf> {
    coder_requirements::program(Requirement::Terraform)
}

pub(crate) fn tar(files: &[(&str, &str)]) -> Bytes {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_entry_type(tar::EntryType::Regular);
        tar.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    Bytes::from(tar.into_inner().unwrap())
}

fn job(archive: Bytes, kind: Type) -> pb::AcquiredJob {
    pb::AcquiredJob {
        job_id: uuid::Uuid::new_v4().to_string(),
        provisioner: "terraform".to_owned(),
        user_name: "alice".to_owned(),
        template_source_archive: archive,
        r#type: Some(kind),
        ..pb::AcquiredJob::default()
    }
}

pub(crate) fn import(archive: Bytes, values: &[(&str, &str)]) -> pb::AcquiredJob {
    let metadata = Metadata {
        coder_url: "http://coder.example".to_owned(),
        workspace_owner_groups: vec!["Everyone".to_owned()],
        ..Metadata::default()
    };
    job(
        archive,
        Type::TemplateImport(pb::acquired_job::TemplateImport {
            metadata: Some(metadata),
            user_variable_values: variables(values),
        }),
    )
}

pub(crate) fn variables(values: &[(&str, &str)]) -> Vec<VariableValue> {
    let value = |(name, value): &(&str, &str)| VariableValue {
        name: (*name).into(),
        value: (*value).into(),
        sensitive: true,
    };
    values.iter().map(value).collect()
}

pub(crate) fn dry_run(archive: Bytes, region: &str) -> pb::AcquiredJob {
    job(
        archive,
        Type::TemplateDryRun(pb::acquired_job::TemplateDryRun {
            rich_parameter_values: vec![RichParameterValue { name: "region".into(), value: region.into() }],
            variable_values: variables(&[("greeting", "hi")]),
            metadata: Some(Metadata::default()),
        }),
    )
}

pub(crate) fn build(archive: Bytes, transition: WorkspaceTransition, state: Bytes) -> pb::AcquiredJob {
    let id = || uuid::Uuid::new_v4().to_string();
    let mut metadata = Metadata {
        coder_url: "http://coder.example".to_owned(),
        workspace_name: "dev".to_owned(),
        workspace_id: id(),
        workspace_build_id: id(),
        workspace_owner: "alice".to_owned(),
        workspace_owner_id: id(),
        workspace_owner_email: "alice@example.com".to_owned(),
        workspace_owner_groups: vec!["Everyone".to_owned()],
        template_id: id(),
        template_name: "hello".to_owned(),
        template_version: "v1".to_owned(),
        ..Metadata::default()
    };
    metadata.set_workspace_transition(transition);
    job(
        archive,
        Type::WorkspaceBuild(pb::acquired_job::WorkspaceBuild {
            workspace_build_id: metadata.workspace_build_id.clone(),
            workspace_name: "dev".to_owned(),
            metadata: Some(metadata),
            state,
            ..pb::acquired_job::WorkspaceBuild::default()
        }),
    )
}

pub(crate) fn edit_build(
    job: &mut pb::AcquiredJob,
    edit: impl FnOnce(&mut pb::acquired_job::WorkspaceBuild),
) {
    let Some(Type::WorkspaceBuild(build)) = &mut job.r#type else { panic!("the job is not a build") };
    edit(build);
}

pub(crate) fn start(archive: Bytes) -> pb::AcquiredJob {
    build(archive, WorkspaceTransition::Start, Bytes::new())
}

/// A stand-in for Terraform; `$REAL` is the real program.
pub(crate) fn stand_in(dir: &Path, real: &Path, script: &str) -> PathBuf {
    let path = dir.join("terraform");
    std::fs::write(&path, format!("#!/bin/sh\nREAL='{}'\n{script}\n", real.display())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A daemon that runs in the background, with its directory.
pub(crate) struct Running {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) shutdown: Shutdown,
    pub(crate) status: StatusHandle,
    task: tokio::task::JoinHandle<Result<(), RunError>>,
}

impl Running {
    pub(crate) fn start(server: &Server) -> Self {
        Self::with(server, |_, _| {})
    }

    pub(crate) fn with(server: &Server, edit: impl FnOnce(&mut Config, &Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::new("test", dir.path().join("cache"));
        config.update_interval = Duration::from_millis(100);
        config.registry = Some(dir.path().join("registry"));
        edit(&mut config, dir.path());
        let daemon = Daemon::new(config, server.clone());
        let (shutdown, status) = (Shutdown::new(), daemon.status());
        let task = tokio::spawn(daemon.run(shutdown.clone()));
        Self { dir, shutdown, status, task }
    }

    /// With a stand-in for Terraform.
    pub(crate) fn with_stand_in(server: &Server, real: &Path, script: &str) -> Self {
        Self::with(server, |config, dir| {
            config.terraform = TerraformSource::File(stand_in(dir, real, script));
        })
    }

    /// Waits until the daemon has ended.
    pub(crate) async fn ended(&mut self) -> Result<(), RunError> {
        tokio::time::timeout(Duration::from_secs(30), &mut self.task).await.expect("the daemon ends").unwrap()
    }

    /// The remaining directories of jobs.
    pub(crate) fn sessions(&self) -> usize {
        self.directories().count()
    }

    /// Jobs that have not ended: of an ended one only the state remains until the server has the result.
    pub(crate) fn at_work(&self) -> usize {
        self.directories().filter(|dir| dir.join("template/main.tf").exists()).count()
    }

    fn directories(&self) -> impl Iterator<Item = PathBuf> {
        let entries = std::fs::read_dir(self.dir.path().join("cache/work")).into_iter().flatten().flatten();
        let of_jobs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("Session"));
        of_jobs.map(|entry| entry.path())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The processes whose `cmdline` or `environ` contains the text. A job's own `$$` does not help: a job has its
/// own pids.
pub(crate) fn processes_with(what: &str, marker: &str) -> Vec<u32> {
    let of = |pid: u32, name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid| String::from_utf8_lossy(&of(pid, what)).contains(marker))
        .collect()
}

/// Whether a process has the text in its arguments.
pub(crate) fn runs_with(marker: &str) -> bool {
    !processes_with("cmdline", marker).is_empty()
}

/// Runs one job on a new server and daemon.
pub(crate) async fn run_one(job: pb::AcquiredJob) -> (Server, Running) {
    let server = Server::new();
    let running = Running::start(&server);
    server.give(job);
    server.wait_for("the end of the job", crate::fake_server::Record::is_over).await;
    (server, running)
}
