//! Databases for tests: a new SQLite file, or a new schema on Postgres. The Postgres server is that of
//! `CODER_TEST_PG_URL`, or one that is started once per test program.
//!
//! Without Postgres, the tests on Postgres are recorded as skipped.

mod schemas;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use coder_domain::secret::Secret;
use coder_requirements::Requirement;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tempfile::TempDir;
use tokio::sync::OnceCell;
use uuid::Uuid;

use self::schemas::Schema;
use crate::Location;

/// The URL of a Postgres server for tests. Each test creates its own schema.
pub const URL_VARIABLE: &str = "CODER_TEST_PG_URL";

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How many free ports are tried.
const PORT_ATTEMPTS: u32 = 5;

/// A database of one test.
pub struct TestDatabase {
    /// For [`Config::new`](crate::Config::new).
    pub location: Location,
    _guard: Guard,
}

#[expect(dead_code, reason = "held so that the files live as long as the database is used")]
enum Guard {
    Folder(TempDir),
    Server(Option<Arc<PostgresServer>>),
    Schema(Schema),
}

impl TestDatabase {
    /// Runs SQL text directly, without the store.
    ///
    /// # Panics
    /// When the database refuses it.
    pub async fn execute(&self, script: &str) {
        match &self.location {
            Location::Sqlite(path) => {
                let conn = rusqlite::Connection::open(path).expect("the file exists");
                conn.pragma_update(None, "foreign_keys", "off").expect("SQLite knows it");
                conn.execute_batch(script).expect("SQLite takes the script");
                conn.close().expect("a clean end");
            }
            Location::Postgres(url) => {
                let mut conn = PgConnection::connect(url.expose()).await.expect("the server runs");
                conn.execute(sqlx::raw_sql(AssertSqlSafe(script.to_owned())))
                    .await
                    .expect("Postgres takes the script");
                conn.close().await.expect("a clean end");
            }
        }
    }
}

/// A SQLite file in its own directory, which is removed on drop.
///
/// # Panics
/// When the temporary folder cannot be made.
#[must_use]
pub fn sqlite() -> TestDatabase {
    let folder = tempfile::tempdir().expect("a temporary folder");
    TestDatabase { location: Location::Sqlite(folder.path().join("coder.db")), _guard: Guard::Folder(folder) }
}

/// A new schema on the Postgres server of this test program; none when there is no Postgres.
///
/// # Panics
/// When Postgres does not work, or is missing and `CI=true`.
pub async fn postgres() -> Option<TestDatabase> {
    static SERVER: OnceCell<Option<Arc<PostgresServer>>> = OnceCell::const_new();
    if let Ok(url) = std::env::var(URL_VARIABLE) {
        let schema = Schema::make(&url).await;
        let name = schema.name().to_owned();
        return Some(database(&url, &name, Guard::Schema(schema)));
    }
    let server = SERVER.get_or_init(async || PostgresServer::start().await.map(Arc::new)).await.clone()?;
    Some(schema_on(&server.url(), Some(server)).await)
}

/// A schema on the server of this process. Its files are removed with the server.
async fn schema_on(url: &str, server: Option<Arc<PostgresServer>>) -> TestDatabase {
    let schema = format!("test_{}", Uuid::new_v4().simple());
    schemas::create(url, &schema).await;
    database(url, &schema, Guard::Server(server))
}

fn database(url: &str, schema: &str, guard: Guard) -> TestDatabase {
    let separator = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{separator}options=-csearch_path%3D{schema}");
    TestDatabase { location: Location::Postgres(Secret::new(url)), _guard: guard }
}

/// A Postgres server of this process. It ends when the process ends, even if it is killed.
pub struct PostgresServer {
    port: AtomicU16,
    folder: PathBuf,
    program: PathBuf,
    user: Option<(u32, u32)>,
    running: std::sync::Mutex<Option<Child>>,
}

impl PostgresServer {
    /// Creates a cluster and starts its server; none when Postgres is not installed.
    ///
    /// # Panics
    /// When it does not start, or is not installed and `CI=true`.
    pub async fn start() -> Option<Self> {
        if !coder_requirements::has(Requirement::Postgres) {
            return None;
        }
        let folder = programs().expect("the requirement is met");
        let user = unprivileged_user();
        let cluster = tempfile::Builder::new().prefix("coder-pg-").tempdir().expect("a temporary folder");
        if let Some((uid, gid)) = user {
            chown(cluster.path(), Some(uid), Some(gid)).expect("root may change the owner");
        }
        let mut init = Command::new(folder.join("initdb"));
        init.args([
            "--no-sync",
            "--auth=trust",
            "--username=postgres",
            "--encoding=UTF8",
            "--locale=C",
            "--pgdata",
        ]);
        init.arg(cluster.path().join("data")).current_dir(cluster.path()).stdin(Stdio::null());
        let made = as_user(&mut init, user).output().expect("initdb can be started");
        assert!(made.status.success(), "initdb failed: {}", String::from_utf8_lossy(&made.stderr));
        let server = Self {
            port: AtomicU16::new(0),
            // The watchdog removes it: a static is never dropped.
            folder: cluster.keep(),
            program: folder.join("postgres"),
            user,
            running: std::sync::Mutex::new(None),
        };
        for _ in 0..PORT_ATTEMPTS {
            server.port.store(free_port(), Ordering::Relaxed);
            *server.running.lock().expect("nobody panics while holding it") = Some(server.spawn());
            match server.wait_until_ready().await {
                Ok(()) => return Some(server),
                // Another process took the port meanwhile.
                Err(log) if log.contains("could not bind") => server.crash(),
                Err(log) => panic!("Postgres did not start:\n{log}"),
            }
        }
        panic!("Postgres found no free port in {PORT_ATTEMPTS} attempts");
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> String {
        format!(
            "postgres://postgres@127.0.0.1:{}/postgres?sslmode=disable",
            self.port.load(Ordering::Relaxed)
        )
    }

    /// Creates a schema on this server.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn database(&self) -> TestDatabase {
        schema_on(&self.url(), None).await
    }

    /// Starts it again on the same port with the same data.
    ///
    /// # Panics
    /// When it does not answer in time.
    pub async fn resume(&self) {
        let child = self.spawn();
        *self.running.lock().expect("nobody panics while holding it") = Some(child);
        if let Err(log) = self.wait_until_ready().await {
            panic!("Postgres did not start again:\n{log}");
        }
    }

    /// Waits until it answers; otherwise its log.
    async fn wait_until_ready(&self) -> Result<(), String> {
        let deadline = Instant::now() + START_TIMEOUT;
        while PgConnection::connect(&self.url()).await.is_err() {
            let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            if Instant::now() > deadline || log.contains("could not bind") {
                return Err(log);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Kills the server. Its data stay.
    ///
    /// # Panics
    /// When the watchdog cannot be waited for.
    pub fn crash(&self) {
        let child = self.running.lock().expect("nobody panics while holding it").take();
        if let Some(mut child) = child {
            let mut stdin = child.stdin.take().expect("the watchdog's input is a pipe");
            stdin.write_all(b"crash\n").expect("the watchdog reads");
            drop(stdin);
            child.wait().expect("the watchdog ends");
        }
    }

    /// A shell starts Postgres and waits on a pipe whose other end only this process has. When this process ends, the
    /// pipe closes, and the shell stops Postgres and removes its directory.
    fn spawn(&self) -> Child {
        const WATCHDOG: &str = r#"
            folder=$1; shift
            "$@" >"$folder/log" 2>&1 &
            server=$!
            word=end
            read -r word
            kill -QUIT "$server"
            wait "$server"
            [ "$word" = crash ] || rm -rf -- "$folder"
        "#;
        let mut watchdog = Command::new("sh");
        watchdog.args(["-c", WATCHDOG, "watchdog"]).arg(&self.folder).arg(&self.program);
        watchdog
            .arg("-D")
            .arg(self.folder.join("data"))
            .arg("-p")
            .arg(self.port.load(Ordering::Relaxed).to_string());
        let settings = [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "fsync=off",
            "full_page_writes=off",
            "max_connections=300",
            "shared_buffers=64MB",
            "autovacuum=off",
        ];
        for setting in settings {
            watchdog.args(["-c", setting]);
        }
        // Its own process group: a signal to the group of the test program must not end the watchdog.
        watchdog
            .process_group(0)
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        as_user(&mut watchdog, self.user).spawn().expect("sh can be started")
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        let child = self.running.lock().expect("nobody panics while holding it").take();
        if let Some(mut child) = child {
            drop(child.stdin.take());
            // A failure here is ignored, because the shell also ends by itself.
            let _ = child.wait();
        }
    }
}

/// The directory with `initdb` and `postgres`.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let has_both = |folder: &PathBuf| folder.join("initdb").is_file() && folder.join("postgres").is_file();
    std::env::split_paths(&path).find(has_both)
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound socket has an address").port()
}

/// Postgres refuses to run as root: then the account `postgres`, or else `nobody`.
fn unprivileged_user() -> Option<(u32, u32)> {
    let mut status = String::new();
    std::fs::File::open("/proc/self/status").and_then(|mut file| file.read_to_string(&mut status)).ok()?;
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().nth(1)?;
    if uid != "0" {
        return None;
    }
    let accounts = std::fs::read_to_string(Path::new("/etc/passwd")).expect("a list of accounts");
    let find = |name: &str| {
        let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    Some(find("postgres").or_else(|| find("nobody")).expect("an account other than root"))
}

fn as_user(command: &mut Command, user: Option<(u32, u32)>) -> &mut Command {
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}
