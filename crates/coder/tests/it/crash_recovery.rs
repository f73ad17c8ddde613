//! Killed processes, late daemons, and the error messages of other faults.

use std::path::Path;
use std::time::Duration;

use coder_api::client::{Client, Error, Options, Proxies, Timeouts};
use coder_api::files::TAR;
use coder_api::versions::{CreateTemplateVersionRequest, TemplateVersion};
use coder_api::workspaces::CreateWorkspaceRequest;
use coder_domain::Timestamp;
use coder_domain::ids::OrganizationId;
use coder_domain::secret::Secret;
use tokio::runtime::Runtime;

use crate::durability::{archive, runtime};
use crate::end_to_end::{json, write};
use crate::processes::{Server, WAIT_LIMIT};
use crate::program::{Home, until};

/// The smallest template.
pub(crate) const SMALL_TEMPLATE: &str = "resource \"terraform_data\" \"x\" {}\n";

/// The longest wait for a response during a fault.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// The REST API without retries.
pub(crate) struct Api {
    pub(crate) runtime: Runtime,
    pub(crate) client: Client,
    pub(crate) organization: OrganizationId,
}

impl Api {
    pub(crate) fn new(server: &Server, session: &Home) -> Self {
        let token = std::fs::read_to_string(session.config().join("session")).unwrap();
        let timeouts = Timeouts { request: ANSWER_LIMIT, transfer: ANSWER_LIMIT, ..Timeouts::default() };
        let options = Options { proxies: Proxies::none(), retries: 0, timeouts, ..Options::default() };
        let client = Client::new(&server.url, Some(Secret::new(token)), options).unwrap();
        let runtime = runtime();
        let organization = runtime.block_on(client.organization("default")).unwrap().id;
        Self { runtime, client, organization }
    }

    pub(crate) fn run<T>(&self, ask: impl AsyncFnOnce(&Client) -> Result<T, Error>) -> Result<T, Error> {
        self.runtime.block_on(ask(&self.client))
    }

    pub(crate) fn new_key(&self, name: &str) -> Result<(), Error> {
        let tags = std::collections::BTreeMap::new();
        self.run(async |client| client.create_provisioner_key(self.organization, name, tags).await).map(drop)
    }

    /// Requests an import of a small template.
    fn import(&self) {
        self.import_of(archive(SMALL_TEMPLATE), &[]);
    }

    /// Requests an import of this archive for daemons with these tags.
    pub(crate) fn import_of(&self, archive: Vec<u8>, tags: &[(&str, &str)]) -> TemplateVersion {
        self.try_import(archive, tags).unwrap()
    }

    /// Like [`Self::import_of`], for an archive that the server may refuse.
    pub(crate) fn try_import(
        &self,
        archive: Vec<u8>,
        tags: &[(&str, &str)],
    ) -> Result<TemplateVersion, Error> {
        let tags = tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.run(async |client| {
            let file = client.upload(TAR, archive.into()).await?;
            let request = CreateTemplateVersionRequest { file_id: Some(file), tags, ..Default::default() };
            client.create_version(self.organization, &request).await
        })
    }

    /// Creates a workspace at once. The command would first run a dry run, which also waits for a daemon.
    pub(crate) fn create(&self, template: &str, name: &str) {
        let made = self.run(async |client| {
            let template = client.template_by_name(self.organization, template).await?;
            let request = CreateWorkspaceRequest {
                template_id: Some(template.id),
                name: name.to_owned(),
                ..CreateWorkspaceRequest::default()
            };
            client.create_workspace("me", &request).await
        });
        made.unwrap();
    }

    /// Waits until an import has ended.
    #[track_caller]
    pub(crate) fn ended(&self, version: &TemplateVersion) -> TemplateVersion {
        let ended = until(WAIT_LIMIT, || {
            let found = self.run(async |client| client.version(version.id).await).unwrap();
            found.job.completed_at.is_some().then_some(found)
        });
        ended.expect("the import ends in time")
    }
}

/// Checks the status and words of the error.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(outcome: Result<T, Error>, status: u16, words: &str) {
    let error = outcome.unwrap_err();
    assert_eq!(error.status().map(|status| status.as_u16()), Some(status), "{error}");
    let message = &error.body().unwrap().message;
    assert!(message.contains(words), "{message}");
}

/// Waits until a file exists.
#[track_caller]
pub(crate) fn wait_for_file(path: &Path) {
    let found = until(WAIT_LIMIT, || path.exists().then_some(()));
    assert!(found.is_some(), "{} did not appear", path.display());
}

/// Creates a workspace `w` whose Terraform runs this script.
fn order(home: &Home, script: &str) {
    order_as(home, "w", script);
}

/// Creates a workspace whose Terraform runs this script.
pub(crate) fn order_as(home: &Home, name: &str, script: &str) {
    let text = format!(
        "resource \"terraform_data\" \"x\" {{\n  provisioner \"local-exec\" {{\n    command = \"{script}\"\n  }}\n}}\n"
    );
    let template = format!("scripted-{name}");
    let directory = write(home, &template, &text);
    home.run(&["templates", "push", "-y", "-d", &directory]).success();
    home.run(&["create", name, "--template", &template, "-y", "--no-wait"]).success();
}

/// Waits until the newest build of `w` has this status.
#[track_caller]
fn wait_for_status(home: &Home, status: &str) -> serde_json::Value {
    wait_for_status_of(home, "w", status)
}

/// Waits until the newest build of this workspace has this status.
#[track_caller]
pub(crate) fn wait_for_status_of(home: &Home, name: &str, status: &str) -> serde_json::Value {
    let mut build = serde_json::Value::Null;
    let found = until(WAIT_LIMIT, || {
        let mut list = json(home, &["list"]);
        let mut rows = list.as_array_mut().unwrap().iter_mut();
        build = rows.find(|row| row["name"] == name)?["latest_build"].take();
        (build["status"] == status).then_some(())
    });
    assert!(found.is_some(), "{build}");
    build
}

/// Deletes `w`.
#[track_caller]
pub(crate) fn stop_and_delete(server: &Server, home: &Home) {
    home.run(&["stop", "w", "-y"]).success();
    home.run(&["delete", "w", "-y"]).success();
    assert_eq!(json(home, &["list"]), serde_json::json!([]));
    server.home().run(&["server", "check"]).success();
}

/// Command lines of processes that run for jobs of the daemon with this cache directory.
pub(crate) fn processes_of_jobs(cache: &Path) -> Vec<String> {
    let marker = format!("CODER_PROVISIONER_WORK_DIR={}/", cache.display());
    let read = |path: std::path::PathBuf| std::fs::read(path).unwrap_or_default();
    let ours = |path: &Path| {
        read(path.join("environ")).split(|&byte| byte == 0).any(|v| v.starts_with(marker.as_bytes()))
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    entries
        .filter(|path| ours(path))
        .map(|path| String::from_utf8_lossy(&read(path.join("cmdline"))).replace('\0', " "))
        .collect()
}

#[test]
fn a_daemon_killed_in_mid_apply() {
    coder_requirements::require!(Terraform);
    let server = Server::start(&["--daemon-grace", "3s", "--verbose"]);
    let home = server.first_user();
    let mut daemon = server.daemon(&home, "victim", &[]);
    let at = |name: &str| home.path().join(name);
    let (released, hold, applying) = (at("released"), at("hold"), at("applying"));
    let script = format!(
        "[ -e {} ] || {{ mkfifo {}; : > {}; cat {}; }}",
        released.display(),
        hold.display(),
        applying.display(),
        hold.display()
    );
    order(&home, &script);
    wait_for_file(&applying);
    let cache = at("cache-victim");
    let running = |name: &str| processes_of_jobs(&cache).iter().any(|line| line.contains(name));
    assert!(until(WAIT_LIMIT, || (running("apply") && running("cat ")).then_some(())).is_some());
    daemon.signal("KILL");
    daemon.end();

    let build = wait_for_status(&home, "failed");
    assert!(build["job"]["error"].as_str().unwrap().contains("daemon lost"), "{build}");
    assert!(build["job"]["completed_at"].is_string(), "{build}");
    let logs = home.run(&["logs", "-f", "w"]);
    assert!(logs.out.contains("did not come back in time"), "{}{}", logs.out, logs.err);
    server.home().run(&["server", "check"]).success();

    std::fs::write(released, "").unwrap();
    let next = server.daemon(&home, "victim", &[]);
    let left = until(ANSWER_LIMIT, || processes_of_jobs(&cache).is_empty().then_some(()));
    assert!(left.is_some(), "{:?}", processes_of_jobs(&cache));
    home.run(&["start", "w", "-y"]).success();
    home.run(&["delete", "w", "-y"]).success();
    assert_eq!(json(&home, &["list"]), serde_json::json!([]));
    server.home().run(&["server", "check"]).success();
    drop(next);
}

#[test]
fn a_server_killed_in_mid_job() {
    coder_requirements::require!(Terraform);
    let mut server = Server::start(&[]);
    let home = server.first_user();
    let daemon = server.daemon(&home, "steady", &[]);
    let at = |name: &str| home.path().join(name);
    let (applying, dark, said, gate) = (at("applying"), at("dark"), at("said"), at("gate"));
    let script = format!(
        "echo before; : > {}; while [ ! -e {} ]; do sleep 0.05; done; for i in 1 2 3; do echo while away $i; done; : > {}; while [ ! -e {} ]; do sleep 0.05; done; echo after",
        applying.display(),
        dark.display(),
        said.display(),
        gate.display()
    );
    order(&home, &script);
    wait_for_file(&applying);
    let address = server.url.strip_prefix("http://").unwrap().to_owned();
    server.process.signal("KILL");
    server.process.end();
    // Terraform continues meanwhile.
    std::fs::write(dark, "").unwrap();
    wait_for_file(&said);
    let server = server.restart(&address);
    std::fs::write(gate, "").unwrap();

    let build = wait_for_status(&home, "running");
    assert_eq!(build["job"]["status"], "succeeded", "{build}");
    let logs = home.run(&["logs", "-f", "w"]).success().out;
    for line in ["before", "while away 1", "while away 2", "while away 3", "after"] {
        let line = format!("(local-exec): {line}\n");
        assert_eq!(logs.matches(&line).count(), 1, "{line:?} once in:\n{logs}");
    }
    stop_and_delete(&server, &home);
    drop(daemon);
}

#[test]
fn a_waiting_import_starts_when_its_daemon_arrives() {
    // Half of the interval in which the server looks for lost wake-ups.
    const LIMIT_MS: i64 = 500;
    coder_requirements::require!(Terraform);
    let server = Server::start(&[]);
    let home = server.first_user();
    let api = Api::new(&server, &home);
    let instant = |value: &serde_json::Value| value.as_str().unwrap().parse::<Timestamp>().unwrap();
    let mut waits = Vec::new();
    // A busy machine may delay one daemon, but hardly three.
    for round in 0..3 {
        api.import();
        let jobs = json(&home, &["provisioner", "jobs", "list"]);
        let pending = jobs.as_array().unwrap().iter().find(|job| job["status"] == "pending").unwrap();
        assert_eq!(pending["type"], "template_version_import");
        let name = format!("late-{round}");
        let mut daemon = server.daemon(&home, &name, &[]);
        let started_at = until(WAIT_LIMIT, || {
            let jobs = json(&home, &["provisioner", "jobs", "list"]);
            let job = jobs.as_array().unwrap().iter().find(|job| job["id"] == pending["id"]).unwrap();
            (job["status"] == "succeeded").then(|| instant(&job["started_at"]))
        });
        let daemons = json(&home, &["provisioner", "list"]);
        let row = daemons.as_array().unwrap().iter().find(|row| row["name"] == name.as_str()).unwrap();
        let arrived_at = instant(&row["created_at"]);
        assert!(arrived_at > instant(&pending["created_at"]));
        let wait = started_at.unwrap().as_millisecond() - arrived_at.as_millisecond();
        waits.push(wait);
        daemon.signal("TERM");
        assert!(daemon.end().success());
        if wait <= LIMIT_MS {
            return;
        }
    }
    panic!("jobs waited {waits:?} ms for connected daemons");
}
