//! Peers of other versions: this daemon with an older server, and an older daemon in the lists of this server.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use coder_api::client::{Credential, ServeProvisionerDaemonRequest};
use coder_domain::protocol::{ApiVersion, CURRENT};
use coder_testkit::daemon::FakeDaemon;
use coder_testkit::older::{OlderServer, VersionSource};
use coder_wire::messages::provisioner::Metadata;
use coder_wire::messages::provisionerd::{AcquiredJob, acquired_job, completed_job};

use crate::crash_recovery::Api;
use crate::durability::{archive, runtime};
use crate::processes::{Process, Server, WAIT_LIMIT};
use crate::program::Home;

/// With fields that are newer than 1.7: an app's tooltip and a preset's description.
const NEWER: &str = r#"
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_parameter" "size" {
  name    = "size"
  default = "s"
}
data "coder_workspace_preset" "small" {
  name        = "Small"
  description = "since 1.8"
  parameters  = { (data.coder_parameter.size.name) = "s" }
}
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
}
resource "coder_app" "docs" {
  agent_id = coder_agent.main.id
  slug     = "docs"
  url      = "http://localhost:1"
  tooltip  = "since 1.10"
}
resource "terraform_data" "machine" {
  input = coder_agent.main.id
}
"#;

fn import() -> AcquiredJob {
    let metadata = Metadata { coder_url: "http://coder.example".to_owned(), ..Metadata::default() };
    let import = acquired_job::TemplateImport { metadata: Some(metadata), ..Default::default() };
    AcquiredJob {
        job_id: "11111111-2222-4333-8444-555555555555".to_owned(),
        provisioner: "terraform".to_owned(),
        template_source_archive: archive(NEWER).into(),
        r#type: Some(acquired_job::Type::TemplateImport(import)),
        ..AcquiredJob::default()
    }
}

/// Runs one import with a server of this version. Returns the tooltip and the description that it received.
fn at(minor: u32, source: VersionSource) -> [String; 2] {
    let runtime = runtime();
    let version = ApiVersion { major: 1, minor };
    let server = runtime.block_on(OlderServer::start(version, source, import())).unwrap();
    let mut home = Home::new();
    home.set("CODER_URL", server.url()).set("CODER_PROVISIONER_DAEMON_PSK", "a-long-shared-secret");
    let mut daemon = Process::start(&home, &["provisioner", "start", "--cache-dir", "cache"], "daemon.log");
    let record = runtime.block_on(server.ended(WAIT_LIMIT)).unwrap();
    daemon.signal("TERM");
    assert!(daemon.end().success(), "{}", daemon.log());
    assert!(record.failed.is_empty(), "{:?}", record.failed);

    let refused = version < CURRENT;
    let wanted =
        if refused { vec![CURRENT.to_string(), version.to_string()] } else { vec![version.to_string()] };
    assert_eq!(record.offered, wanted, "its own version, then the server's");
    assert_eq!(record.build_info_reads, usize::from(refused && source == VersionSource::BuildInfo));
    assert_eq!(daemon.log().contains("its protocol version is used"), refused, "{}", daemon.log());
    let official = ["AcquireJobWithCancel", "UpdateJob", "CompleteJob"];
    let official = official.map(|name| format!("/provisionerd.ProvisionerDaemon/{name}"));
    assert!(record.calls.iter().all(|call| official.contains(call)), "{:?}", record.calls);
    let Some(completed_job::Type::TemplateImport(import)) = &record.completed[0].r#type else {
        panic!("{:?}", record.completed)
    };
    let apps = import.start_resources.iter().flat_map(|resource| &resource.agents).flat_map(|it| &it.apps);
    [
        apps.map(|app| app.tooltip.clone()).collect(),
        import.presets.iter().map(|preset| preset.description.clone()).collect(),
    ]
}

#[test]
fn an_older_server_is_spoken_to_in_its_own_version() {
    coder_requirements::require!(Terraform);
    let (tooltip, description) = ("since 1.10", "since 1.8");
    assert_eq!(at(CURRENT.minor, VersionSource::Refusal), [tooltip, description]);
    assert_eq!(at(9, VersionSource::Refusal), ["", description]);
    assert_eq!(at(7, VersionSource::BuildInfo), ["", ""]);
}

/// The health report, for which there is no command.
fn health(server: &Server, home: &Home) -> serde_json::Value {
    let token = std::fs::read_to_string(home.config().join("session")).unwrap();
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    let request = format!(
        "GET /api/v2/debug/health HTTP/1.1\r\nhost: x\r\ncoder-session-token: {token}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn an_older_daemon_is_seen_as_one() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let api = Api::new(&server, &home);
    let join = |name: &str, version: &str, minor: u32| {
        let mut serve = ServeProvisionerDaemonRequest::new(Credential::Session, name, version);
        serve.api_version = ApiVersion { major: 1, minor };
        api.runtime.block_on(FakeDaemon::join(&api.client, &serve)).unwrap()
    };
    let _old = join("old", "v2.26.1+0123abc", 9);
    let _new = server.daemon(&home, "new", &[]);
    let listed = home.run(&["provisioner", "list"]).success().out;
    let row = |name: &str| listed.lines().find(|line| line.contains(&format!(" {name} "))).unwrap();
    assert!(row("old").contains("version behind, api behind"), "{listed}");
    assert!(!row("new").contains("behind"), "{listed}");
    let health = health(&server, &home);
    let daemons = &health["provisioner_daemons"];
    assert_eq!((&daemons["severity"], &daemons["warnings"][0]["code"]), (&"warning".into(), &"EPD02".into()));
    let items = daemons["items"].as_array().unwrap();
    let warned = |name: &str| {
        let item = items.iter().find(|item| item["provisioner_daemon"]["name"] == name).unwrap();
        item["warnings"].as_array().unwrap().len()
    };
    assert_eq!((warned("old"), warned("new")), (1, 0), "{daemons}");
    // A newer daemon gets this server's version, so that it can fall back to it.
    let mut newer = ServeProvisionerDaemonRequest::new(Credential::Session, "newer", "v2.31.0");
    newer.api_version = ApiVersion { major: 1, minor: CURRENT.minor + 1 };
    let refusal = api.runtime.block_on(FakeDaemon::join(&api.client, &newer)).unwrap_err();
    let body = refusal.body().unwrap();
    let words = format!("server is at version {CURRENT}, behind");
    assert!(body.validations[0].detail.contains(&words), "{body:?}");
}
