//! The way of a new process into its namespaces. Everything here runs between fork and exec of a program with many
//! threads, so it makes system calls and nothing else: no memory is allocated, no lock is taken.

use std::ffi::{CStr, CString};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags, statvfs};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind,
    mount_bind_recursive, mount_change, mount_remount, move_mount, open_tree,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, UnshareFlags, remove_capability_from_bounding_set, unshare_unsafe};

use super::view::{Step, View, read_only_as};

/// Directories that are shown again although one above them is covered: the cache and the job's own.
const SHOWN: usize = 4;

/// How often it is tried to lock a cover, and the time in between; only one that is going away needs more than one attempt.
const SEAL_ATTEMPTS: usize = 50;
const SEAL_AGAIN: std::time::Duration = std::time::Duration::from_millis(2);

/// By these even the administrator could undo what was covered, or reach what is outside.
const DROPPED: [CapabilitySet; 16] = [
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::SYS_PTRACE,
    CapabilitySet::SYS_MODULE,
    CapabilitySet::SYS_RAWIO,
    CapabilitySet::SYS_BOOT,
    CapabilitySet::SYS_TIME,
    CapabilitySet::SYS_CHROOT,
    CapabilitySet::SYS_PACCT,
    CapabilitySet::MKNOD,
    CapabilitySet::DAC_READ_SEARCH,
    CapabilitySet::SYSLOG,
    CapabilitySet::MAC_ADMIN,
    CapabilitySet::MAC_OVERRIDE,
    CapabilitySet::PERFMON,
    CapabilitySet::BPF,
    CapabilitySet::CHECKPOINT_RESTORE,
];

/// The number with which a process that only tries ends; no system call used here fails with it.
pub(super) const TRIED: Errno = Errno::NOTBLK;

/// What went wrong, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Stage {
    Limits = 1,
    Namespaces,
    Identity,
    Mounts,
    Processes,
    Rights,
}

impl Stage {
    pub(super) const fn words(code: i32) -> &'static str {
        match code {
            1 => "limits of a process cannot be set",
            2 => "namespaces cannot be made",
            3 => "the user cannot be kept in a new namespace",
            4 => "directories cannot be hidden",
            5 => "processes cannot be hidden",
            _ => "rights cannot be given up",
        }
    }
}

/// How a user stays itself in a user namespace.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) users: CString,
    pub(super) groups: CString,
}

/// All that a process does before it runs its program.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// Control groups to join first.
    pub(super) groups: Vec<CString>,
    pub(super) limits: Vec<(Resource, u64)>,
    /// None for no namespaces at all.
    pub(super) cell: Option<Walls>,
    /// Ends with [`TRIED`] in place of running a program.
    pub(super) only_tries: bool,
}

/// The namespaces of a process.
#[derive(Debug)]
pub(super) struct Walls {
    /// A user namespace, for those who have no right to others.
    pub(super) identity: Option<Identity>,
    /// A namespace of processes too.
    pub(super) processes: bool,
    /// For the administrator's processes, to which the kernel's settings belong in any namespace.
    pub(super) guards_kernel: bool,
    pub(super) view: View,
    /// The working directory, as it is to be seen.
    pub(super) dir: CString,
}

type Result<T> = std::result::Result<T, (Stage, Errno)>;

impl Entry {
    /// Enters. With a namespace of processes this returns in another process than it was called in: the child of the
    /// same parent, whose number goes through `report`. A failure is reported there too, as a negative stage.
    pub(super) fn enter(&self, report: BorrowedFd<'_>) -> std::io::Result<()> {
        close_inherited();
        let entered =
            self.limit().and_then(|()| self.cell.as_ref().map_or(Ok(()), |walls| walls.enter(report)));
        match entered {
            Ok(()) if self.only_tries => Err(TRIED.into()),
            Ok(()) => Ok(()),
            Err((stage, error)) => {
                tell(report, -(stage as i32));
                Err(error.into())
            }
        }
    }

    fn limit(&self) -> Result<()> {
        let failed = |error| (Stage::Limits, error);
        for group in &self.groups {
            write_file(group, b"0").map_err(failed)?;
        }
        for &(resource, limit) in &self.limits {
            let both = Rlimit { current: Some(limit), maximum: Some(limit) };
            setrlimit(resource, both).map_err(failed)?;
        }
        Ok(())
    }
}

impl Walls {
    fn enter(&self, report: BorrowedFd<'_>) -> Result<()> {
        let mut flags = UnshareFlags::NEWNS;
        if self.processes {
            flags |= UnshareFlags::NEWPID;
        }
        if self.identity.is_some() {
            flags |= UnshareFlags::NEWUSER;
        }
        #[expect(unsafe_code, reason = "the call is unsafe for shared file tables only")]
        // SAFETY: the flags leave the table of files alone, and this process has one thread.
        let unshared = unsafe { unshare_unsafe(flags) };
        unshared.map_err(|error| (Stage::Namespaces, error))?;
        if let Some(identity) = &self.identity {
            identity.keep().map_err(|error| (Stage::Identity, error))?;
        }
        self.mount().map_err(|error| (Stage::Mounts, error))?;
        if self.processes {
            self.be_first(report).map_err(|error| (Stage::Processes, error))?;
        }
        if self.guards_kernel {
            guard_kernel().map_err(|error| (Stage::Mounts, error))?;
        }
        for capability in DROPPED {
            match remove_capability_from_bounding_set(capability) {
                // An older kernel does not know it.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(error) => return Err((Stage::Rights, error)),
            }
        }
        Ok(())
    }

    fn mount(&self) -> rustix::io::Result<()> {
        // What is mounted later outside still arrives; nothing of this leaves.
        mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
        let mut trees = [const { None::<OwnedFd> }; SHOWN];
        let shown = || {
            self.view.steps.iter().filter_map(|step| match step {
                Step::Show { path, missing } => Some((path, missing)),
                _ => None,
            })
        };
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        for (place, (path, _)) in trees.iter_mut().zip(shown()) {
            *place = Some(open_tree(CWD, path.as_c_str(), flags)?);
        }
        let mut trees = trees.iter();
        for step in &self.view.steps {
            match step {
                Step::Cover(path) => {
                    let flags = MountFlags::NOSUID | MountFlags::NODEV;
                    unless_gone(mount(c"tmpfs", path.as_c_str(), c"tmpfs", flags, c"mode=0755,size=64k"))?;
                }
                Step::CoverFile(path) => unless_gone(mount_bind(c"/dev/null", path.as_c_str()))?,
                Step::ReadOnly { path, flags } => {
                    mount_bind_recursive(path.as_c_str(), path.as_c_str())?;
                    mount_remount(path.as_c_str(), *flags, c"")?;
                }
                Step::Show { path, missing } => {
                    for dir in missing {
                        match rustix::fs::mkdir(dir.as_c_str(), Mode::RWXU) {
                            Ok(()) | Err(Errno::EXIST) => {}
                            Err(error) => return Err(error),
                        }
                    }
                    let Some(Some(tree)) = trees.next() else { return Err(Errno::NOSPC) };
                    move_mount(tree, c"", CWD, path.as_c_str(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
                }
                Step::Seal(path) => {
                    let flags =
                        MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
                    seal(path, flags)?;
                }
            }
        }
        // The way up from a directory that was entered before leads past what covers it.
        rustix::process::chdir(self.dir.as_c_str())
    }

    /// Becomes the first process of the namespace, whose end is the end of all in it, and sees no other.
    fn be_first(&self, report: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let flags = libc::CLONE_PARENT | libc::SIGCHLD;
        // SAFETY: without a stack of its own the child goes on here with a copy of this process, as after fork; neither
        // touches what the other threads of the copied program held.
        #[expect(unsafe_code, reason = "no library offers a fork that keeps the parent")]
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        match i32::try_from(pid) {
            Ok(0) => {}
            Ok(pid) if pid > 0 => {
                tell(report, pid);
                // SAFETY: ends this process at once, without running anything of the copied program.
                #[expect(
                    unsafe_code,
                    reason = "an ordinary exit would run what belongs to the copied program"
                )]
                unsafe {
                    libc::_exit(0)
                }
            }
            _ => return Err(Errno::AGAIN),
        }
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount(c"proc", c"/proc", c"proc", flags, c"")
    }
}

/// The administrator could have the kernel run programs outside, or end the machine: these files ask who somebody is and not
/// what he may, so a user namespace does not keep him from them.
fn guard_kernel() -> rustix::io::Result<()> {
    for path in [c"/proc/sys", c"/proc/sysrq-trigger"] {
        let now = match statvfs(path) {
            Ok(now) => now.f_flag,
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(error),
        };
        if now.contains(StatVfsMountFlags::RDONLY) {
            continue;
        }
        mount_bind_recursive(path, path)?;
        mount_remount(path, read_only_as(now), c"")?;
    }
    Ok(())
}

impl Identity {
    /// The user is the same inside as outside.
    fn keep(&self) -> rustix::io::Result<()> {
        // The files below belong to nobody while this copy of the daemon is as closed as the daemon.
        set_dumpable_behavior(DumpableBehavior::Dumpable)?;
        match write_file(c"/proc/self/setgroups", b"deny") {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        write_file(c"/proc/self/uid_map", self.users.to_bytes())?;
        write_file(c"/proc/self/gid_map", self.groups.to_bytes())
    }
}

/// Locks what covers a directory. A directory that somebody removes meanwhile, such as that of a daemon that ends, loses its
/// cover a moment before its name.
fn seal(path: &CStr, flags: MountFlags) -> rustix::io::Result<()> {
    for _ in 0..SEAL_ATTEMPTS {
        match mount_remount(path, flags, c"") {
            Err(Errno::INVAL) => std::thread::sleep(SEAL_AGAIN),
            other => return unless_gone(other),
        }
    }
    Err(Errno::INVAL)
}

/// What is not there any more needs no cover.
fn unless_gone(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Whatever the daemon was started with open ends where the program begins; this process still needs its own.
fn close_inherited() {
    // SAFETY: marks descriptors, which takes effect when the program is run.
    #[expect(unsafe_code, reason = "no library offers the call")]
    unsafe {
        // An older kernel does not know it, and what the daemon opens itself is closed anyway.
        let _ = libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
}

fn write_file(path: &CStr, bytes: &[u8]) -> rustix::io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, bytes).map(|_| ())
}

fn tell(report: BorrowedFd<'_>, number: i32) {
    // Four bytes fit into a pipe. Without them the parent sees that nothing came.
    let _ = rustix::io::write(report, &number.to_ne_bytes());
}
