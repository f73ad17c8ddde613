//! Why a program did not start or ended at once. The system's messages ("resource temporarily unavailable",
//! "permission denied", "no such file") name neither the cause nor the next step, and most causes lie in the
//! machine, not in the program.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::process::{Resource, Signal};

/// Why a program could not do its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartFailure {
    /// What failed, why, and what to do.
    pub(crate) text: String,
    /// The cause is temporary and independent of the program.
    pub(crate) is_transient: bool,
}

impl StartFailure {
    fn permanent(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_transient: false }
    }

    fn transient(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_transient: true }
    }
}

const NO_MEMORY: &str =
    "the machine has not enough memory: give the daemon's machine, container or unit more";

const FORBIDDEN: &str = "the system forbids it (operation not permitted): check the seccomp filter and the security module (SELinux, AppArmor) of the daemon's container or unit";

const FILTERED: &str =
    "a seccomp filter killed it: allow the daemon's container or unit the system calls of ordinary programs";

const KILLED: &str = "it was killed from outside, as the system does when memory runs out: check the memory limit of the daemon's container or unit, and of the job (--job-memory-mib)";

/// Why the system did not start a program.
pub(crate) fn from_spawn_error(program: &Path, error: &io::Error) -> StartFailure {
    let Some(errno) = Errno::from_io_error(error) else {
        // The message names the failed stage; the error number is not available.
        return match error.kind() {
            io::ErrorKind::WouldBlock => {
                StartFailure::transient(format!("{error}: {}", too_many_processes()))
            }
            io::ErrorKind::OutOfMemory => StartFailure::transient(format!("{error}: {NO_MEMORY}")),
            _ => StartFailure::permanent(error.to_string()),
        };
    };
    match errno {
        Errno::AGAIN => StartFailure::transient(too_many_processes()),
        Errno::NOMEM => StartFailure::transient(NO_MEMORY),
        Errno::MFILE | Errno::NFILE => {
            StartFailure::transient("too many files are open: raise the limit of the daemon (ulimit -n)")
        }
        Errno::TXTBSY => StartFailure::transient("another process is still writing it"),
        Errno::PERM => StartFailure::permanent(FORBIDDEN),
        Errno::ACCESS => {
            let mode = program.metadata().ok().map(|file| file.permissions().mode());
            let flags = rustix::fs::statvfs(program).ok().map(|system| system.f_flag);
            StartFailure::permanent(not_permitted(mode, flags))
        }
        Errno::NOEXEC | Errno::LIBBAD => StartFailure::permanent(wrong_format(program)),
        Errno::NOENT if program.is_file() => StartFailure::permanent(no_interpreter(program)),
        _ => StartFailure::permanent(error.to_string()),
    }
}

/// Why a program ended without doing its work; `None` when it failed for a reason that it printed itself.
pub(crate) fn from_exit(status: ExitStatus, stderr: &str) -> Option<StartFailure> {
    if status.success() { None } else { from_signal(status).or_else(|| from_output(stderr)) }
}

/// What the signal that ended a program means; `None` without a signal, or for one that the program raised
/// itself.
pub(crate) fn from_signal(status: ExitStatus) -> Option<StartFailure> {
    let by = |signal: Signal| status.signal() == Some(signal.as_raw());
    if by(Signal::SYS) {
        return Some(StartFailure::permanent(FILTERED));
    }
    if by(Signal::KILL) {
        return Some(StartFailure::transient(KILLED));
    }
    if by(Signal::ILL) {
        return Some(StartFailure::permanent(
            "it is built for another kind of processor than this machine has",
        ));
    }
    None
}

/// What a program's last output means: messages of the Go runtime, which Terraform and its providers share, and
/// of the C library.
fn from_output(text: &str) -> Option<StartFailure> {
    let text = text.to_ascii_lowercase();
    let has = |words: &str| text.contains(words);
    let no_thread = has("failed to create new os thread") || has("pthread_create");
    if no_thread && (has("errno=12") || has("cannot allocate memory")) {
        return Some(StartFailure::transient(NO_MEMORY));
    }
    if no_thread && (has("errno=1)") || has("operation not permitted")) {
        return Some(StartFailure::permanent(FORBIDDEN));
    }
    let started = has("fork/exec") || has("can't fork") || has("cannot fork");
    if no_thread || (started && has("resource temporarily unavailable")) {
        return Some(StartFailure::transient(too_many_processes()));
    }
    if has("cannot allocate memory") || has("runtime: out of memory") || has("fatal error: out of memory") {
        return Some(StartFailure::transient(NO_MEMORY));
    }
    if has("exec format error") {
        return Some(StartFailure::permanent(format!(
            "a program is built for another kind of machine; this one is {}/{}",
            std::env::consts::OS,
            std::env::consts::ARCH
        )));
    }
    if has("fork/exec") && has("permission denied") {
        return Some(StartFailure::permanent(
            "a program may not be started: check whether the daemon's cache directory or TMPDIR is mounted with noexec",
        ));
    }
    if has("fork/exec") && has("operation not permitted") {
        return Some(StartFailure::permanent(FORBIDDEN));
    }
    None
}

/// What to add to a job's error whose cause lies in the machine; empty for all others.
pub(crate) fn next_step(error: &str) -> String {
    match from_output(error) {
        // The error contains it already.
        Some(cause) if !error.contains(&cause.text) => format!("; {}", cause.text),
        _ => String::new(),
    }
}

/// The limits that apply, with their values.
fn too_many_processes() -> String {
    let user = rustix::process::getrlimit(Resource::Nproc).current;
    let mut limits =
        vec![user.map_or_else(|| "ulimit -u: unlimited".to_owned(), |limit| format!("ulimit -u: {limit}"))];
    limits.extend(control_group().as_deref().and_then(pids_of_group));
    format!(
        "no further process or thread can be created ({}): raise the limit of the daemon's user, container or unit, or of the job (--job-processes)",
        limits.join(", ")
    )
}

/// The directory of the daemon's control group.
fn control_group() -> Option<PathBuf> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new("/sys/fs/cgroup").join(path))
}

/// The lowest process limit from a control group upwards.
fn pids_of_group(group: &Path) -> Option<String> {
    let read =
        |group: &Path, name: &str| std::fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    let limits = group.ancestors().filter_map(|group| Some((group, read(group, "pids.max")?)));
    let (narrowest, limit) = limits.min_by_key(|(_, limit)| *limit)?;
    let used = read(narrowest, "pids.current").map_or_else(String::new, |used| format!(", {used} in use"));
    Some(format!("pids.max of the control group: {limit}{used}"))
}

/// `mode` is the mode of the file, `flags` are those of its file system, if known.
fn not_permitted(mode: Option<u32>, flags: Option<StatVfsMountFlags>) -> &'static str {
    if mode.is_some_and(|mode| mode & 0o111 == 0) {
        "it is not executable: chmod +x helps"
    } else if flags.is_some_and(|flags| flags.contains(StatVfsMountFlags::NOEXEC)) {
        "its file system is mounted with noexec: move the program, or remount without noexec"
    } else {
        "permission denied: the daemon's user may not run it, or may not enter a directory above it"
    }
}

/// `e_machine` of ELF headers.
const MACHINES: [(u16, &str); 9] = [
    (3, "x86"),
    (8, "mips"),
    (20, "powerpc"),
    (21, "powerpc64"),
    (22, "s390x"),
    (40, "arm"),
    (62, "x86_64"),
    (183, "aarch64"),
    (243, "riscv64"),
];

fn wrong_format(program: &Path) -> String {
    let head = head(program);
    let own = std::env::consts::ARCH;
    match head.as_slice() {
        [0x7f, b'E', b'L', b'F', _, order, ..] if head.len() >= 20 => {
            let bytes = [head[18], head[19]];
            let number = if *order == 2 { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) };
            let known = MACHINES.iter().find(|(known, _)| *known == number);
            match known {
                Some((_, machine)) if *machine != own => {
                    format!("it is built for {machine}, and this machine is {own}")
                }
                _ => format!("it is damaged, or this machine ({own}) cannot run its format"),
            }
        }
        [0xcf, 0xfa, 0xed, 0xfe, ..] | [0xca, 0xfe, 0xba, 0xbe, ..] => {
            "it is built for macOS, and this machine runs Linux".to_owned()
        }
        [b'M', b'Z', ..] => "it is built for Windows, and this machine runs Linux".to_owned(),
        [b'P', b'K', ..] => "it is a ZIP archive: unpack the program".to_owned(),
        _ => "it is neither a program nor a script of this system".to_owned(),
    }
}

/// The file exists, but its interpreter or loader is missing.
fn no_interpreter(program: &Path) -> String {
    let head = head(program);
    match head.strip_prefix(b"#!") {
        Some(line) => {
            let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
            format!("it is a script whose interpreter is missing: {}", String::from_utf8_lossy(line).trim())
        }
        None => "its dynamic loader is missing: it is built for another C library".to_owned(),
    }
}

/// The first bytes; empty when the file cannot be read.
fn head(program: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(program) {
        // An unreadable file counts as empty.
        let _ = file.take(256).read_to_end(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(dir: &Path, bytes: &[u8], mode: u32) -> PathBuf {
        let path = dir.join("terraform");
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// The error of really starting it.
    fn started(path: &Path) -> StartFailure {
        loop {
            let error = std::process::Command::new(path).spawn().unwrap_err();
            // A process that another test is starting may still hold the new file open.
            if Errno::from_io_error(&error) != Some(Errno::TXTBSY) {
                return from_spawn_error(path, &error);
            }
        }
    }

    fn elf(machine: u16) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(64, 0);
        bytes[16] = 2;
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes
    }

    #[test]
    fn files_that_cannot_run_say_why() {
        let dir = tempfile::tempdir().unwrap();
        let other: u16 = if cfg!(target_arch = "aarch64") { 62 } else { 183 };
        let name = if cfg!(target_arch = "aarch64") { "x86_64" } else { "aarch64" };
        for (bytes, mode, wanted) in [
            (elf(other), 0o755, format!("it is built for {name}, and this machine is")),
            (b"PK\x03\x04".to_vec(), 0o755, "ZIP archive".to_owned()),
            (b"MZ\x90\0".to_vec(), 0o755, "Windows".to_owned()),
            (b"\xcf\xfa\xed\xfe".to_vec(), 0o755, "macOS".to_owned()),
            (b"\0nonsense".to_vec(), 0o755, "neither a program nor a script".to_owned()),
            (b"#!/nowhere/sh\n".to_vec(), 0o755, "interpreter is missing: /nowhere/sh".to_owned()),
            (b"#!/bin/sh\n".to_vec(), 0o644, "chmod +x".to_owned()),
        ] {
            let cause = started(&program(dir.path(), &bytes, mode));
            assert!(cause.text.contains(&wanted) && !cause.is_transient, "{wanted}: {cause:?}");
        }
    }

    #[test]
    fn a_mount_without_execution_is_named() {
        let noexec = Some(StatVfsMountFlags::NOEXEC);
        assert!(not_permitted(Some(0o644), noexec).contains("chmod"));
        assert!(not_permitted(Some(0o755), noexec).contains("noexec"));
        assert!(not_permitted(None, noexec).contains("noexec"));
        for flags in [None, Some(StatVfsMountFlags::NOSUID)] {
            assert!(not_permitted(Some(0o755), flags).contains("permission denied"), "{flags:?}");
        }
    }

    #[test]
    fn limits_of_the_machine_are_no_fault_of_the_program() {
        let program = Path::new("/bin/sh");
        for (errno, wanted) in [
            (Errno::AGAIN, "no further process or thread can be created (ulimit -u: "),
            (Errno::NOMEM, "not enough memory"),
            (Errno::MFILE, "ulimit -n"),
            (Errno::TXTBSY, "still writing"),
        ] {
            let cause = from_spawn_error(program, &errno.into());
            assert!(cause.text.contains(wanted) && cause.is_transient, "{errno:?}: {cause:?}");
        }
        let cause = from_spawn_error(program, &Errno::PERM.into());
        assert!(cause.text.contains("seccomp") && !cause.is_transient, "{cause:?}");
        let named = io::Error::new(io::ErrorKind::WouldBlock, "join the namespaces: not now");
        let cause = from_spawn_error(program, &named);
        assert!(cause.text.starts_with("join the namespaces: not now: no further process"), "{cause:?}");
        let plain = io::Error::new(io::ErrorKind::QuotaExceeded, "as it is");
        assert_eq!(from_spawn_error(program, &plain), StartFailure::permanent("as it is"));
    }

    #[test]
    fn last_words_are_understood() {
        let failed = ExitStatus::from_raw(2 << 8);
        for (words, wanted) in [
            ("runtime: failed to create new OS thread (have 9 already; errno=11)", "ulimit -u"),
            ("runtime/cgo: pthread_create failed: Resource temporarily unavailable", "ulimit -u"),
            ("runtime: failed to create new OS thread (have 2 already; errno=12)", "not enough memory"),
            ("runtime: failed to create new OS thread (have 2 already; errno=1)", "seccomp"),
            ("fatal error: runtime: out of memory", "not enough memory"),
            ("fork/exec .terraform/x: resource temporarily unavailable", "ulimit -u"),
            ("fork/exec .terraform/x: exec format error", "another kind of machine"),
            ("fork/exec .terraform/x: permission denied", "noexec"),
            ("fork/exec .terraform/x: operation not permitted", "seccomp"),
        ] {
            let cause = from_exit(failed, words).unwrap();
            assert!(cause.text.contains(wanted), "{words}: {cause:?}");
            let step = next_step(words);
            assert!(step.starts_with("; ") && step.contains(wanted), "{words}: {step}");
            assert_eq!(next_step(&format!("{words}{step}")), "", "it is said once");
        }
        for words in
            ["", "Error: no such image", "read tcp: resource temporarily unavailable", "permission denied"]
        {
            assert_eq!((from_exit(failed, words), next_step(words)), (None, String::new()), "{words}");
        }
        assert_eq!(from_exit(ExitStatus::from_raw(0), "out of memory"), None);
        for (signal, wanted) in [(31, "seccomp"), (9, "memory"), (4, "processor")] {
            assert!(from_exit(ExitStatus::from_raw(signal), "").unwrap().text.contains(wanted), "{signal}");
        }
    }

    #[test]
    fn the_narrowest_control_group_counts() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("outer/inner");
        std::fs::create_dir_all(&inner).unwrap();
        assert_eq!(pids_of_group(&inner), None);
        std::fs::write(inner.join("pids.max"), "max\n").unwrap();
        assert_eq!(pids_of_group(&inner), None);
        std::fs::write(dir.path().join("outer/pids.max"), "64\n").unwrap();
        std::fs::write(dir.path().join("outer/pids.current"), "63\n").unwrap();
        std::fs::write(dir.path().join("pids.max"), "1000\n").unwrap();
        assert_eq!(pids_of_group(&inner).unwrap(), "pids.max of the control group: 64, 63 in use");
    }
}
