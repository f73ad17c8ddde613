//! The commands that enter a workspace, as processes, through a real server: `ssh`, plain OpenSSH with `config-ssh`,
//! `port-forward`, `ping` and `netcheck`.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use coder_requirements::has;
use coder_testkit::server::TestServer;
use coder_testkit::tailnet::workspace_with_agent;

use crate::program::{Home, Outcome, binary, finish};
use crate::stub_agent::{HANG_UP, StubAgent};

const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// A server with a workspace `dev`, whose agent is connected, and a home of its owner.
struct Site {
    runtime: tokio::runtime::Runtime,
    server: Option<TestServer>,
    agent: Option<StubAgent>,
    home: Home,
}

impl Site {
    fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (server, agent) = runtime.block_on(async {
            let server = TestServer::start().await.unwrap();
            let (_, agent) = workspace_with_agent(&server, &server.owner, "dev").await.unwrap();
            let stub = StubAgent::start(&server, agent);
            (server, stub)
        });
        let mut home = Home::new();
        home.set("CODER_URL", server.url())
            .set("CODER_SESSION_TOKEN", server.owner.token().unwrap().expose().to_owned());
        Self { runtime, server: Some(server), agent: Some(agent), home }
    }

    fn ssh(&self, args: &[&str], input: &str) -> Outcome {
        self.home.answer(&[&["ssh"], args].concat(), input)
    }

    /// OpenSSH and its friends with the configuration that `coder config-ssh` wrote.
    fn openssh(&self, program: &str, args: &[&str], input: &[u8]) -> Outcome {
        let config = self.home.home().join("ssh_config");
        if !config.exists() {
            let file = config.display().to_string();
            self.home.run(&["config-ssh", "--ssh-config-file", &file, "--yes"]).success();
        }
        let mut command = Command::new(program);
        command.arg("-F").arg(config).args(args);
        command.env("CODER_URL", self.server().url()).env("HOME", self.home.home());
        command.env("CODER_SESSION_TOKEN", self.server().owner.token().unwrap().expose());
        finish(command, input)
    }

    fn server(&self) -> &TestServer {
        self.server.as_ref().unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _inside = self.runtime.enter();
        drop(self.agent.take());
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.stop()).unwrap();
        }
    }
}

/// `coder port-forward dev`, which is ready, until it is dropped.
pub(crate) struct Forward {
    child: Child,
    /// What it said until it was ready.
    said: String,
}

impl Forward {
    pub(crate) fn start(home: &Home, args: &[&str]) -> Self {
        let mut command = home.command(&[&["port-forward", "dev"], args].concat());
        command.stderr(Stdio::piped()).stdin(Stdio::null());
        let mut forward = Self { child: command.spawn().unwrap(), said: String::new() };
        let lines = std::io::BufReader::new(forward.child.stderr.take().unwrap()).lines();
        let (sender, said) = mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        while !forward.said.contains("Ready!") {
            let line = said.recv_timeout(WAIT_LIMIT);
            let line = line.unwrap_or_else(|_| panic!("it is not ready: {}", forward.said));
            forward.said.push_str(&line);
            forward.said.push('\n');
        }
        forward
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn ssh_runs_a_command_with_its_input_output_and_exit_code() {
    let site = Site::start();
    let outcome = site.ssh(&["dev", "--", "cat; echo error >&2"], "typed").success();
    assert_eq!((outcome.out.as_str(), outcome.err.as_str()), ("typed", "error\n"));
    assert_eq!(site.ssh(&["dev.main", "exit", "42"], "").status.code(), Some(42));
    let outcome = site.ssh(&["admin/dev", "-e", "GREETING=moin", "--", "echo $GREETING"], "").success();
    assert_eq!(outcome.out, "moin\n");
    // More than any buffer on the way.
    let long = site.ssh(&["dev", "--", "head -c 3000000 /dev/zero | tr '\\0' x"], "").success();
    assert_eq!(long.out.len(), 3_000_000);
    site.ssh(&["dev.other"], "").refused("no agent \"other\": it has main");
    site.ssh(&["nothing"], "").refused("there is no workspace");
    site.ssh(&["dev", "--stdio", "-R", "1:localhost:1"], "").refused("--stdio");
}

#[test]
fn lost_connection_ends_ssh_with_255() {
    let site = Site::start();
    let outcome = site.ssh(&["dev", HANG_UP], "");
    assert_eq!(outcome.status.code(), Some(255), "{}", outcome.err);
    assert!(outcome.err.contains("the connection to the workspace was lost"), "{}", outcome.err);
}

#[test]
fn plain_openssh_works_through_config_ssh() {
    if !has(coder_requirements::Requirement::OpenSsh) {
        return;
    }
    let site = Site::start();
    for host in ["coder.dev", "dev.coder"] {
        let outcome = site.openssh("ssh", &[host, "cat; exit 7"], b"typed");
        assert_eq!((outcome.status.code(), outcome.out.as_str()), (Some(7), "typed"), "{}", outcome.err);
        assert_eq!(outcome.err, "");
    }
    let (from, to) = (site.home.path().join("from"), site.home.path().join("to"));
    std::fs::write(&from, vec![7; 1 << 20]).unwrap();
    // The old protocol: the stub has no SFTP.
    let target = format!("coder.dev:{}", to.display());
    site.openssh("scp", &["-O", from.to_str().unwrap(), &target], b"").success();
    assert_eq!(std::fs::read(to).unwrap(), vec![7; 1 << 20]);
}

#[test]
fn config_ssh_asks_and_keeps_other_text() {
    let site = Site::start();
    let config = site.home.home().join("config");
    std::fs::write(&config, "Host mine\n\tUser me\n").unwrap();
    let file = config.display().to_string();
    let run = |args: &[&str]| site.home.run(&[&["config-ssh", "--ssh-config-file", &file], args].concat());
    let dry = run(&["--dry-run"]).success();
    assert!(dry.out.contains("+Host coder.*") && dry.out.contains("ssh --stdio"), "{}", dry.out);
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "Host mine\n\tUser me\n", "nothing was changed");
    run(&[]).refused("pass --yes");
    run(&["--yes", "-o", "ForwardAgent=yes"]).success();
    let text = std::fs::read_to_string(&config).unwrap();
    assert!(text.starts_with("Host mine\n\tUser me\n\n# ------------START-CODER"), "{text}");
    assert!(
        text.contains("# :ssh-option=ForwardAgent=yes\n") && text.contains("\tForwardAgent yes\n"),
        "{text}"
    );
    let again = run(&["--use-previous-options"]).success();
    assert!(again.err.contains("up to date"), "{}", again.err);
    run(&["--yes"]).success();
    assert!(!std::fs::read_to_string(&config).unwrap().contains("ForwardAgent"));
}

#[test]
fn port_forward_serves_tcp_and_udp_ports_of_the_workspace() {
    let site = Site::start();
    let page = TcpListener::bind("127.0.0.1:0").unwrap();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (web, udp) = (page.local_addr().unwrap().port(), datagrams.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for stream in page.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
        }
    });
    std::thread::spawn(move || {
        let mut text = [0; 64];
        while let Ok((count, from)) = datagrams.recv_from(&mut text) {
            let _ = datagrams.send_to(&text[..count].to_ascii_uppercase(), from);
        }
    });
    // Free ports of this machine, taken for a moment.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let free_udp = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (tcp, udp) = (format!("127.0.0.1:{free}:{web}"), format!("127.0.0.1:{free_udp}:{udp}"));
    let forward = Forward::start(&site.home, &["--tcp", &tcp, "--udp", &udp]);
    let text = &forward.said;
    assert!(
        text.contains(&format!("Forwarding 'tcp://127.0.0.1:{free}' locally to 'tcp://127.0.0.1:{web}'")),
        "{text}"
    );
    for _ in 0..3 {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", free)).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("hi"), "{answer}");
    }
    let asking = UdpSocket::bind("127.0.0.1:0").unwrap();
    asking.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    asking.send_to(b"moin", ("127.0.0.1", free_udp)).unwrap();
    let mut answer = [0; 64];
    let count = asking.recv(&mut answer).unwrap();
    assert_eq!(&answer[..count], b"MOIN");
    drop(forward);
    site.home.run(&["port-forward", "dev"]).refused("nothing to forward");
    site.home.run(&["port-forward", "dev", "--tcp", "1-2:3"]).refused("the local range has 2 ports");
}

#[test]
fn ping_and_netcheck_measure_the_relay() {
    let site = Site::start();
    let outcome = site.home.run(&["ping", "dev", "-n", "2", "--wait", "1ms"]).success();
    let pongs = outcome
        .out
        .lines()
        .filter(|line| line.starts_with("pong from dev proxied via DERP(Coder Embedded Relay) in "));
    assert_eq!(pongs.count(), 2, "{}", outcome.out);
    let outcome = site.home.run(&["netcheck"]).success();
    let report: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
    assert_eq!(report["derp"]["regions"]["999"]["healthy"], true, "{report}");
}

#[test]
fn editors_read_the_file_about_the_connection() {
    let site = Site::start();
    let directory = site.home.path().join("info");
    let path = directory.display().to_string();
    let wait = "while ! ls \"$INFO\"/*.json >/dev/null 2>&1; do sleep 0.05; done";
    let variable = format!("INFO={path}");
    site.ssh(&["dev", "--network-info-dir", &path, "-e", &variable, "--", wait], "").success();
    let file = std::fs::read_dir(directory).unwrap().next().unwrap().unwrap().path();
    assert_eq!(file.file_stem().unwrap().to_str().unwrap(), std::process::id().to_string());
    let info: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!((&info["p2p"], &info["preferred_derp"]), (&false.into(), &"Coder Embedded Relay".into()));
}

#[test]
fn ssh_accepts_what_editors_pass() {
    let mut site = Site::start();
    site.home.set("CODER_DISABLE_DIRECT_CONNECTIONS", "true").set("CODER_DISABLE_NETWORK_TELEMETRY", "true");
    let flags = ["--disable-direct-connections", "--disable-network-telemetry", "--use-keyring=false"];
    let more = ["--usage-app=vscode", "--disable-autostart", "--force-new-tunnel", "dev", "--", "echo ok"];
    assert_eq!(site.ssh(&[&flags[..], &more].concat(), "").success().out, "ok\n");
}

#[test]
fn ssh_writes_its_debug_log_into_a_directory() {
    let site = Site::start();
    let directory = site.home.path().join("logs");
    let path = directory.display().to_string();
    let outcome = site.ssh(&["dev", "--log-dir", &path, "--", "echo ok"], "").success();
    assert_eq!((outcome.out.as_str(), outcome.err.as_str()), ("ok\n", ""));
    let files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap()).collect();
    let name = files[0].file_name().into_string().unwrap();
    assert!(files.len() == 1 && name.starts_with("coder-ssh-") && name.ends_with(".log"), "{files:?}");
    let log = std::fs::read_to_string(files[0].path()).unwrap();
    assert!(log.contains("[debu]"), "{log}");
    let token = site.server().owner.token().unwrap().expose().to_owned();
    assert!(!log.contains(&token), "the log has no secret");
}

#[test]
fn no_open_prints_the_address_instead() {
    let mut site = Site::start();
    let programs = site.home.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink("/bin/true", programs.join("xdg-open")).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    site.home.set("PATH", path);
    let opened = site.home.run(&["open", "vscode", "dev"]).success();
    assert!(opened.out.is_empty() && opened.err.contains("Opened vscode://"), "{}", opened.err);
    let printed = site.home.run(&["open", "vscode", "dev", "--no-open"]).success();
    assert!(printed.out.starts_with("vscode://") && !printed.err.contains("Opened"), "{}", printed.err);
}

/// The program is found by config-ssh, so that OpenSSH runs the one under test.
#[test]
fn config_ssh_names_this_program() {
    let site = Site::start();
    let dry =
        site.home.run(&["config-ssh", "--dry-run", "--ssh-config-file", "/nonexistent/config"]).success();
    let real = std::fs::canonicalize(binary()).unwrap();
    assert!(dry.out.contains(&real.display().to_string()), "{}", dry.out);
}
