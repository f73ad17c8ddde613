//! `coder quickstart` from an empty directory to a workspace that can be entered, and back.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::processes::WAIT_LIMIT;
use crate::program::{Home, Outcome, finish, until, wait};

/// Whether a process with this id exists.
fn lives(pid: &str) -> bool {
    Path::new("/proc").join(pid).join("cmdline").exists()
}

/// A running quickstart on a directory that is kept.
struct Quickstart {
    child: Child,
    /// Standard output and standard error.
    out: String,
    err: String,
    /// Whoever set the variable that was printed.
    person: Home,
}

impl Quickstart {
    /// Starts it and waits until it has printed everything.
    fn start(home: &Home, data: &Path) -> Self {
        let (out, err) = (home.path().join("out"), home.path().join("err"));
        let data_dir = data.to_str().unwrap();
        let mut command =
            home.command(&["quickstart", "--data-dir", data_dir, "--http-address", "127.0.0.1:0"]);
        command.stdin(Stdio::null());
        command.stdout(std::fs::File::create(&out).unwrap()).stderr(std::fs::File::create(&err).unwrap());
        let mut child = command.spawn().unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        let ready = until(WAIT_LIMIT * 2, || {
            let ended = child.try_wait().unwrap().is_some();
            (ended || read(&out).contains("Press Ctrl-C")).then_some(!ended)
        });
        let (out, err) = (read(&out), read(&err));
        if ready != Some(true) {
            let _ = child.kill();
            let log = |name: &str| std::fs::read_to_string(data.join(name)).unwrap_or_default();
            panic!("{out}\n{err}\n{}\n{}", log("server.log"), log("daemon.log"));
        }
        let line = out.lines().find(|line| line.contains("export CODER_CONFIG_DIR=")).unwrap();
        let mut person = Home::new();
        person.set("CODER_CONFIG_DIR", line.split_once('=').unwrap().1);
        Self { child, out, err, person }
    }

    /// What the app answers to a browser with a session.
    fn app_page(&self) -> String {
        let line = self.out.lines().find(|line| line.starts_with("App ")).unwrap();
        let url = line.rsplit(' ').next().unwrap().strip_prefix("http://").unwrap();
        let (address, path) = url.split_once('/').unwrap();
        let config = self.out.lines().find_map(|line| line.trim().strip_prefix("export CODER_CONFIG_DIR="));
        let token = std::fs::read_to_string(Path::new(config.unwrap()).join("session")).unwrap();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let request = format!(
            "GET /{path} HTTP/1.1\r\nHost: {address}\r\nCookie: coder_session_token={}\r\nConnection: close\r\n\r\n",
            token.trim()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Runs a command in the workspace.
    fn ssh(&self, command: &str) -> Outcome {
        self.person.run(&["ssh", "hello", "--", command])
    }

    fn daemon(&self) -> String {
        let built = self.out.lines().find(|line| line.starts_with("Built by")).unwrap();
        assert!(built.contains("quickstart-daemon"), "{built}");
        built.rsplit(' ').next().unwrap().to_owned()
    }

    fn interrupt(&mut self) {
        let pid = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
        assert!(wait(&mut self.child, WAIT_LIMIT).success());
    }
}

impl Drop for Quickstart {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processes of the workspaces of a quickstart in this directory.
fn workspace_processes(data: &Path) -> Vec<u32> {
    let data = data.canonicalize().unwrap();
    let marker = format!("CODER_PROVISIONER_WORK_DIR={}/cache/workspaces/", data.display());
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let environment = |pid: u32| std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| String::from_utf8_lossy(&environment(*pid)).contains(&marker)).collect()
}

fn no_workspace_process(data: &Path) {
    let ended = until(WAIT_LIMIT, || workspace_processes(data).is_empty().then_some(()));
    assert!(ended.is_some(), "{:?} are still running", workspace_processes(data));
}

#[test]
fn workspace_that_can_be_entered_in_one_command() {
    coder_requirements::require!(Terraform);
    let home = Home::new();
    let data = home.path().join("data");
    for round in 1..=2 {
        let mut quickstart = Quickstart::start(&home, &data);
        // The width of paths and of Terraform's lines cannot be limited.
        let long =
            |line: &&str| line.chars().count() > 80 && !line.contains('/') && !line.starts_with("    ");
        let wide: Vec<_> = quickstart.out.lines().chain(quickstart.err.lines()).filter(long).collect();
        assert!(wide.is_empty(), "wider than a terminal: {wide:#?}");
        let text = &quickstart.out;
        assert!(text.contains("terraform_data.machine") && text.contains("agent main"), "{text}");
        assert!(text.contains(" ssh hello\n") && text.contains("connected"), "{text}");
        let daemon = quickstart.daemon();
        assert!(lives(&daemon) && daemon != quickstart.child.id().to_string());

        // The printed variable is enough to continue.
        assert!(quickstart.person.run(&["list"]).success().out.contains("Running"));
        let outcome = quickstart.ssh("echo hi; echo $GREETING; cat ~/note; echo kept > ~/note").success();
        assert_eq!(outcome.out, if round == 1 { "hi\nhello\n" } else { "hi\nhello\nkept\n" });
        // The start script begins to serve the page in the background.
        let mut page = String::new();
        let served = until(WAIT_LIMIT, || {
            page = quickstart.app_page();
            page.contains("Hello from workspace hello").then_some(())
        });
        assert!(served.is_some(), "{page}");
        // A process that nobody waits for.
        quickstart.ssh("setsid sleep 1000 >/dev/null 2>&1 </dev/null &").success();
        assert!(!workspace_processes(&data).is_empty());
        if round == 1 {
            quickstart.interrupt();
        } else {
            // Killed, without a chance to clean up.
            drop(quickstart);
        }
        assert!(
            until(WAIT_LIMIT, || (!lives(&daemon)).then_some(())).is_some(),
            "the daemon {daemon} is still running"
        );
        no_workspace_process(&data);
    }
}

#[test]
fn local_agent_follows_its_workspace() {
    coder_requirements::require!(Terraform);
    let home = Home::new();
    let data = home.path().join("data");
    let quickstart = Quickstart::start(&home, &data);
    // Neither the agent nor its users get what the daemon knows.
    let password = data.join("password");
    assert!(password.exists());
    let probe = format!(
        "env | grep -c -e CODER_PROVISIONER_DAEMON_KEY -e CODER_SESSION_TOKEN; cat {} {}/coder.sqlite 2>/dev/null | wc -c",
        password.display(),
        data.display()
    );
    let outcome = quickstart.ssh(&probe).success();
    let isolated = std::fs::read_to_string(data.join("daemon.log")).unwrap().contains("isolation=full");
    assert!(outcome.out.starts_with("0\n"), "{}", outcome.out);
    if isolated {
        assert_eq!(outcome.out, "0\n0\n");
    }
    assert!(isolated || !coder_requirements::has(coder_requirements::Requirement::Namespaces));

    quickstart.ssh("setsid sleep 1000 >/dev/null 2>&1 </dev/null &").success();
    quickstart.person.run(&["stop", "hello", "-y"]).success();
    no_workspace_process(&data);
    let refusal = quickstart.person.run(&["ssh", "--disable-autostart", "hello", "--", "true"]);
    assert!(refusal.err.contains("is stopped"), "{}", refusal.err);
    quickstart.person.run(&["start", "hello", "-y"]).success();
    assert_eq!(quickstart.ssh("echo hi").success().out, "hi\n");

    // An agent that is killed is started again.
    let before = workspace_processes(&data);
    for pid in &before {
        let _ = std::process::Command::new("kill").args(["-s", "KILL", &pid.to_string()]).status().unwrap();
    }
    let again = until(WAIT_LIMIT, || {
        let now = workspace_processes(&data);
        (!now.is_empty() && now.iter().all(|pid| !before.contains(pid))).then_some(())
    });
    assert!(again.is_some(), "{}", std::fs::read_to_string(data.join("daemon.log")).unwrap());
    assert_eq!(quickstart.ssh("echo hi").success().out, "hi\n");

    // Plain OpenSSH, with the hosts of config-ssh.
    if coder_requirements::has(coder_requirements::Requirement::OpenSsh) {
        let config = home.path().join("ssh_config");
        let config = config.to_str().unwrap();
        quickstart.person.run(&["config-ssh", "--ssh-config-file", config, "--yes"]).success();
        let mut ssh = std::process::Command::new("ssh");
        ssh.args(["-F", config, "hello.coder", "echo hi"]);
        assert_eq!(finish(ssh, b"").success().out, "hi\n");
    }

    let files = data.join("cache/workspaces");
    assert_eq!(std::fs::read_dir(&files).unwrap().count(), 1);
    quickstart.person.run(&["stop", "hello", "-y"]).success();
    quickstart.person.run(&["delete", "hello", "-y"]).success();
    no_workspace_process(&data);
    assert_eq!(std::fs::read_dir(&files).unwrap().count(), 0, "the home of a deleted workspace is kept");
}

/// An ordinary daemon has no type of resource that leaves a process behind.
#[test]
fn other_daemons_start_no_local_agent() {
    coder_requirements::require!(Terraform);
    let home = Home::new();
    let quickstart = Quickstart::start(&home, &home.path().join("data"));
    let key = ["provisioner", "keys", "create", "other", "--tag", "pool=other"];
    let key = quickstart.person.run(&key).success().out.trim().lines().last().unwrap().to_owned();
    let url = quickstart.out.lines().find(|line| line.starts_with("Server")).unwrap();
    let url = url.rsplit(' ').next().unwrap().to_owned();
    let mut other = Home::new();
    other.set("CODER_URL", url).set("CODER_PROVISIONER_DAEMON_KEY", key);
    let mut daemon =
        other.command(&["provisioner", "start", "--name", "other", "--once", "--log-human", "log"]);
    let mut daemon = daemon.stdin(Stdio::null()).spawn().unwrap();
    let template = quickstart.person.path().join("template");
    let target = template.to_str().unwrap();
    quickstart.person.run(&["templates", "init", "--id", "quickstart", target]).success();
    let push = ["templates", "push", "other", "-d", target, "--provisioner-tag", "pool=other", "-y"];
    let outcome = quickstart.person.run(&push);
    let _ = daemon.kill();
    let _ = daemon.wait();
    assert!(!outcome.status.success() && outcome.err.contains("coder_local_agent"), "{}", outcome.err);
}

#[test]
fn without_terraform_it_says_what_to_do() {
    let mut home = Home::new();
    home.set("PATH", "/nonexistent");
    let found_none = "neither terraform nor tofu was found in PATH";
    let outcome = home.run(&["quickstart", "--terraform-install=false"]).refused(found_none);
    assert!(outcome.err.contains("--terraform-path"), "{}", outcome.err);
    // Otherwise it installs one like every daemon, from the mirror, whose password is not shown.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mirror = format!("--terraform-mirror=http://me:geheim@{closed}/");
    let outcome = home.run(&["quickstart", &mirror]).refused(found_none);
    assert!(outcome.err.contains(&format!("{closed}/index.json")), "{}", outcome.err);
    assert!(!outcome.err.contains("geheim"), "{}", outcome.err);
}

/// Processes with the text in their arguments.
fn processes(marker: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let arguments = |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| String::from_utf8_lossy(&arguments(*pid)).contains(marker)).collect()
}

#[test]
fn a_killed_quickstart_leaves_nothing_behind() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut home = Home::new();
    let temporary = home.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    home.set("TMPDIR", temporary.display().to_string());
    // A Terraform that never ends. Its arguments identify it.
    let (terraform, marker) = (home.path().join("terraform"), format!("{}/endless", home.path().display()));
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = version ]; then echo '{{\"terraform_version\":\"1.9.8\"}}'; exit; fi\n\
         exec sh -c 'while :; do sleep 1; done' '{marker}'\n"
    );
    std::fs::write(&terraform, script).unwrap();
    std::fs::set_permissions(&terraform, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = format!("--terraform-path={}", terraform.display());
    let mut command = home.command(&["quickstart", &program, "--http-address", "127.0.0.1:0"]);
    let err = home.path().join("err");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&err).unwrap());
    let mut child = command.spawn().unwrap();
    let works = until(WAIT_LIMIT, || {
        let ended = child.try_wait().unwrap().is_some();
        (ended || !processes(&marker).is_empty()).then_some(!ended)
    });
    let said = std::fs::read_to_string(&err).unwrap();
    let of_daemon = format!("{}/coder-quickstart-", temporary.display());
    let daemons = processes(&of_daemon);
    // No process may outlive this test, even if it fails.
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((works, daemons.len()), (Some(true), 1), "{said}");
    let left =
        until(WAIT_LIMIT, || (processes(&of_daemon).len() + processes(&marker).len() == 0).then_some(()));
    assert!(left.is_some(), "{:?} and {:?} live on", processes(&of_daemon), processes(&marker));

    let dirs = || {
        let entries = std::fs::read_dir(&temporary).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.display().to_string().starts_with(&of_daemon)).collect::<Vec<_>>()
    };
    let [dir] = &dirs()[..] else { panic!("{:?}", dirs()) };
    // The next start fails too, and still removes the directory.
    let outcome = home.run(&["quickstart", "--terraform-path=/nowhere", "--terraform-install=false"]);
    let outcome = outcome.refused("no such file");
    assert!(outcome.err.contains(&format!("Removed {}", dir.display())), "{}", outcome.err);
    assert!(!dir.exists());
    assert_eq!(dirs().len(), 0, "a failed start leaves no files");
}
