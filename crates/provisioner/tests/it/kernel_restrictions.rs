//! Tests in a process in which the kernel denies something, as in containers and on older machines.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use libc::{sock_filter, sock_fprog};

/// Tells a test that it runs in such a process.
const INSIDE: &str = "CODER_TEST_KERNEL";

/// What is denied.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Without {
    /// Namespaces of one of these kinds (`CLONE_NEW…`) cannot be created.
    Namespaces(libc::c_int),
    /// Nothing can be mounted.
    Mounts,
    /// Processes cannot be waited for by pidfd: before Linux 5.3, and with some seccomp filters.
    Descriptors,
    /// Pidfds have no flags: before Linux 5.10.
    DescriptorFlags,
    /// CAP_SYS_ADMIN, if this user has it.
    Administration,
}

/// Runs the test `name` again without all this, or its `body` when this is that run.
pub(crate) fn without(what: &[Without], name: &str, body: impl Future<Output = ()>) {
    if std::env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        return runtime.block_on(body);
    }
    let filter = filter(what);
    let administers = !what.iter().any(|what| matches!(what, Without::Administration));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
    #[expect(unsafe_code, reason = "there is no other way to a filter for a child")]
    // SAFETY: only system calls are made, with memory allocated before.
    unsafe {
        command.pre_exec(move || restrict(&filter, administers));
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

const fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Skips the next `unless` instructions unless the comparison holds.
const fn compare(how: u32, k: u32, unless: u8) -> sock_filter {
    sock_filter { code: (libc::BPF_JMP | how | libc::BPF_K) as u16, jt: 0, jf: unless, k }
}

const fn refuse(error: libc::c_int) -> sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | error as u32)
}

/// Loads a word of the system call's data (`seccomp_data`).
const fn load(at: u32) -> sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at)
}

const NUMBER: u32 = 0;

/// The lower half of an argument.
const fn argument(index: u32) -> u32 {
    16 + 8 * index + if cfg!(target_endian = "big") { 4 } else { 0 }
}

fn filter(what: &[Without]) -> Vec<sock_filter> {
    let mut filter = vec![load(NUMBER)];
    let mut call = |number: libc::c_long, condition: &[sock_filter], error| {
        filter.push(compare(libc::BPF_JEQ, number as u32, condition.len() as u8 + 2));
        filter.extend(condition);
        filter.extend([refuse(error), load(NUMBER)]);
    };
    for what in what {
        match *what {
            Without::Namespaces(kinds) => {
                let has = [load(argument(0)), compare(libc::BPF_JSET, kinds as u32, 1)];
                call(libc::SYS_unshare, &has, libc::EPERM);
                call(libc::SYS_clone, &has, libc::EPERM);
                // Its flags are in memory, which a filter cannot read; libraries then use the older call.
                call(libc::SYS_clone3, &[], libc::ENOSYS);
            }
            Without::Mounts => call(libc::SYS_mount, &[], libc::EPERM),
            Without::Descriptors => call(libc::SYS_pidfd_open, &[], libc::ENOSYS),
            Without::DescriptorFlags => {
                let none = [load(argument(1)), compare(libc::BPF_JSET, u32::MAX, 1)];
                call(libc::SYS_pidfd_open, &none, libc::EINVAL);
            }
            Without::Administration => {}
        }
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    filter
}

fn restrict(filter: &[sock_filter], administers: bool) -> std::io::Result<()> {
    const CAP_SYS_ADMIN: libc::c_ulong = 21;
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    #[expect(unsafe_code, reason = "no library offers the calls")]
    // SAFETY: the program outlives the call, which copies it.
    let results = unsafe {
        [
            if administers { 0 } else { libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0).min(0) },
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program),
        ]
    };
    // Only root can drop a capability, and nobody else has it.
    if results[1..].contains(&-1) { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
