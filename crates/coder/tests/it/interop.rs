//! Official programs in both directions, if they are given; nothing is downloaded. Other tests run the same steps with
//! this program.
//!
//! `CODER_TEST_REFERENCE_DAEMON` is the path of a `coder` binary: it joins our server with a key, with the pre-shared
//! key and with a token, and runs every type of job. `CODER_TEST_REFERENCE_SERVER` (a URL) and
//! `CODER_TEST_REFERENCE_TOKEN` (a session of a user who may create templates and start daemons) name a server that our
//! daemon joins to run an import.

use std::path::Path;
use std::process::Command;

use coder_api::builds::{CreateWorkspaceBuildRequest, Transition};
use coder_api::client::{Client, Options, Proxies};
use coder_api::files::TAR;
use coder_api::jobs::Status;
use coder_api::templates::CreateTemplateRequest;
use coder_api::versions::{CreateDryRunRequest, CreateTemplateVersionRequest};
use coder_api::workspaces::CreateWorkspaceRequest;
use coder_domain::secret::Secret;
use coder_requirements::Requirement;

use crate::crash_recovery::{Api, SMALL_TEMPLATE};
use crate::durability::{archive, runtime};
use crate::processes::{Process, Server, WAIT_LIMIT, has_terraform};
use crate::program::{Home, until};

const PSK: &str = "a pre-shared key of sufficient length";

/// A command of the given program, or of this program if none is given.
fn command_of(binary: Option<&Path>, home: &Home, args: &[&str]) -> Command {
    let ours = home.command(args);
    let Some(binary) = binary else { return ours };
    let mut command = Command::new(binary);
    command.args(args).env_clear().current_dir(home.path());
    for (name, value) in ours.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        command.env(name, value);
    }
    command
}

/// Starts a daemon with this credential in its environment. Its tag excludes the other daemons.
fn daemon(binary: Option<&Path>, server: &Server, credential: (&str, &str), pool: &str) -> (Home, Process) {
    let mut home = Home::new();
    home.set("CODER_URL", &server.url).set(credential.0, credential.1);
    let mut args = vec!["provisioner", "start", "--name", pool, "--cache-dir", "cache"];
    let tag = format!("pool={pool}");
    // The tags of a key are the key's.
    if credential.0 != "CODER_PROVISIONER_DAEMON_KEY" {
        args.extend(["--tag", &tag]);
    }
    let process = Process::spawn(&home, command_of(binary, &home, &args), "daemon.log");
    (home, process)
}

/// Import, dry run, start, stop and delete on the daemons of a pool.
fn every_job(api: &Api, pool: &str) {
    let ended = |what: &str, job: &dyn Fn() -> coder_api::jobs::ProvisionerJob| {
        let done = until(WAIT_LIMIT * 2, || Some(job()).filter(|job| job.completed_at.is_some()));
        let done = done.unwrap_or_else(|| panic!("{what} on {pool} does not end"));
        assert_eq!((done.status, done.error.as_str()), (Status::Succeeded, ""), "{what} on {pool}");
    };
    let version = api.import_of(archive(SMALL_TEMPLATE), &[("pool", pool)]);
    ended("import", &|| api.run(async |client| client.version(version.id).await).unwrap().job);
    let request = CreateDryRunRequest { workspace_name: "w".to_owned(), ..CreateDryRunRequest::default() };
    let dry = api.run(async |client| client.create_dry_run(version.id, &request).await).unwrap();
    ended("dry run", &|| api.run(async |client| client.dry_run(version.id, dry.id).await).unwrap());
    let planned = api.run(async |client| client.dry_run_resources(version.id, dry.id).await).unwrap();
    assert_eq!(planned.iter().map(|it| it.kind.as_str()).collect::<Vec<_>>(), ["terraform_data"]);
    let made = api.run(async |client| {
        let template = CreateTemplateRequest {
            name: pool.to_owned(),
            version_id: Some(version.id),
            ..CreateTemplateRequest::default()
        };
        let template = client.create_template(api.organization, &template).await?;
        let workspace = CreateWorkspaceRequest {
            template_id: Some(template.id),
            name: pool.to_owned(),
            ..CreateWorkspaceRequest::default()
        };
        client.create_workspace("me", &workspace).await
    });
    let workspace = made.unwrap();
    let built = |what: &str, build| {
        ended(what, &|| api.run(async |client| client.build(build).await).unwrap().job);
    };
    built("start", workspace.latest_build.id);
    let state = api.run(async |client| client.build_state(workspace.latest_build.id).await).unwrap();
    assert!(String::from_utf8_lossy(&state.0).contains("terraform_data"));
    for (what, transition) in [("stop", Transition::Stop), ("delete", Transition::Delete)] {
        let request = CreateWorkspaceBuildRequest::new(transition);
        let build = api.run(async |client| client.create_build(workspace.id, &request).await).unwrap();
        built(what, build.id);
    }
}

#[test]
fn official_daemon_runs_every_job_of_our_server() {
    let binary = coder_requirements::require!(program OfficialDaemon);
    if has_terraform() {
        runs_every_job(Some(&binary));
    }
}

#[test]
fn our_daemon_runs_every_job_of_our_server() {
    if has_terraform() {
        runs_every_job(None);
    }
}

fn runs_every_job(binary: Option<&Path>) {
    let server = Server::start(&["--provisioner-daemon-psk", PSK]);
    let home = server.first_user();
    let api = Api::new(&server, &home);
    let out = home.run(&["provisioner", "keys", "create", "k", "--tag", "pool=by-key"]).success().out;
    let key = out.lines().last().unwrap();
    let token = home.run(&["tokens", "create"]).success().out;
    let credentials = [
        ("by-key", ("CODER_PROVISIONER_DAEMON_KEY", key)),
        ("by-psk", ("CODER_PROVISIONER_DAEMON_PSK", PSK)),
        ("by-token", ("CODER_SESSION_TOKEN", token.trim())),
    ];
    for (pool, credential) in credentials {
        let (_home, mut process) = daemon(binary, &server, credential, pool);
        process.wait_for_log("successfully connected to coderd");
        every_job(&api, pool);
        process.signal("TERM");
        assert!(process.end().success(), "{}", process.log());
    }
    server.home().run(&["server", "check"]).success();
}

#[test]
fn our_daemon_runs_an_import_of_an_official_server() {
    if has_terraform() && coder_requirements::has(Requirement::OfficialServer) {
        let [url, token] = ["CODER_TEST_REFERENCE_SERVER", "CODER_TEST_REFERENCE_TOKEN"]
            .map(|name| std::env::var(name).unwrap());
        runs_an_import_of(&url, token);
    }
}

#[test]
fn our_daemon_runs_an_import_of_our_server() {
    if has_terraform() {
        let server = Server::start(&[]);
        let home = server.first_user();
        let token = home.run(&["tokens", "create"]).success().out.trim().to_owned();
        runs_an_import_of(&server.url, token);
    }
}

fn runs_an_import_of(url: &str, token: String) {
    let mut home = Home::new();
    home.set("CODER_URL", url).set("CODER_SESSION_TOKEN", &token);
    // A tag of this run, so that no other daemon of that server takes the job.
    let name = format!("ours-{}", std::process::id());
    let tag = format!("run={name}");
    let args = ["provisioner", "start", "--name", &name, "--tag", &tag, "--cache-dir", "cache"];
    let mut daemon = Process::start(&home, &args, "daemon.log");
    daemon.wait_for_log("successfully connected to coderd");
    let runtime = runtime();
    let options = Options { proxies: Proxies::none(), ..Options::default() };
    let client = Client::new(url, Some(Secret::new(token)), options).unwrap();
    let ordered = runtime.block_on(async {
        let organizations = client.my_organizations().await?;
        let organization = organizations.iter().find(|found| found.is_default).unwrap_or(&organizations[0]);
        let file = client.upload(TAR, archive(SMALL_TEMPLATE).into()).await?;
        let tags = [("run".to_owned(), name.clone())].into();
        let request = CreateTemplateVersionRequest { file_id: Some(file), tags, ..Default::default() };
        client.create_version(organization.id, &request).await
    });
    let version = ordered.unwrap();
    let ended = until(WAIT_LIMIT * 2, || {
        let found = runtime.block_on(client.version(version.id)).unwrap().job;
        found.completed_at.is_some().then_some(found)
    });
    let job = ended.expect("the import ends");
    assert_eq!((job.status, job.error.as_str()), (Status::Succeeded, ""));
    let resources = runtime.block_on(client.version_resources(version.id)).unwrap();
    assert!(resources.iter().any(|resource| resource.kind == "terraform_data"), "{resources:?}");
    daemon.signal("TERM");
    assert!(daemon.end().success(), "{}", daemon.log());
}
