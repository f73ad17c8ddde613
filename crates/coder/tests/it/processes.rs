//! Real servers and daemons as processes, each with its own directories.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use coder_requirements::Requirement;

use crate::program::{Home, until, wait};

pub(crate) const USER: &str = "admin";
pub(crate) const EMAIL: &str = "admin@example.com";
pub(crate) const PASSWORD: &str = "Correct-horse-battery-7";

/// How long starts and stops may take on a busy machine.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Whether Terraform is installed; otherwise the test is skipped.
#[track_caller]
pub(crate) fn has_terraform() -> bool {
    coder_requirements::has(Requirement::Terraform)
}

/// A process with a log, killed at the end of its test.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn start(home: &Home, args: &[&str], log: &str) -> Self {
        Self::spawn(home, home.command(args), log)
    }

    pub(crate) fn spawn(home: &Home, mut command: Command, log: &str) -> Self {
        let log = home.path().join(log);
        let file = File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        Self { child: command.spawn().unwrap(), log }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until the log contains these words.
    #[track_caller]
    pub(crate) fn wait_for_log(&mut self, words: &str) {
        let found = until(WAIT_LIMIT, || {
            let log = self.log();
            if log.contains(words) {
                return Some(true);
            }
            // After its end, the log is complete.
            let has_ended = self.child.try_wait().unwrap().is_some();
            has_ended.then(|| self.log().contains(words))
        });
        assert_eq!(found, Some(true), "{words:?} is not in the log:\n{}", self.log());
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Sends a signal repeatedly until the process has ended, because a second signal counts only some time after the
    /// first.
    #[track_caller]
    pub(crate) fn signal_again(&mut self, name: &str) -> ExitStatus {
        let ended = until(WAIT_LIMIT, || {
            self.signal(name);
            self.child.try_wait().unwrap()
        });
        ended.unwrap_or_else(|| panic!("it goes on: {}", self.log()))
    }

    #[track_caller]
    pub(crate) fn end(&mut self) -> ExitStatus {
        wait(&mut self.child, WAIT_LIMIT)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Its home may already be deleted.
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            eprintln!("--- {}\n{log}", self.log.display());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server on a free port, with an empty database and no built-in daemons.
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) url: String,
    home: Home,
}

impl Server {
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::in_home(Home::new(), "127.0.0.1:0", flags)
    }

    pub(crate) fn in_home(home: Home, address: &str, flags: &[&str]) -> Self {
        Self::launch(home, address, flags, Home::command)
    }

    /// The longest allowed file in blocks of 512 bytes.
    pub(crate) fn limited(blocks: u32) -> Self {
        Self::launch(Home::new(), "127.0.0.1:0", &[], |home, args| home.limited(blocks, args))
    }

    fn launch(
        home: Home,
        address: &str,
        flags: &[&str],
        command: impl FnOnce(&Home, &[&str]) -> Command,
    ) -> Self {
        let http = format!("--http-address={address}");
        let mut args = vec!["server", &http, "--dangerous-disable-rate-limits"];
        if !flags.iter().any(|flag| flag.starts_with("--provisioner-daemons")) {
            args.push("--provisioner-daemons=0");
        }
        args.extend(flags);
        let mut process = Process::spawn(&home, command(&home, &args), "server.log");
        process.wait_for_log("coderd: listening on http");
        let log = process.log();
        let line = log.lines().find(|line| line.contains("listening on http")).unwrap();
        let url = line.rsplit(' ').next().unwrap().to_owned();
        Self { process, url, home }
    }

    /// Over HTTPS only.
    pub(crate) fn secure(home: Home, flags: &[&str]) -> Self {
        Self::in_home(home, "", flags)
    }

    /// Restarts on the same database and address, after the process has ended.
    pub(crate) fn restart(self, address: &str) -> Self {
        self.restart_with(address, &[])
    }

    pub(crate) fn restart_with(self, address: &str, flags: &[&str]) -> Self {
        let Self { process, home, .. } = self;
        drop(process);
        Self::in_home(home, address, flags)
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// Creates the first user and returns the signed-in home.
    pub(crate) fn first_user(&self) -> Home {
        self.first_user_from(Home::new())
    }

    /// The same for a home with more variables.
    pub(crate) fn first_user_from(&self, home: Home) -> Home {
        sign_up(home, &self.url)
    }

    /// Starts a daemon that has joined.
    pub(crate) fn daemon(&self, home: &Home, name: &str, flags: &[&str]) -> Process {
        let mut process = self.daemon_that_tries(home, name, flags);
        process.wait_for_log("provisioner: successfully connected to coderd");
        process
    }

    /// Starts a daemon without waiting.
    pub(crate) fn daemon_that_tries(&self, home: &Home, name: &str, flags: &[&str]) -> Process {
        let cache = home.path().join(format!("cache-{name}"));
        let mut args = vec!["provisioner", "start", "--name", name];
        if !flags.contains(&"--cache-dir") {
            args.extend(["--cache-dir", cache.to_str().unwrap()]);
        }
        args.extend(flags);
        Process::start(home, &args, &format!("{name}.log"))
    }
}

/// Makes the first user of a server.
pub(crate) fn sign_up(home: Home, url: &str) -> Home {
    let args = [
        "login",
        url,
        "--first-user-username",
        USER,
        "--first-user-email",
        EMAIL,
        "--first-user-password",
        PASSWORD,
        "--first-user-trial=false",
    ];
    home.run(&args).success();
    home
}
