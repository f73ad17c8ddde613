//! Our agent as a process, our server, and everything that enters a workspace: `coder ssh`, OpenSSH with `scp` and `sftp`,
//! and `coder port-forward`.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use coder_api::builds::{BuildReason, Transition};
use coder_api::resources::AgentStatus;
use coder_api::templates::CreateTemplateRequest;
use coder_requirements::require;
use coder_server::Config;
use coder_store::testing;
use coder_testkit::daemon::FakeDaemon;
use coder_testkit::server::{TestServer, settings};
use coder_testkit::tailnet::new_workspace_of;
use coder_testkit::wait::poll_until;

use crate::connections::Forward;
use crate::program::{Home, Outcome, finish};

/// A server with a workspace `dev` whose agent is a process, and a home of its owner.
struct Site {
    runtime: tokio::runtime::Runtime,
    server: Option<TestServer>,
    agent: Child,
    home: Home,
    _workspace: Home,
}

impl Site {
    fn start() -> Self {
        Self::start_with(settings(), CreateTemplateRequest::default())
    }

    /// A server with these settings, and a template with those.
    fn start_with(config: Config, template: CreateTemplateRequest) -> Self {
        Self::start_in(config, template, |_| {})
    }

    /// The same, with more variables of the workspace.
    fn start_in(
        config: Config,
        template: CreateTemplateRequest,
        set_variables: impl FnOnce(&mut Home),
    ) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (server, agent, token) = runtime.block_on(async {
            let server = TestServer::start_with(config, testing::sqlite()).await.unwrap();
            let made = new_workspace_of(&server, &server.owner, "dev", template).await;
            let (_, agent, token) = made.unwrap();
            (server, agent, token)
        });
        let mut inside = Home::new();
        inside.set("CODER_AGENT_URL", server.url()).set("CODER_AGENT_TOKEN", token.expose().to_owned());
        set_variables(&mut inside);
        let mut command = inside.command(&["agent", "--no-reap"]);
        let log = std::fs::File::create(inside.path().join("log")).unwrap();
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let client = server.owner.clone();
        runtime.block_on(poll_until("the agent is connected", async move || {
            let status = client.agent(agent).await.unwrap().status;
            (status == AgentStatus::Connected).then_some(())
        }));
        let mut home = Home::new();
        home.set("CODER_URL", server.url())
            .set("CODER_SESSION_TOKEN", server.owner.token().unwrap().expose().to_owned());
        let config = home.home().join("ssh_config").display().to_string();
        home.run(&["config-ssh", "--ssh-config-file", &config, "--yes"]).success();
        Self { runtime, server: Some(server), agent: process, home, _workspace: inside }
    }

    fn openssh(&self, program: &str, args: &[&str], input: &[u8]) -> Outcome {
        let mut command = self.with_session(program);
        command.arg("-F").arg(self.home.home().join("ssh_config")).args(args);
        finish(command, input)
    }

    /// A program that starts ours with the session of the owner.
    fn with_session(&self, program: &str) -> Command {
        let server = self.server.as_ref().unwrap();
        let mut command = Command::new(program);
        command.env("CODER_URL", server.url()).env("HOME", self.home.home());
        command.env("CODER_SESSION_TOKEN", server.owner.token().unwrap().expose());
        command
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.stop()).unwrap();
        }
    }
}

#[test]
fn workspace_is_entered_with_coder_ssh_and_openssh() {
    require!(OpenSsh);
    let site = Site::start();
    let outcome = site.home.answer(&["ssh", "dev", "--", "cat; echo error >&2; exit 7"], "typed");
    assert_eq!((outcome.status.code(), outcome.out.as_str()), (Some(7), "typed"), "{}", outcome.err);
    assert_eq!(outcome.err, "error\n");
    let outcome = site.openssh("ssh", &["dev.coder", "cat; exit 8"], b"typed");
    assert_eq!((outcome.status.code(), outcome.out.as_str()), (Some(8), "typed"), "{}", outcome.err);
    let (from, to) = (site.home.path().join("from"), site.home.path().join("to"));
    let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    std::fs::write(&from, &content).unwrap();
    let target = format!("coder.dev:{}", to.display());
    site.openssh("scp", &[from.to_str().unwrap(), &target], b"").success();
    assert!(std::fs::read(&to).unwrap() == content);
    let back = site.home.path().join("back");
    let batch = format!("get {} {}\n", to.display(), back.display());
    site.openssh("sftp", &["-b", "-", "dev.coder"], batch.as_bytes()).success();
    assert!(std::fs::read(&back).unwrap() == content);
}

/// A directory of GnuPG whose agent ends with it.
struct GnuPg(tempfile::TempDir);

impl GnuPg {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    fn run(&self, program: &str, arguments: &[&str], input: &[u8]) -> Outcome {
        let mut command = Command::new(program);
        command.args(arguments).env("GNUPGHOME", self.path());
        finish(command, input)
    }
}

impl Drop for GnuPg {
    fn drop(&mut self) {
        self.run("gpgconf", &["--kill", "all"], b"");
    }
}

/// `rsync` runs itself in the workspace over the channel of a command, in both directions at once.
#[test]
fn rsync_carries_a_tree_both_ways() {
    require!(OpenSsh);
    require!(Rsync);
    let site = Site::start();
    let (from, there, back) =
        (site.home.path().join("from"), site.home.path().join("there"), site.home.path().join("back"));
    std::fs::create_dir_all(from.join("deep")).unwrap();
    let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    std::fs::write(from.join("deep/large"), &content).unwrap();
    std::fs::write(from.join("small"), "small").unwrap();
    let shell = format!("ssh -F {}", site.home.home().join("ssh_config").display());
    let rsync = |from: &str, to: &str| {
        let mut command = site.with_session("rsync");
        command.args(["--archive", "--rsh", &shell, from, to]);
        finish(command, b"").success();
    };
    rsync(&format!("{}/", from.display()), &format!("dev.coder:{}", there.display()));
    rsync(&format!("dev.coder:{}/", there.display()), &back.display().to_string());
    assert!(std::fs::read(back.join("deep/large")).unwrap() == content);
    assert_eq!(std::fs::read_to_string(back.join("small")).unwrap(), "small");
}

#[test]
fn workspace_signs_with_the_keys_of_the_persons_gnupg_agent() {
    require!(GnuPg);
    let (person, workspace) = (GnuPg::new(), GnuPg::new());
    let mut site = Site::start_in(settings(), CreateTemplateRequest::default(), |inside| {
        inside.set("GNUPGHOME", workspace.path());
    });
    site.home.set("GNUPGHOME", person.path());
    let ssh = |command: &str| site.home.run(&["ssh", "-G", "dev", "--", command]);
    assert!(ssh("true").err.contains("gpgconf --launch gpg-agent"));
    person.run("gpgconf", &["--launch", "gpg-agent"], b"").success();
    assert!(ssh("true").err.contains("needs a key"));
    let key = ["--batch", "--passphrase", "", "--quick-generate-key", "ann@example.com"];
    person.run("gpg", &key, b"").success();
    for _ in 0..2 {
        let signed =
            ssh("echo it is me | gpg --batch --local-user ann@example.com --clearsign").success().out;
        let verified = person.run("gpg", &["--batch", "--verify"], signed.as_bytes()).success();
        assert!(verified.err.contains("Good signature"), "{}", verified.err);
    }
    // The secret key has stayed, and nothing signs without the session.
    let left = std::fs::read_dir(workspace.0.path().join("private-keys-v1.d"));
    assert_eq!(left.map_or(0, Iterator::count), 0);
    let alone = site.home.run(&["ssh", "dev", "--", "echo x | gpg --batch --no-autostart --clearsign"]);
    assert!(!alone.status.success(), "{}", alone.out);
    let refused = site.home.run(&["ssh", "-G", "--stdio", "dev"]);
    assert!(refused.err.contains("--stdio"), "{}", refused.err);
}

#[test]
fn web_page_of_a_workspace_is_forwarded() {
    let site = Site::start();
    let page = TcpListener::bind("127.0.0.1:0").unwrap();
    let web = page.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in page.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
        }
    });
    // A free port of this machine, taken for a moment.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let _forward = Forward::start(&site.home, &["--tcp", &format!("127.0.0.1:{free}:{web}")]);
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", free)).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("hi"), "{answer}");
}

/// Sessions come and go for weeks in an agent.
#[test]
fn sessions_leave_no_memory_behind() {
    const SESSIONS: usize = 20;
    const MORE_KIB: u64 = 16 << 10;
    let site = Site::start();
    let used = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", site.agent.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let round = || {
        let mut sessions: Vec<_> = (0..SESSIONS)
            .map(|_| {
                let mut command = site.home.command(&["ssh", "dev", "--", "cat"]);
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
                command.spawn().unwrap()
            })
            .collect();
        for session in &mut sessions {
            session.stdin.as_mut().unwrap().write_all(b"x").unwrap();
            session.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        }
        for mut session in sessions {
            drop(session.stdin.take());
            assert!(session.wait().unwrap().success());
        }
    };
    let before = used();
    round();
    round();
    // Freed memory is returned twice a minute.
    let returned =
        crate::program::until(Duration::from_secs(120), || (used() < before + MORE_KIB).then_some(()));
    assert!(returned.is_some(), "{before} KiB before, {} KiB after", used());
}

/// The agent's reports extend the deadline while somebody is in the workspace. Then it stops by itself.
#[test]
fn an_open_session_keeps_a_workspace_from_stopping() {
    let mut config = settings();
    config.schedules.agent_stats_every = Duration::from_millis(500);
    let template = CreateTemplateRequest {
        default_ttl_ms: Some(12_000),
        activity_bump_ms: Some(4_000),
        ..CreateTemplateRequest::default()
    };
    let site = Site::start_with(config, template);
    let server = site.server.as_ref().unwrap();
    let client = server.owner.clone();
    let latest = async || client.workspace_by_name("me", "dev").await.unwrap().latest_build;
    let daemon = site.runtime.block_on(FakeDaemon::join_with_session(&client, "stops")).unwrap();
    let first = site.runtime.block_on(latest()).deadline.unwrap();

    let mut command = site.home.command(&["ssh", "dev", "--", "cat"]);
    let mut session =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut input, mut output) = (session.stdin.take().unwrap(), session.stdout.take().unwrap());
    let mut echo = |text: &[u8]| {
        input.write_all(text).unwrap();
        let mut answer = vec![0; text.len()];
        output.read_exact(&mut answer).unwrap();
        assert_eq!(answer, text);
    };
    echo(b"hello");
    let moved = async || {
        let build = latest().await;
        assert_eq!(build.transition, Transition::Start, "the workspace was stopped under its user");
        build.deadline.filter(|deadline| deadline.duration_since(first).as_secs() >= 8)
    };
    site.runtime.block_on(poll_until("the deadline has moved twice", moved));
    echo(b"still here");

    drop(input);
    assert!(session.wait().unwrap().success());
    site.runtime.block_on(daemon.acquire()).unwrap();
    let build = site.runtime.block_on(latest());
    assert_eq!((build.transition, build.reason), (Transition::Stop, BuildReason::Autostop));
    site.runtime.block_on(daemon.leave());
}
