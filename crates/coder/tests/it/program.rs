//! Runs the binary with a separate environment.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The program under test: `CODER_TEST_BINARY` names another build of it, such as the release binary.
pub(crate) fn binary() -> String {
    std::env::var("CODER_TEST_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_coder").to_owned())
}

/// How long one short command may take.
const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// A home directory and the variables that commands see, independent of the developer's environment.
pub(crate) struct Home {
    pub(crate) directory: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

/// The result of a command.
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Outcome {
    /// Checks that the command succeeded.
    #[track_caller]
    pub(crate) fn success(self) -> Self {
        assert!(self.status.success(), "{}\nout: {}\nerr: {}", self.status, self.out, self.err);
        self
    }

    /// Checks exit code 1, these words on standard error, and empty standard output.
    #[track_caller]
    pub(crate) fn refused(self, words: &str) -> Self {
        assert_eq!(self.status.code(), Some(1), "out: {}\nerr: {}", self.out, self.err);
        assert!(self.err.contains(words), "{words:?} is not in: {}", self.err);
        assert_eq!(self.out, "");
        self
    }
}

impl Home {
    pub(crate) fn new() -> Self {
        let new = Self { directory: tempfile::tempdir().unwrap(), variables: Vec::new() };
        std::fs::create_dir(new.home()).unwrap();
        new
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) -> &mut Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// The working directory of commands. The home is inside of it, so that jobs, which have another home, see the
    /// other files.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The value of `HOME`.
    pub(crate) fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    /// The directory of the session.
    pub(crate) fn config(&self) -> PathBuf {
        self.home().join(".config/coderv2")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.dress(Command::new(binary()), args)
    }

    /// The same with a limit on file sizes, in blocks of 512 bytes.
    pub(crate) fn limited(&self, blocks: u32, args: &[&str]) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -f {blocks}; exec \"$0\" \"$@\""), &binary()]);
        self.dress(shell, args)
    }

    fn dress(&self, mut command: Command, args: &[&str]) -> Command {
        command.args(args).env_clear().env("HOME", self.home()).current_dir(self.path());
        command.env("CODER_PROVISIONER_DAEMON_REGISTRY", self.path().join("registry"));
        for name in ["PATH", "TMPDIR", "LLVM_PROFILE_FILE"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs to the end with nothing on standard input.
    #[track_caller]
    pub(crate) fn run(&self, args: &[&str]) -> Outcome {
        finish(self.command(args), b"")
    }

    /// Runs to the end with `input`.
    #[track_caller]
    pub(crate) fn answer(&self, args: &[&str], input: &str) -> Outcome {
        finish(self.command(args), input.as_bytes())
    }
}

#[track_caller]
pub(crate) fn finish(mut command: Command, input: &[u8]) -> Outcome {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that does not read its input closes it early.
    let _ = child.stdin.take().unwrap().write_all(input);
    let out = collect(child.stdout.take().unwrap());
    let err = collect(child.stderr.take().unwrap());
    let status = wait(&mut child, WAIT_LIMIT);
    Outcome { status, out: out.join().unwrap(), err: err.join().unwrap() }
}

fn collect(mut from: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for the end. Kills the process and fails after `patience`.
#[track_caller]
pub(crate) fn wait(child: &mut Child, patience: Duration) -> ExitStatus {
    let ended = until(patience, || child.try_wait().unwrap());
    ended.unwrap_or_else(|| {
        let _ = child.kill();
        panic!("the process did not end within {patience:?}")
    })
}

/// Polls until there is a value or the time is over.
pub(crate) fn until<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if start.elapsed() > patience {
            return None;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}
