//! A running program of a job: started in its sandbox, waited for, and never leaked.

use std::io;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::Sandbox;

/// A running program; dropping it kills it and its children.
pub(crate) struct Process {
    child: Child,
    group: Option<Pid>,
    /// The first process of a PID namespace, which is not a child that the runtime knows.
    #[cfg(target_os = "linux")]
    init: Option<linux::InitProcess>,
}

/// Starts a program; without a sandbox it runs like the daemon itself. It leads a process group of its own, so
/// that the whole group can be killed.
pub(crate) fn spawn(command: &mut Command, sandbox: Option<Sandbox<'_>>) -> io::Result<Process> {
    command.process_group(0).kill_on_drop(true);
    #[cfg(target_os = "linux")]
    {
        linux::spawn(command, sandbox)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = sandbox;
        Ok(Process::new(command.spawn()?))
    }
}

impl Process {
    fn new(child: Child) -> Self {
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Self {
            child,
            group,
            #[cfg(target_os = "linux")]
            init: None,
        }
    }

    /// Its output pipes; call it once.
    pub(crate) fn pipes(&mut self) -> (ChildStdout, ChildStderr) {
        let stdout = self.child.stdout.take().expect("stdout is piped when the command is started");
        let stderr = self.child.stderr.take().expect("stderr is piped when the command is started");
        (stdout, stderr)
    }

    /// Its standard input, when that is a pipe.
    pub(crate) fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Waits for the end.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        #[cfg(target_os = "linux")]
        if let Some(init) = &mut self.init {
            return init.wait().await;
        }
        self.child.wait().await
    }

    /// Signals it while another task waits for it.
    pub(crate) fn signals(&self) -> SignalForwarder {
        SignalForwarder {
            group: self.group,
            #[cfg(target_os = "linux")]
            init: self.init.as_ref().and_then(linux::InitProcess::handle),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signals().kill();
    }
}

/// Sends signals to a program. Signals to an ended program have no effect.
pub(crate) struct SignalForwarder {
    group: Option<Pid>,
    #[cfg(target_os = "linux")]
    init: Option<std::os::fd::OwnedFd>,
}

impl SignalForwarder {
    /// Interrupts the program alone: Terraform stops its providers in its own order.
    pub(crate) fn interrupt(&self) {
        #[cfg(target_os = "linux")]
        if let Some(init) = &self.init {
            let _ = rustix::process::pidfd_send_signal(init, Signal::INT);
            return;
        }
        if let Some(pid) = self.group {
            let _ = kill_process(pid, Signal::INT);
        }
    }

    /// Kills the program and its children, as far as they are still in its group or namespace.
    pub(crate) fn kill(&self) {
        #[cfg(target_os = "linux")]
        if let Some(init) = &self.init {
            // All processes of a PID namespace end with the first one.
            let _ = rustix::process::pidfd_send_signal(init, Signal::KILL);
            return;
        }
        if let Some(pid) = self.group {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

#[cfg(target_os = "linux")]
pub(super) use linux::probe;

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::CString;
    use std::os::fd::{AsFd as _, OwnedFd};
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
    use std::path::Path;

    use rustix::io::Errno;
    use rustix::pipe::{PipeFlags, pipe_with};
    use rustix::process::{PidfdFlags, Resource, WaitId, WaitIdOptions, pidfd_open, waitid};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use super::{Command, ExitStatus, Pid, Process, Sandbox, io};
    use crate::isolation::mount_plan::{MountPlan, MountStep, MountTarget, c_string};
    use crate::isolation::process_setup::{Namespaces, PROBED, ProcessSetup, SetupStage, UserMapping};
    use crate::isolation::{IsolationLevel, IsolationSupport};

    const NAMESPACE_LIMIT_REACHED: &str = "no namespace can be created: the limit is reached (max_user_namespaces, max_pid_namespaces and max_mnt_namespaces in /proc/sys/user)";

    /// A process that is waited for by its pidfd.
    pub(super) struct InitProcess {
        fd: Option<AsyncFd<OwnedFd>>,
    }

    pub(super) fn spawn(command: &mut Command, sandbox: Option<Sandbox<'_>>) -> io::Result<Process> {
        // Core dumps would contain the secrets of a job, and may be large.
        let mut limits = vec![(Resource::Core, 0)];
        limits.extend(
            sandbox.and_then(|sandbox| sandbox.config.limits.data_bytes).map(|bytes| (Resource::Data, bytes)),
        );
        let groups = sandbox.into_iter().flat_map(|sandbox| sandbox.groups.procs_files());
        let entry = ProcessSetup {
            limits,
            groups: groups.filter_map(|path| c_string(&path)).collect(),
            namespaces: sandbox.and_then(|sandbox| namespaces(sandbox, command.as_std().get_current_dir())),
            ..ProcessSetup::default()
        };
        let has_init = entry.namespaces.as_ref().is_some_and(|namespaces| namespaces.processes);
        let reported = enter(command, entry)?;
        match command.spawn() {
            Ok(child) => {
                let mut process = Process::new(child);
                if has_init {
                    let pid = EntryReport::read(&reported).init.ok_or(io::ErrorKind::UnexpectedEof)?;
                    process.init = Some(InitProcess::new(pid)?);
                }
                Ok(process)
            }
            Err(error) => Err(explain(error, EntryReport::read(&reported))),
        }
    }

    fn namespaces(sandbox: Sandbox<'_>, dir: Option<&Path>) -> Option<Namespaces> {
        let support = &sandbox.config.support;
        let dir = c_string(dir.unwrap_or(Path::new("/")))?;
        let as_root = rustix::process::geteuid().is_root();
        (support.level != IsolationLevel::None).then(|| Namespaces {
            identity: support.user_namespace.then(identity),
            processes: support.level == IsolationLevel::Full,
            protect_kernel_files: as_root,
            mount_plan: MountPlan::of(sandbox, as_root, &sandbox.config.registry.read()),
            dir,
        })
    }

    fn identity() -> UserMapping {
        let line = |id: u32| CString::new(format!("{id} {id} 1")).expect("digits and blanks");
        UserMapping {
            users: line(rustix::process::geteuid().as_raw()),
            groups: line(rustix::process::getegid().as_raw()),
        }
    }

    /// Makes the command's process set itself up before it runs its program. Returns the pipe that it reports
    /// to.
    fn enter(command: &mut Command, mut entry: ProcessSetup) -> io::Result<OwnedFd> {
        let (reads, writes) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // SAFETY: `ProcessSetup::enter` makes system calls only; what it uses was allocated before.
        #[expect(unsafe_code, reason = "there is no other way to namespaces for a child")]
        unsafe {
            command.as_std_mut().pre_exec(move || entry.enter(writes.as_fd()));
        }
        Ok(reads)
    }

    /// What a process reported during its setup.
    #[derive(Default)]
    struct EntryReport {
        init: Option<Pid>,
        failed: Option<i32>,
    }

    impl EntryReport {
        /// Both writers have finished when the start has succeeded or failed.
        fn read(reported: &OwnedFd) -> Self {
            let mut report = Self::default();
            let mut bytes = [0; 4];
            while rustix::io::read(reported, &mut bytes) == Ok(bytes.len()) {
                let number = i32::from_ne_bytes(bytes);
                if number < 0 {
                    report.failed = Some(-number);
                } else {
                    report.init = Pid::from_raw(number);
                }
            }
            report
        }
    }

    /// Why a start failed; waits for the process that remains.
    fn explain(error: io::Error, report: EntryReport) -> io::Error {
        if let Some(pid) = report.init {
            // It has reported everything and is about to end.
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
        }
        match report.failed {
            // The kernel uses the error of a full disk here.
            Some(code)
                if code == SetupStage::Namespaces as i32
                    && Errno::from_io_error(&error) == Some(Errno::NOSPC) =>
            {
                io::Error::new(io::ErrorKind::QuotaExceeded, NAMESPACE_LIMIT_REACHED)
            }
            Some(code) => io::Error::new(error.kind(), format!("{}: {error}", SetupStage::describe(code))),
            None => error,
        }
    }

    impl InitProcess {
        fn new(pid: Pid) -> io::Result<Self> {
            // It is our child and nobody has waited for it, so the pid is still valid. No flag: kernels before
            // 5.10 know none, and nothing here blocks in a system call.
            let fd = pidfd_open(pid, PidfdFlags::empty())?;
            // SAFETY: the descriptor is owned here, and nobody closes or replaces it before it is dropped.
            #[expect(
                unsafe_code,
                reason = "there is no safe way to wait for a process that is not a child of the runtime"
            )]
            let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
            Ok(Self { fd: Some(fd.map_err(io::Error::from)?) })
        }

        pub(super) fn handle(&self) -> Option<OwnedFd> {
            self.fd.as_ref().and_then(|fd| fd.get_ref().try_clone().ok())
        }

        pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
            let Some(fd) = &self.fd else { return Err(io::ErrorKind::NotFound.into()) };
            let _ready = fd.readable().await?;
            let status = reap(fd.get_ref())?.ok_or(io::ErrorKind::WouldBlock)?;
            self.fd = None;
            Ok(status)
        }
    }

    impl Drop for InitProcess {
        fn drop(&mut self) {
            let Some(fd) = self.fd.take() else { return };
            let _ = rustix::process::pidfd_send_signal(fd.get_ref(), rustix::process::Signal::KILL);
            let is_over = !matches!(reap(fd.get_ref()), Ok(None));
            // Without a runtime this process is ending too, and init reaps the child.
            if !is_over && let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move {
                    if fd.readable().await.is_ok() {
                        let _ = reap(fd.get_ref());
                    }
                });
            }
        }
    }

    /// The exit status, if it has ended.
    fn reap(fd: &OwnedFd) -> io::Result<Option<ExitStatus>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = match waitid(WaitId::PidFd(fd.as_fd()), options) {
            Ok(status) => status,
            Err(Errno::AGAIN) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(status.map(|status| {
            let raw = match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => code << 8,
                (None, Some(signal)) => signal,
                (None, None) => 0,
            };
            ExitStatus::from_raw(raw)
        }))
    }

    /// Probes what the kernel permits, highest level first.
    pub(in crate::isolation) fn probe() -> IsolationSupport {
        let mut reason = None;
        for (level, user_namespace) in
            [(IsolationLevel::Full, false), (IsolationLevel::Full, true), (IsolationLevel::Directories, true)]
        {
            match attempt(level, user_namespace) {
                Ok(()) => {
                    let reason = reason.filter(|_| level != IsolationLevel::Full);
                    return IsolationSupport { level, reason, user_namespace };
                }
                // Ordinary users may never create namespaces without a user namespace.
                Err(_) if !user_namespace => {}
                // The reason why the next lower level had to be tried.
                Err(describe) => reason = Some(describe),
            }
        }
        IsolationSupport { level: IsolationLevel::None, reason, user_namespace: false }
    }

    /// Whether the kernel supports waiting by pidfd, as [`InitProcess`] does: Linux 5.4 and newer, unless a
    /// seccomp filter forbids it.
    fn can_wait_by_pidfd() -> rustix::io::Result<()> {
        let own = pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
        match waitid(WaitId::PidFd(own.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            // No process is its own child.
            Err(Errno::CHILD) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn attempt(level: IsolationLevel, user_namespace: bool) -> Result<(), String> {
        if level == IsolationLevel::Full {
            can_wait_by_pidfd().map_err(|error| format!("the kernel cannot wait by pidfd: {error}"))?;
        }
        let devices = CString::new("/dev").expect("no zero in it");
        let place = MountTarget { base: devices.clone(), below: Vec::new(), is_dir: true };
        let steps = vec![
            MountStep::OpenTree { path: devices.clone(), required: true },
            MountStep::MaskDirectory(devices),
            MountStep::AttachTree { tree: 0, place, read_only: false },
        ];
        let namespaces = Namespaces {
            identity: user_namespace.then(identity),
            processes: level == IsolationLevel::Full,
            protect_kernel_files: rustix::process::geteuid().is_root(),
            mount_plan: MountPlan { steps, trees: vec![None], ..MountPlan::default() },
            dir: CString::new("/").expect("no zero in it"),
        };
        let entry =
            ProcessSetup { namespaces: Some(namespaces), probe_only: true, ..ProcessSetup::default() };
        let mut command = Command::new("/proc/self/exe");
        let reported = enter(&mut command, entry).map_err(|error| error.to_string())?;
        let error = match command.as_std_mut().spawn() {
            Err(error) => error,
            // Unreachable: the setup fails before it would run anything.
            Ok(mut child) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("a probing process was started".to_owned());
            }
        };
        let succeeded = error.raw_os_error() == Some(PROBED.raw_os_error());
        let error = explain(error, EntryReport::read(&reported));
        if succeeded { Ok(()) } else { Err(error.to_string()) }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn too_many_namespaces_are_no_full_disk() {
            let failed = |stage: SetupStage| {
                let report = EntryReport { init: None, failed: Some(stage as i32) };
                explain(Errno::NOSPC.into(), report)
            };
            let error = failed(SetupStage::Namespaces);
            assert_ne!(error.kind(), io::ErrorKind::StorageFull);
            assert!(error.to_string().contains("max_user_namespaces"), "{error}");
            assert_eq!(failed(SetupStage::Mounts).kind(), io::ErrorKind::StorageFull);
        }
    }
}
