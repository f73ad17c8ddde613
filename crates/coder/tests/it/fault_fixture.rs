//! The fixture of the fault tests: a server that can be killed, a proxy that cuts connections, a daemon behind the
//! proxy, and a template that prints lines.

use std::path::PathBuf;

use coder_api::builds::WorkspaceBuild;
use coder_api::client::{DaemonFilter, JobFilter, JobLogTarget};
use coder_api::jobs::Status;
use coder_store::testing;
use coder_testkit::proxy::Proxy;

use crate::crash_recovery::Api;
use crate::durability::runtime;
use crate::log_template::{LogTemplate, WorkspaceFiles, numbered_lines};
use crate::processes::{Process, Server, WAIT_LIMIT};
use crate::program::{Home, until};

/// Runs a test with a server's home for each engine's database.
pub(crate) fn on_sqlite(test: impl FnOnce(Home)) {
    test(Home::new());
}

/// Like [`on_sqlite`]. Records the test as skipped without Postgres.
pub(crate) fn on_postgres(test: impl FnOnce(Home)) {
    let Some(database) = runtime().block_on(testing::postgres()) else { return };
    let coder_store::Location::Postgres(url) = &database.location else { unreachable!("asked for Postgres") };
    let mut home = Home::new();
    home.set("CODER_PG_CONNECTION_URL", url.expose());
    test(home);
}

/// Name of the template.
const TEMPLATE: &str = "log-template";

/// Name of the daemon.
pub(crate) const DAEMON: &str = "steady";

pub(crate) struct FaultFixture {
    server: Option<Server>,
    address: String,
    pub(crate) home: Home,
    pub(crate) api: Api,
    pub(crate) proxy: Proxy,
    pub(crate) log_template: LogTemplate,
    /// Reaches the server only through the proxy.
    elsewhere: Home,
}

impl FaultFixture {
    /// Starts everything except the daemon, and creates the template.
    pub(crate) fn new(home: Home, log_template: LogTemplate) -> Self {
        let server = Server::in_home(home, "127.0.0.1:0", &[]);
        let home = server.first_user();
        let api = Api::new(&server, &home);
        let address = server.url.strip_prefix("http://").unwrap().to_owned();
        let proxy = api.runtime.block_on(Proxy::start(address.parse().unwrap())).unwrap();
        let key = home.run(&["provisioner", "keys", "create", "rig"]).success().out;
        let mut elsewhere = Home::new();
        elsewhere.set("CODER_URL", proxy.url());
        elsewhere.set("CODER_PROVISIONER_DAEMON_KEY", key.lines().last().unwrap());
        let first = server.daemon(&elsewhere, DAEMON, &[]);
        log_template.push(&home, TEMPLATE, &[]);
        drop(first);
        Self { server: Some(server), address, home, api, proxy, log_template, elsewhere }
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// Ends the server with SIGKILL.
    pub(crate) fn kill_server(&mut self) {
        let server = self.server.as_mut().unwrap();
        server.process.signal("KILL");
        server.process.end();
    }

    /// Restarts it at the same address.
    pub(crate) fn restart_server(&mut self) {
        let server = self.server.take().unwrap();
        self.server = Some(server.restart(&self.address));
    }

    /// Starts the daemon. All its processes have the same directories.
    pub(crate) fn daemon(&self) -> Process {
        self.server().daemon(&self.elsewhere, DAEMON, &[])
    }

    /// The directory of the daemon's jobs.
    pub(crate) fn cache(&self) -> PathBuf {
        self.elsewhere.path().join(format!("cache-{DAEMON}"))
    }

    /// Creates a workspace of this name.
    pub(crate) fn order(&self, name: &str) -> WorkspaceFiles {
        let place = self.log_template.place(name);
        self.api.create(TEMPLATE, name);
        place
    }

    /// The newest build of a workspace; none while the server is unavailable.
    pub(crate) fn build(&self, name: &str) -> Option<WorkspaceBuild> {
        let found = self.api.run(async |client| client.workspace_by_name("me", name).await);
        found.ok().map(|workspace| workspace.latest_build)
    }

    /// Waits for the end of the newest build.
    #[track_caller]
    pub(crate) fn ended(&self, name: &str) -> WorkspaceBuild {
        let mut last = None;
        let ended = until(WAIT_LIMIT * 2, || {
            last = self.build(name);
            last.clone().filter(|build| build.job.completed_at.is_some())
        });
        ended.unwrap_or_else(|| panic!("the build of {name} does not end: {last:?}"))
    }

    /// The lines that the template printed in a build, as the server stored them.
    pub(crate) fn numbered_lines(&self, build: &WorkspaceBuild) -> Vec<String> {
        let lines = self.outputs(build);
        numbered_lines(lines.iter().map(String::as_str))
    }

    fn outputs(&self, build: &WorkspaceBuild) -> Vec<String> {
        let logs =
            self.api.run(async |client| client.job_logs(JobLogTarget::Build(build.id), 0).await).unwrap();
        logs.into_iter().map(|line| line.output).collect()
    }

    /// Checks that the build succeeded: one job, one owner, one run of Terraform, one result, and each line once and in
    /// order.
    #[track_caller]
    pub(crate) fn succeeded_once(&self, name: &str, place: &WorkspaceFiles) -> WorkspaceBuild {
        let build = self.ended(name);
        assert_eq!((build.job.status, build.job.error.as_str()), (Status::Succeeded, ""), "{name}");
        let all = DaemonFilter { offline: true, ..DaemonFilter::default() };
        let organization = self.api.organization;
        let daemons = self.api.run(async |client| client.daemons(organization, &all).await).unwrap();
        let ours: Vec<_> = daemons.iter().filter(|daemon| daemon.name == DAEMON).collect();
        assert_eq!(ours.len(), 1, "{daemons:?}");
        assert_eq!(build.job.worker_id, Some(ours[0].id));
        let filter = JobFilter { limit: Some(1000), ..JobFilter::default() };
        let jobs = self.api.run(async |client| client.jobs(organization, &filter).await).unwrap();
        assert_eq!(jobs.iter().filter(|job| job.input.workspace_build_id == Some(build.id)).count(), 1);
        let steps: Vec<_> = (1..=self.log_template.steps).collect();
        assert_eq!(place.runs(), steps, "Terraform ran once");
        let outputs = self.outputs(&build);
        let results = outputs.iter().filter(|line| line.contains("Apply complete!")).count();
        assert_eq!(results, 1, "{outputs:#?}");
        self.is_whole(&numbered_lines(outputs.iter().map(String::as_str)));
        build
    }

    /// Checks that no line is missing, doubled or out of order.
    #[track_caller]
    fn is_whole(&self, numbered_lines: &[String]) {
        let expected = self.log_template.expected();
        let same = expected.iter().zip(numbered_lines).take_while(|(wanted, found)| wanted == found).count();
        let next = |lines: &[String]| lines.iter().skip(same).take(3).cloned().collect::<Vec<_>>();
        assert!(
            numbered_lines == expected,
            "{} of {} lines, which differ after {same}: {:?} instead of {:?}",
            numbered_lines.len(),
            expected.len(),
            next(numbered_lines),
            next(&expected)
        );
    }

    /// Deletes the workspace and checks that its resources are removed.
    #[track_caller]
    pub(crate) fn delete(&self, name: &str, place: &WorkspaceFiles) {
        self.home.run(&["delete", name, "-y"]).success();
        assert_eq!(place.things(), [], "resources of {name} are left");
        let gone = self.api.run(async |client| client.workspace_by_name("me", name).await);
        assert!(gone.is_err_and(|error| error.is_not_found()));
    }

    /// Checks the invariants of the database.
    #[track_caller]
    pub(crate) fn check(&self) {
        self.server().home().run(&["server", "check"]).success();
    }
}
