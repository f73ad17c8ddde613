//! Resource limits of jobs: control groups of version 2 or 1 where the daemon may create them, else the
//! resource limits of each process.

use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::cgroups;
use super::cgroups::{JobCgroups, PREFIX};

/// Limits of one job; `None` for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct JobLimits {
    pub memory_bytes: Option<u64>,
    /// Processes and threads at once.
    pub processes: Option<u64>,
    /// Processors; fractions are allowed.
    pub processors: Option<f64>,
}

/// The period of the CPU quota.
const CPU_PERIOD_US: f64 = 100_000.0;

/// The group that a daemon moves itself into: in version 2 a group with processes cannot have subgroups with
/// controllers.
const DAEMON_GROUP: &str = "coder-daemon";

/// How often the groups of a job are created when starting daemons take them for stale ones.
const CREATE_ATTEMPTS: u32 = 20;

/// One limit, as files of a control group.
#[derive(Debug, Clone, PartialEq)]
struct CgroupSetting {
    controller: &'static str,
    /// File and content, for version 2 and for version 1.
    unified: (&'static str, String),
    legacy: Vec<(&'static str, String)>,
}

impl JobLimits {
    fn settings(&self) -> Vec<CgroupSetting> {
        let memory = self.memory_bytes.map(|bytes| CgroupSetting {
            controller: "memory",
            unified: ("memory.max", bytes.to_string()),
            legacy: vec![("memory.limit_in_bytes", bytes.to_string())],
        });
        let processes = self.processes.map(|number| CgroupSetting {
            controller: "pids",
            unified: ("pids.max", number.to_string()),
            legacy: vec![("pids.max", number.to_string())],
        });
        let processors = self.processors.map(|number| {
            let quota = number * CPU_PERIOD_US;
            CgroupSetting {
                controller: "cpu",
                unified: ("cpu.max", format!("{quota:.0} {CPU_PERIOD_US:.0}")),
                legacy: vec![
                    ("cpu.cfs_period_us", format!("{CPU_PERIOD_US:.0}")),
                    ("cpu.cfs_quota_us", format!("{quota:.0}")),
                ],
            }
        });
        [memory, processes, processors].into_iter().flatten().collect()
    }
}

/// A directory in which jobs get groups, and the files to write in each.
#[derive(Debug, Clone, PartialEq)]
struct CgroupParent {
    dir: PathBuf,
    files: Vec<(&'static str, String)>,
}

/// How the limits are enforced on this machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AppliedLimits {
    parents: Vec<CgroupParent>,
    /// Data segment limit of each process, where no memory group can be created.
    pub(super) data_bytes: Option<u64>,
    /// For messages: what is enforced, and what is not.
    pub(crate) descriptions: Vec<String>,
}

impl AppliedLimits {
    /// Detects how limits can be enforced, and prepares the control groups. Changes nothing without limits.
    pub(crate) fn detect(limits: &JobLimits) -> Self {
        let settings = limits.settings();
        if settings.is_empty() {
            return Self::default();
        }
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let paths = CgroupPaths::read(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
        let mut applied = Self::default();
        for setting in settings {
            let controller = setting.controller;
            let found = paths
                .legacy(controller)
                .map(|dir| (dir, 1))
                .or_else(|| paths.unified(controller).map(|dir| (dir, 2)));
            match found {
                Some((dir, version)) => {
                    let files = if version == 2 { vec![setting.unified] } else { setting.legacy };
                    match applied.parents.iter_mut().find(|parent| parent.dir == dir) {
                        Some(parent) => parent.files.extend(files),
                        None => applied.parents.push(CgroupParent { dir, files }),
                    }
                    applied.descriptions.push(format!("{controller}: control group of version {version}"));
                }
                None if controller == "memory" => {
                    applied.data_bytes = limits.memory_bytes;
                    applied.descriptions.push(
                        "memory: limited per process, because no control group can be created".to_owned(),
                    );
                }
                None => {
                    applied
                        .descriptions
                        .push(format!("{controller}: not limited, because no control group can be created"));
                }
            }
        }
        for parent in &applied.parents {
            cgroups::remove_stale(&parent.dir);
        }
        applied
    }

    /// Whether jobs are in groups, which they must not leave.
    pub(crate) const fn has_groups(&self) -> bool {
        !self.parents.is_empty()
    }

    pub(crate) fn create_groups(&self) -> std::io::Result<JobCgroups> {
        let mut attempts = 1;
        loop {
            match self.try_create_groups() {
                // A daemon that started at this moment took the new group for a stale one.
                Err(error) if is_lost_to_another_daemon(&error) && attempts < CREATE_ATTEMPTS => {
                    attempts += 1
                }
                created => return created,
            }
        }
    }

    fn try_create_groups(&self) -> std::io::Result<JobCgroups> {
        let mut groups = JobCgroups::default();
        let name = format!("{PREFIX}{}", Uuid::new_v4());
        for parent in &self.parents {
            let dir = parent.dir.join(&name);
            groups.add(&dir)?;
            for (file, content) in &parent.files {
                std::fs::write(dir.join(file), content)?;
            }
        }
        Ok(groups)
    }
}

/// The groups that this process is in.
#[derive(Debug, Default, PartialEq, Eq)]
struct CgroupPaths {
    unified: Option<PathBuf>,
    legacy: Vec<(String, PathBuf)>,
}

impl CgroupPaths {
    /// Parses `/proc/self/cgroup` and `/proc/self/mountinfo`.
    fn read(groups: &str, mounts: &str) -> Self {
        let mut paths = Self::default();
        for mount in mounts.lines() {
            let Some((before, after)) = mount.split_once(" - ") else { continue };
            let mut before = before.split(' ').skip(3);
            let (Some(root), Some(point)) = (before.next(), before.next()) else { continue };
            let mut after = after.split(' ');
            let (kind, options) = (after.next().unwrap_or_default(), after.nth(1).unwrap_or_default());
            let inside = |wanted: &dyn Fn(&str) -> bool| {
                let path = groups.lines().find_map(|line| {
                    let mut parts = line.splitn(3, ':').skip(1);
                    let (controllers, path) = (parts.next()?, parts.next()?);
                    wanted(controllers).then_some(path)
                })?;
                // A container may see only a part of the tree.
                let below = Path::new(path)
                    .strip_prefix(root)
                    .ok()
                    .or_else(|| Path::new(path).strip_prefix("/").ok())?;
                Some(Path::new(point).join(below))
            };
            if kind == "cgroup2" {
                paths.unified = paths.unified.or_else(|| inside(&str::is_empty));
            } else if kind == "cgroup" {
                for controller in ["memory", "pids", "cpu"] {
                    let has = |list: &str| list.split(',').any(|one| one == controller);
                    if has(options)
                        && let Some(dir) = inside(&has)
                    {
                        paths.legacy.push((controller.to_owned(), dir));
                    }
                }
            }
        }
        paths
    }

    /// Where a group with this controller can be created in version 1.
    fn legacy(&self, controller: &str) -> Option<PathBuf> {
        let dir = &self.legacy.iter().find(|(known, _)| known == controller)?.1;
        can_create_group(dir).then(|| dir.clone())
    }

    /// The same in version 2; this process moves into a separate group beside those of its jobs.
    fn unified(&self, controller: &str) -> Option<PathBuf> {
        let mut dir = self.unified.clone()?;
        if dir.file_name().is_some_and(|name| name == DAEMON_GROUP) {
            dir.pop();
        }
        let lists = |file: &str| {
            let text = std::fs::read_to_string(dir.join(file)).unwrap_or_default();
            text.split_whitespace().any(|one| one == controller)
        };
        if !lists("cgroup.controllers") || !can_create_group(&dir) {
            return None;
        }
        if lists("cgroup.subtree_control") {
            return Some(dir);
        }
        let enable = || std::fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
        if enable().is_ok() {
            return Some(dir);
        }
        let own = dir.join(DAEMON_GROUP);
        let _ = std::fs::create_dir(&own);
        std::fs::write(own.join("cgroup.procs"), "0").ok()?;
        enable().is_ok().then_some(dir)
    }
}

/// Whether a group was locked or removed before this daemon had locked it.
fn is_lost_to_another_daemon(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::WouldBlock)
}

fn can_create_group(dir: &Path) -> bool {
    let trial = dir.join(format!("{PREFIX}{}", Uuid::new_v4()));
    std::fs::create_dir(&trial).is_ok() && std::fs::remove_dir(&trial).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_in_both_versions() {
        let groups = "7:pids:/\n3:cpu,cpuacct:/a/b\n1:name=systemd:/\n0::/user.slice/x\n";
        let mounts = "30 25 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                      31 25 0:27 /a /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      32 25 0:28 / /sys/fs/cgroup/pids rw shared:1 - cgroup cgroup rw,pids\n\
                      33 25 0:29 / /proc rw - proc proc rw\n";
        let paths = CgroupPaths::read(groups, mounts);
        assert_eq!(paths.unified.as_deref(), Some(Path::new("/sys/fs/cgroup/unified/user.slice/x")));
        let legacy: Vec<_> =
            paths.legacy.iter().map(|(name, dir)| (name.as_str(), dir.to_str().unwrap())).collect();
        assert_eq!(legacy, [("cpu", "/sys/fs/cgroup/cpu/b"), ("pids", "/sys/fs/cgroup/pids/")]);
    }

    #[test]
    fn limits_become_settings() {
        let limits = JobLimits { memory_bytes: Some(1 << 30), processes: Some(100), processors: Some(1.5) };
        let files: Vec<String> = limits
            .settings()
            .into_iter()
            .map(|setting| format!("{} {}", setting.unified.0, setting.unified.1))
            .collect();
        assert_eq!(files, ["memory.max 1073741824", "pids.max 100", "cpu.max 150000 100000"]);
        assert_eq!(AppliedLimits::detect(&JobLimits::default()), AppliedLimits::default());
    }

    /// A daemon that starts removes stale groups, and other daemons create groups at the same moment.
    #[test]
    fn groups_are_created_while_another_daemon_removes_stale_ones() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path();
        let applied = AppliedLimits {
            parents: vec![CgroupParent { dir: dir.to_owned(), files: Vec::new() }],
            ..AppliedLimits::default()
        };
        let is_done = std::sync::atomic::AtomicBool::new(false);
        let created: Vec<std::io::Result<bool>> = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    cgroups::remove_stale(dir);
                }
            });
            let created = (0..500).map(|_| {
                let groups = applied.create_groups()?;
                // The other daemon goes through the directory at least once.
                std::thread::sleep(std::time::Duration::from_micros(100));
                Ok(groups.dirs()[0].is_dir())
            });
            let created = created.collect();
            is_done.store(true, std::sync::atomic::Ordering::Relaxed);
            created
        });
        for group in created {
            assert!(group.expect("a group is created"), "a group in use was removed");
        }
        assert_eq!(dir.read_dir().unwrap().count(), 0);
    }

    #[test]
    fn only_stale_groups_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let dir = |name: &str| parent.path().join(name);
        let (stale, used) = (format!("{PREFIX}stale"), format!("{PREFIX}used"));
        for name in ["another", &*stale] {
            std::fs::create_dir(dir(name)).unwrap();
        }
        let mut groups = JobCgroups::default();
        groups.add(&dir(&used)).unwrap();
        cgroups::remove_stale(parent.path());
        assert!(dir("another").exists() && dir(&used).exists() && !dir(&stale).exists());
        drop(groups);
        assert!(!dir(&used).exists());
    }

    #[cfg(target_os = "linux")]
    fn command(script: &str) -> tokio::process::Command {
        use std::process::Stdio;
        let mut command = tokio::process::Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A program that would run without the limits of its job does not start.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_program_does_not_start_when_its_group_has_vanished() {
        use crate::isolation::{SandboxConfig, spawn};
        let (parent, job) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut groups = JobCgroups::default();
        groups.add(&parent.path().join("group")).unwrap();
        std::fs::remove_dir(parent.path().join("group")).unwrap();
        let config = SandboxConfig::default();
        let error = spawn(&mut command("true"), Some(config.for_job(job.path(), &groups))).err();
        let error = error.expect("the program does not start").to_string();
        assert!(error.contains("resource limits cannot be set"), "{error}");
    }

    /// The fallback when no group with this controller can be created.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn without_a_group_memory_is_limited_per_process() {
        use tokio::io::AsyncReadExt as _;

        use crate::isolation::{SandboxConfig, spawn};
        // `tail` holds all that it is to print.
        const SCRIPT: &str =
            "echo $(ulimit -Sd) $(ulimit -Hd); head -c 100000000 /dev/zero | tail -c 100000000 | wc -c";
        let (job, groups) = (tempfile::tempdir().unwrap(), JobCgroups::default());
        let printed = async |data_bytes: Option<u64>| {
            let limits = AppliedLimits { data_bytes, ..AppliedLimits::default() };
            let config = SandboxConfig { limits, ..SandboxConfig::default() };
            let mut process = spawn(&mut command(SCRIPT), Some(config.for_job(job.path(), &groups))).unwrap();
            let (mut stdout, _stderr) = process.pipes();
            let mut text = String::new();
            stdout.read_to_string(&mut text).await.unwrap();
            process.wait().await.unwrap();
            text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(printed(Some(64 << 20)).await, ["65536 65536", "0"]);
        assert_eq!(printed(None).await[1], "100000000");
    }

    /// Names the group in which the test below continues in another process.
    #[cfg(target_os = "linux")]
    const GROUP: &str = "CODER_TEST_CONTROL_GROUP";

    /// A controller of version 2 on this machine, with a file to write.
    #[cfg(target_os = "linux")]
    const CONTROLLERS: [(&str, &str, &str); 4] = [
        ("pids", "pids.max", "50"),
        ("memory", "memory.max", "1073741824"),
        ("cpu", "cpu.max", "150000 100000"),
        // Does not limit jobs, but may be available where version 1 uses the other controllers.
        ("hugetlb", "hugetlb.2MB.max", "2097152"),
    ];

    #[cfg(target_os = "linux")]
    fn offered(dir: &Path) -> Option<(&'static str, &'static str, &'static str)> {
        let text = std::fs::read_to_string(dir.join("cgroup.controllers")).ok()?;
        CONTROLLERS.into_iter().find(|(name, ..)| text.split_whitespace().any(|one| one == *name))
    }

    /// In version 1 processes are killed one by one.
    #[cfg(target_os = "linux")]
    #[test]
    fn group_of_version_1_is_removed_with_its_processes() {
        use std::os::unix::process::ExitStatusExt as _;
        coder_requirements::require!(ControlGroupsV1);
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let paths = CgroupPaths::read(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
        let dir = paths.legacy("pids").expect("the kernel permits groups of version 1");
        // In a separate directory, because other tests remove stale groups.
        let base = dir.join(format!("coder-test-{}", Uuid::new_v4()));
        std::fs::create_dir(&base).unwrap();
        let parent = CgroupParent { dir: base.clone(), files: Vec::new() };
        let groups =
            AppliedLimits { parents: vec![parent], ..AppliedLimits::default() }.create_groups().unwrap();
        let mut job = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        for entrance in groups.procs_files() {
            std::fs::write(entrance, job.id().to_string()).unwrap();
        }
        drop(groups);
        assert_eq!(job.wait().unwrap().signal(), Some(9));
        std::fs::remove_dir(base).unwrap();
    }

    /// Version 2 with a real kernel: a daemon in a group with processes moves itself into a subgroup, its jobs get groups with
    /// limits, processes join and are killed with them, and the groups are removed.
    #[cfg(target_os = "linux")]
    #[test]
    fn groups_of_version_2_hold_a_job_and_end_with_it() {
        if let Some(base) = std::env::var_os(GROUP) {
            return inside(Path::new(&base));
        }
        coder_requirements::require!(ControlGroupControllersV2);
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let paths = CgroupPaths::read(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
        let root = paths.unified.expect("the kernel permits groups of version 2");
        let (controller, ..) = offered(&root).expect("the kernel has a controller for them");
        let control = root.join("cgroup.subtree_control");
        let enabled = read(control.to_str().unwrap()).split_whitespace().any(|one| one == controller);
        if !enabled {
            std::fs::write(&control, format!("+{controller}")).unwrap();
        }
        let base = root.join(format!("coder-test-{}", Uuid::new_v4()));
        std::fs::create_dir(&base).unwrap();
        let name = "isolation::limits::tests::groups_of_version_2_hold_a_job_and_end_with_it";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let child = child.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(GROUP, &base);
        let output = child.output().unwrap();
        let left: Vec<_> = base.read_dir().unwrap().flatten().filter(|entry| entry.path().is_dir()).collect();
        for dir in left.iter().map(std::fs::DirEntry::path).chain([base]) {
            std::fs::remove_dir(dir).unwrap();
        }
        if !enabled {
            std::fs::write(&control, format!("-{controller}")).unwrap();
        }
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(left.iter().map(std::fs::DirEntry::file_name).collect::<Vec<_>>(), [DAEMON_GROUP]);
    }

    /// In the group, which contains this process and therefore cannot have subgroups with controllers yet.
    #[cfg(target_os = "linux")]
    fn inside(base: &Path) {
        use std::os::unix::process::ExitStatusExt as _;
        std::fs::write(base.join("cgroup.procs"), "0").unwrap();
        let (controller, file, content) = offered(base).unwrap();
        let paths = || {
            let read = |path: &str| std::fs::read_to_string(path).unwrap();
            CgroupPaths::read(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))
        };
        assert_eq!(paths().unified.as_deref(), Some(base));
        assert_eq!(paths().unified(controller).as_deref(), Some(base));
        assert_eq!(
            paths().unified,
            Some(base.join(DAEMON_GROUP)),
            "the daemon has moved itself into its subgroup"
        );
        // A second detection, as by another daemon of this process, finds the same.
        assert_eq!(paths().unified(controller).as_deref(), Some(base));
        let parent = CgroupParent { dir: base.to_owned(), files: vec![(file, content.to_owned())] };
        let applied = AppliedLimits { parents: vec![parent], ..AppliedLimits::default() };
        let groups = applied.create_groups().unwrap();
        let dir = groups.dirs()[0].clone();
        assert_eq!(std::fs::read_to_string(dir.join(file)).unwrap().trim(), content);
        let mut job = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        for entrance in groups.procs_files() {
            std::fs::write(entrance, job.id().to_string()).unwrap();
        }
        let own = std::fs::read_to_string(format!("/proc/{}/cgroup", job.id())).unwrap();
        assert!(own.contains(PREFIX), "{own}");
        // Groups of earlier daemons are removed with their processes; groups in use stay, even empty ones.
        let (stale, waiting) = (base.join(format!("{PREFIX}stale")), applied.create_groups().unwrap());
        std::fs::create_dir(&stale).unwrap();
        let mut left = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        std::fs::write(stale.join("cgroup.procs"), left.id().to_string()).unwrap();
        cgroups::remove_stale(base);
        assert_eq!(left.wait().unwrap().signal(), Some(9));
        assert!(!stale.exists() && dir.exists() && waiting.dirs()[0].exists());
        assert!(job.try_wait().unwrap().is_none());
        // Dropping the groups kills what still runs and waits for it.
        drop((groups, waiting));
        assert!(!dir.exists());
        assert_eq!(job.wait().unwrap().signal(), Some(9));
    }
}
