//! Sets up the sandbox in a new process. Everything here runs between fork and exec of a program with many
//! threads, so it only makes system calls: it allocates no memory and takes no lock.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags, mkdirat, openat, statvfs};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind,
    mount_bind_recursive, mount_change, mount_remount, move_mount, open_tree,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, UnshareFlags, remove_capability_from_bounding_set, unshare_unsafe};

use super::keyrings;
use super::mount_plan::{MountPlan, MountStep, MountTarget, read_only_as};

/// Attempts to remount a mask, and the delay between them; only a mask whose directory is being removed needs
/// more than one.
const REMOUNT_ATTEMPTS: usize = 50;
const REMOUNT_DELAY: std::time::Duration = std::time::Duration::from_millis(2);

/// With these even root could undo the masks or reach what is outside.
const DROPPED_CAPABILITIES: [CapabilitySet; 16] = [
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

/// The error of a process that only probes; no system call used here fails with it.
pub(super) const PROBED: Errno = Errno::NOTBLK;

/// The stage that failed, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum SetupStage {
    Limits = 1,
    Namespaces,
    Identity,
    Mounts,
    Processes,
    Rights,
    SystemCalls,
}

impl SetupStage {
    pub(super) const fn describe(code: i32) -> &'static str {
        match code {
            1 => "resource limits cannot be set",
            2 => "namespaces cannot be created",
            3 => "the user cannot be mapped into a user namespace",
            4 => "directories cannot be masked",
            5 => "processes cannot be hidden",
            6 => "capabilities cannot be dropped",
            _ => "system calls cannot be forbidden",
        }
    }
}

/// Maps the user to itself in a user namespace.
#[derive(Debug)]
pub(super) struct UserMapping {
    pub(super) users: CString,
    pub(super) groups: CString,
}

/// Everything that a process does before it runs its program.
#[derive(Debug, Default)]
pub(super) struct ProcessSetup {
    /// Control groups to join first.
    pub(super) groups: Vec<CString>,
    pub(super) limits: Vec<(Resource, u64)>,
    /// `None` to create no namespaces.
    pub(super) namespaces: Option<Namespaces>,
    /// Fail with [`PROBED`] instead of running a program.
    pub(super) probe_only: bool,
}

#[derive(Debug)]
pub(super) struct Namespaces {
    /// A user namespace, for users who may not create the others without one.
    pub(super) identity: Option<UserMapping>,
    /// Also a PID namespace.
    pub(super) processes: bool,
    /// For processes of root, whose access to kernel settings no namespace removes.
    pub(super) protect_kernel_files: bool,
    pub(super) mount_plan: MountPlan,
    /// The working directory inside the sandbox.
    pub(super) dir: CString,
}

type Result<T> = std::result::Result<T, (SetupStage, Errno)>;

impl ProcessSetup {
    /// Sets up the process. With a PID namespace this returns in another process than it was called in: a child
    /// of the same parent, whose pid is sent through `report`. A failure is reported there too, as a negative
    /// stage.
    pub(super) fn enter(&mut self, report: BorrowedFd<'_>) -> std::io::Result<()> {
        close_inherited();
        let entered = self
            .limit()
            .and_then(|()| self.namespaces.as_mut().map_or(Ok(()), |namespaces| namespaces.enter(report)));
        match entered {
            Ok(()) if self.probe_only => Err(PROBED.into()),
            Ok(()) => Ok(()),
            Err((stage, error)) => {
                send_report(report, -(stage as i32));
                Err(error.into())
            }
        }
    }

    fn limit(&self) -> Result<()> {
        let failed = |error| (SetupStage::Limits, error);
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

impl Namespaces {
    fn enter(&mut self, report: BorrowedFd<'_>) -> Result<()> {
        let mut flags = UnshareFlags::NEWNS;
        if self.processes {
            flags |= UnshareFlags::NEWPID;
        }
        if self.identity.is_some() {
            flags |= UnshareFlags::NEWUSER;
        }
        #[expect(unsafe_code, reason = "the call is unsafe for shared file tables only")]
        // SAFETY: the flags do not unshare the file table, and this process has one thread.
        let unshared = unsafe { unshare_unsafe(flags) };
        unshared.map_err(|error| (SetupStage::Namespaces, error))?;
        if let Some(identity) = &self.identity {
            identity.write_maps().map_err(|error| (SetupStage::Identity, error))?;
        }
        self.mount().map_err(|error| (SetupStage::Mounts, error))?;
        if self.processes {
            self.become_init(report).map_err(|error| (SetupStage::Processes, error))?;
        }
        if self.protect_kernel_files {
            protect_kernel_files().map_err(|error| (SetupStage::Mounts, error))?;
        }
        for capability in DROPPED_CAPABILITIES {
            match remove_capability_from_bounding_set(capability) {
                // An older kernel does not know it.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(error) => return Err((SetupStage::Rights, error)),
            }
        }
        keyrings::forbid().map_err(|error| (SetupStage::SystemCalls, error))
    }

    fn mount(&mut self) -> rustix::io::Result<()> {
        // Later mounts of the host still propagate here; mounts made here do not propagate to the host.
        mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
        let MountPlan { steps, empty_dir, trees } = &mut self.mount_plan;
        let mut opened = 0;
        for step in steps.iter() {
            match step {
                MountStep::BindSelf(path) => {
                    ignore_missing(mount_bind_recursive(path.as_c_str(), path.as_c_str()))?
                }
                MountStep::HideDirectory(place) => {
                    let empty = open_detached_tree(empty_dir)?;
                    ignore_missing(attach_tree(&empty, place, true))?;
                }
                MountStep::MaskDirectory(path) => {
                    let flags = MountFlags::NOSUID | MountFlags::NODEV;
                    ignore_missing(mount(c"tmpfs", path.as_c_str(), c"tmpfs", flags, c"mode=0755,size=64k"))?;
                }
                MountStep::MaskFile(path) => ignore_missing(mount_bind(c"/dev/null", path.as_c_str()))?,
                MountStep::ReadOnly { path, flags } => {
                    mount_bind_recursive(path.as_c_str(), path.as_c_str())?;
                    mount_remount(path.as_c_str(), *flags, c"")?;
                }
                MountStep::OpenTree { path, required } => {
                    let tree = match open_detached_tree(path) {
                        Err(Errno::NOENT) if !required => None,
                        other => Some(other?),
                    };
                    *trees.get_mut(opened).ok_or(Errno::NOSPC)? = tree;
                    opened += 1;
                }
                MountStep::AttachTree { tree, place, read_only } => {
                    if let Some(Some(tree)) = trees.get(*tree) {
                        attach_tree(tree, place, *read_only)?;
                    }
                }
                MountStep::MakeMaskReadOnly(path) => {
                    let flags =
                        MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
                    make_mask_read_only(path, flags)?;
                }
            }
        }
        // `..` from a directory that was entered before the mounts would lead below the masks.
        rustix::process::chdir(self.dir.as_c_str())
    }

    /// Becomes the first process of the PID namespace: all others end with it, and it sees no process outside.
    fn become_init(&self, report: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let flags = libc::CLONE_PARENT | libc::SIGCHLD;
        // SAFETY: without a stack of its own the child continues here with a copy of this process, as after
        // fork; neither uses what other threads of the copied program held.
        #[expect(unsafe_code, reason = "no library offers a fork that keeps the parent")]
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        match i32::try_from(pid) {
            Ok(0) => {}
            Ok(pid) if pid > 0 => {
                send_report(report, pid);
                // SAFETY: ends this process at once without running anything of the copied program.
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

/// Through these files root could make the kernel run programs outside or stop the machine: they check the user
/// id and not capabilities, so a user namespace does not protect them.
fn protect_kernel_files() -> rustix::io::Result<()> {
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

impl UserMapping {
    /// Maps user and group to the same ids inside.
    fn write_maps(&self) -> rustix::io::Result<()> {
        // The files below belong to nobody while this copy of the daemon is not dumpable.
        set_dumpable_behavior(DumpableBehavior::Dumpable)?;
        match write_file(c"/proc/self/setgroups", b"deny") {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        write_file(c"/proc/self/uid_map", self.users.to_bytes())?;
        write_file(c"/proc/self/gid_map", self.groups.to_bytes())
    }
}

/// A detached copy of the mount tree at a path. A link at the path is not followed.
fn open_detached_tree(path: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    open_tree(CWD, path, flags)
}

/// Attaches a detached tree at its target.
fn attach_tree(tree: &OwnedFd, place: &MountTarget, read_only: bool) -> rustix::io::Result<()> {
    let rights = set_attributes(tree, read_only);
    let path_flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(place.base.as_c_str(), path_flags, Mode::empty())?;
    for (number, name) in place.below.iter().enumerate() {
        let is_dir = place.is_dir || number + 1 < place.below.len();
        let kind = if is_dir { OFlags::DIRECTORY } else { OFlags::empty() };
        at = match openat(&at, name.as_c_str(), path_flags | kind, Mode::empty()) {
            Err(Errno::NOENT) if is_dir => {
                mkdirat(&at, name.as_c_str(), Mode::RWXU)?;
                openat(&at, name.as_c_str(), path_flags | kind, Mode::empty())?
            }
            Err(Errno::NOENT) => {
                let new = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                openat(&at, name.as_c_str(), new, Mode::RUSR | Mode::WUSR)?
            }
            other => other?,
        };
    }
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, c"", &at, c"", flags)?;
    match rights {
        // Before Linux 5.12 only an attached mount can be changed, by a path.
        Err(Errno::NOSYS) => {
            let now =
                read_only_as(rustix::fs::fstatvfs(tree)?.f_flag) | MountFlags::NOSUID | MountFlags::NODEV;
            let flags = if read_only { now } else { now - MountFlags::RDONLY };
            mount_remount(FdPath::of(tree).as_c_str(), flags, c"")
        }
        other => other,
    }
}

/// The path of a descriptor, without heap memory.
struct FdPath([u8; 32]);

impl FdPath {
    fn of(file: &OwnedFd) -> Self {
        let mut path = [0; 32];
        path[..14].copy_from_slice(b"/proc/self/fd/");
        let mut number = file.as_raw_fd().unsigned_abs();
        let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
        for at in (14..14 + digits).rev() {
            path[at] = b'0' + (number % 10) as u8;
            number /= 10;
        }
        Self(path)
    }

    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

/// Removes what no job needs in a mount: setuid programs, devices, and on request writing.
fn set_attributes(tree: &OwnedFd, read_only: bool) -> rustix::io::Result<()> {
    /// The kernel's structure; not every C library has it.
    #[repr(C)]
    struct MountAttributes {
        set: u64,
        clear: u64,
        propagation: u64,
        namespace: u64,
    }
    const READ_ONLY: u64 = 0x1;
    const NO_SUID: u64 = 0x2;
    const NO_DEVICES: u64 = 0x4;
    let set = NO_SUID | NO_DEVICES | if read_only { READ_ONLY } else { 0 };
    let attributes = MountAttributes { set, clear: 0, propagation: 0, namespace: 0 };
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the path is empty and NUL-terminated, and the attributes have the given size.
    #[expect(unsafe_code, reason = "no library offers the call")]
    let result = unsafe {
        let (path, size) = (c"".as_ptr(), size_of::<MountAttributes>());
        libc::syscall(libc::SYS_mount_setattr, tree.as_raw_fd(), path, flags, &raw const attributes, size)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}

/// Makes a mask read-only. When another process removes the directory meanwhile, such as one of a daemon that
/// shuts down, the kernel removes the mask shortly before the name.
fn make_mask_read_only(path: &CStr, flags: MountFlags) -> rustix::io::Result<()> {
    for _ in 0..REMOUNT_ATTEMPTS {
        match mount_remount(path, flags, c"") {
            Err(Errno::INVAL) => std::thread::sleep(REMOUNT_DELAY),
            other => return ignore_missing(other),
        }
    }
    Err(Errno::INVAL)
}

/// A path that no longer exists needs no mask.
fn ignore_missing(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Closes on exec every descriptor that the daemon inherited; this process still needs its own.
fn close_inherited() {
    // SAFETY: sets close-on-exec, which takes effect when the program is run.
    #[expect(unsafe_code, reason = "no library offers the call")]
    unsafe {
        // An older kernel does not know it, and the daemon opens its own files with close-on-exec anyway.
        let _ = libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
}

fn write_file(path: &CStr, bytes: &[u8]) -> rustix::io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, bytes).map(|_| ())
}

fn send_report(report: BorrowedFd<'_>, number: i32) {
    // Four bytes fit into a pipe. If they are missing, the parent sees an empty pipe.
    let _ = rustix::io::write(report, &number.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_have_paths() {
        let file = std::fs::File::open("/dev/null").unwrap();
        for number in [0, 9, 10, 123] {
            let copy = rustix::io::fcntl_dupfd_cloexec(&file, number).unwrap();
            let path = FdPath::of(&copy);
            let path = path.as_c_str().to_str().unwrap();
            assert_eq!(path, format!("/proc/self/fd/{}", copy.as_raw_fd()));
            assert_eq!(std::fs::read_link(path).unwrap(), std::path::Path::new("/dev/null"));
        }
    }
}
