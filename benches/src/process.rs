//! The processes under test: a server, daemons and CLI calls, and what the kernel says about them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use coder_store::Location;
use coder_store::testing::{self, TestDatabase};
use tempfile::TempDir;

use crate::Setup;

/// What Linux reports CPU times in, on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;
/// How long anything may take.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// A child process that is ended with this value.
pub(crate) struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // A process that has ended already needs no signal.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server with its own directory, and the session of its first user.
pub(crate) struct Deployment {
    pub folder: TempDir,
    pub address: SocketAddr,
    pub server: Running,
    coder: PathBuf,
}

/// Where a server keeps its data.
pub(crate) enum Database {
    Sqlite,
    /// Its schema is dropped with it.
    Postgres(TestDatabase),
}

impl Database {
    /// An empty one, when there is a Postgres.
    pub(crate) fn on_postgres(setup: &Setup) -> Result<Option<Self>> {
        if !setup.has_postgres {
            eprintln!("CODER_TEST_PG_URL names no Postgres: its rows are left out");
            return Ok(None);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let database = runtime.block_on(testing::postgres()).context("make a database on Postgres")?;
        Ok(Some(Self::Postgres(database)))
    }
}

impl Deployment {
    /// Starts a server in a fresh directory and makes its first user.
    pub(crate) fn start(setup: &Setup, database: &Database, arguments: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let (server, address, _) = server(&setup.coder, folder.path(), database, arguments)?;
        let deployment = Self { folder, address, server, coder: setup.coder.clone() };
        deployment.cli(&[
            "login",
            &deployment.url(),
            "--first-user-username=admin",
            "--first-user-email=admin@example.com",
            "--first-user-password=Measured-By-Hand-42",
            "--first-user-trial=false",
        ])?;
        Ok(deployment)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The first user's token.
    pub(crate) fn token(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.folder.path().join("config/session"))?)
    }

    /// Runs one command as the first user and returns its standard output.
    pub(crate) fn cli(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).stdin(Stdio::null()).output()?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!("coder {} ended with {}: {stderr}", arguments.join(" "), output.status);
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// A command with this deployment's session.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.coder);
        command.args(arguments);
        isolate(&mut command, self.folder.path());
        command
    }

    /// Pushes a template that consists of one file.
    pub(crate) fn push(&self, name: &str, template: &str) -> Result<()> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("main.tf"), template)?;
        self.cli(&["templates", "push", name, "-d", &folder.path().to_string_lossy(), "-y"]).map(|_| ())
    }

    /// Starts an external daemon and waits until the server lists it.
    pub(crate) fn daemon(
        &self,
        name: &str,
        arguments: &[&str],
        environment: &[(&str, String)],
    ) -> Result<Running> {
        let cache = self.folder.path().join(format!("cache-{name}"));
        let cache = cache.to_string_lossy().into_owned();
        let mut command = self.command(&["provisioner", "start", "--name", name, "--cache-dir", &cache]);
        command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
        let log = std::fs::File::create(self.folder.path().join(format!("{name}.log")))?;
        let daemon = Running(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?);
        wait_for("the daemon in the list", || {
            Ok(self.cli(&["provisioner", "list", "-o", "json"])?.contains(name))
        })?;
        Ok(daemon)
    }
}

/// Starts a server on a free port; returns when `/healthz` answers.
pub(crate) fn server(
    coder: &Path,
    folder: &Path,
    database: &Database,
    arguments: &[&str],
) -> Result<(Running, SocketAddr, Duration)> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut command = Command::new(coder);
    command.args(["server", "--http-address", &address.to_string()]).args(arguments);
    isolate(&mut command, folder);
    if let Database::Postgres(database) = database {
        let Location::Postgres(url) = &database.location else { bail!("the database is not a Postgres one") };
        command.env("CODER_PG_CONNECTION_URL", url.expose());
    }
    let log = std::fs::File::create(folder.join("server.log"))?;
    let start = Instant::now();
    let mut server = Running(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?);
    loop {
        if healthy(address) {
            return Ok((server, address, start.elapsed()));
        }
        if let Some(status) = server.0.try_wait()? {
            bail!("the server ended with {status}: {}", std::fs::read_to_string(folder.join("server.log"))?);
        }
        if start.elapsed() > WAIT_LIMIT {
            bail!("the server does not answer");
        }
        // A shorter pause would take processor time from the server.
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn healthy(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    stream.write_all(request.as_bytes()).is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer.starts_with("HTTP/1.1 200")
}

/// Gives a process a home of its own, so that the settings of the person who measures have no effect.
pub(crate) fn isolate(command: &mut Command, folder: &Path) {
    let inherited = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CODER_"));
    for (name, _) in inherited {
        command.env_remove(name);
    }
    command
        .env_remove("TF_CLI_CONFIG_FILE")
        .env("HOME", folder)
        .env("XDG_CONFIG_HOME", folder.join("xdg-config"))
        .env("XDG_DATA_HOME", folder.join("xdg-data"))
        .env("XDG_STATE_HOME", folder.join("xdg-state"))
        .env("XDG_CACHE_HOME", folder.join("xdg-cache"))
        .env("CODER_CONFIG_DIR", folder.join("config"))
        .env("CODER_CACHE_DIRECTORY", folder.join("cache"))
        // Jobs hide the directories of all registered daemons: those of this machine would take part.
        .env("CODER_PROVISIONER_DAEMON_REGISTRY", folder.join("daemons"))
        .env("CODER_DANGEROUS_DISABLE_RATE_LIMITS", "true");
}

/// Waits until `condition` holds.
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !condition()? {
        if start.elapsed() > WAIT_LIMIT {
            bail!("waited {WAIT_LIMIT:?} for {what}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Resident memory of a process in MiB.
pub(crate) fn resident_mib(pid: u32) -> Result<f64> {
    memory_mib(pid, "VmRSS:")
}

/// Largest resident memory of a process so far, in MiB.
pub(crate) fn peak_mib(pid: u32) -> Result<f64> {
    memory_mib(pid, "VmHWM:")
}

fn memory_mib(pid: u32, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context("memory of a process")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}

/// CPU seconds of a process and of its ended children.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').context("stat")?.1;
    // utime, stime, cutime and cstime are the fields 14 to 17; the text after the name starts with field 3.
    let ticks = fields.split_whitespace().skip(11).take(4).map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    Ok(ticks / TICKS_PER_SECOND)
}
