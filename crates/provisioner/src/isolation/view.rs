//! What a job sees of the machine's files: as steps in their order, ready for a process that may only make system calls.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::MountFlags;

use super::Cell;

const SSH_INCLUDED: &str = "/etc/ssh/ssh_config.d";

/// One change of what is seen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// An empty directory lies over this one.
    Cover(CString),
    /// An empty device lies over this file.
    CoverFile(CString),
    /// This directory is not changed from within.
    ReadOnly { path: CString, flags: MountFlags },
    /// What was at this path before the first step is seen there again.
    Show { path: CString, missing: Vec<CString> },
    /// The empty directory stays empty.
    Seal(CString),
}

/// Everything that a job's process changes before it runs a program.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) steps: Vec<Step>,
}

impl View {
    /// What a job is to see. Reads the file system, so that what is not there is not covered.
    pub(super) fn of(cell: Cell<'_>, as_root: bool, others: &[PathBuf]) -> Self {
        let mut view = Self::default();
        let confinement = cell.confinement;
        let cache = std::path::absolute(&confinement.cache).unwrap_or_else(|_| confinement.cache.clone());
        let mut hidden: Vec<&PathBuf> =
            confinement.hidden.iter().chain(others).filter(|path| path.is_absolute()).collect();
        hidden.sort_unstable();
        // The cache may have to be shown again first.
        let (inside, hidden): (Vec<_>, Vec<_>) =
            hidden.into_iter().partition(|path| path.starts_with(&cache));
        let mut covered: Vec<&Path> = Vec::new();
        for path in hidden {
            if covered.iter().any(|above| path.starts_with(above)) {
                continue;
            }
            if path.is_dir() {
                covered.push(path);
            }
            view.cover(path);
        }
        if covered.iter().any(|above| cache.starts_with(above)) {
            view.show(&cache, &covered);
        }
        view.read_only(&cache);
        let before = covered.len();
        let own = ["work", "init", "installing", "modules"].map(|name| cache.join(name));
        for path in own.iter().chain(inside) {
            view.cover(path);
            if path.is_dir() {
                covered.push(path);
            }
        }
        view.show(cell.job, &covered[before..]);
        if let Some(filled) = cell.filled.and_then(|filled| std::path::absolute(filled).ok()) {
            view.show(&filled, &covered[before..]);
        }
        for path in &covered {
            view.steps.extend(c_string(path).map(Step::Seal));
        }
        if as_root {
            view.guard_kernel();
        } else {
            view.leave_out_ssh();
        }
        if as_root || confinement.limits.has_groups() {
            view.guard_groups();
        }
        view
    }

    fn cover(&mut self, path: &Path) {
        let Ok(kind) = path.metadata() else { return };
        let step = if kind.is_dir() { Step::Cover } else { Step::CoverFile };
        self.steps.extend(c_string(path).map(step));
    }

    /// The directory is seen although one above it is covered.
    fn show(&mut self, path: &Path, covered: &[&Path]) {
        let Some(above) = covered.iter().find(|above| path.starts_with(above)) else { return };
        let mut missing: Vec<&Path> = path.ancestors().take_while(|at| at != above).collect();
        missing.reverse();
        let missing = missing.into_iter().filter_map(c_string).collect();
        self.steps.extend(c_string(path).map(|path| Step::Show { path, missing }));
    }

    fn read_only(&mut self, path: &Path) {
        let Ok(now) = statvfs(path) else { return };
        let flags = read_only_as(now.f_flag);
        self.steps.extend(c_string(path).map(|path| Step::ReadOnly { path, flags }));
    }

    /// The administrator could ask the kernel itself for what is covered.
    fn guard_kernel(&mut self) {
        self.read_only(Path::new("/sys"));
        for path in ["/sys/kernel/debug", "/sys/kernel/tracing"].map(Path::new) {
            if path.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
                self.cover(path);
                self.steps.extend(c_string(path).map(Step::Seal));
            }
        }
        for entry in std::fs::read_dir("/dev").into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_block_device()) {
                self.steps.extend(c_string(&entry.path()).map(Step::CoverFile));
            }
        }
    }

    /// In a user namespace the administrator's files seem to be nobody's, and OpenSSH refuses such files where they are
    /// included; without them it goes on.
    fn leave_out_ssh(&mut self) {
        let path = Path::new(SSH_INCLUDED);
        if path.is_dir() {
            self.cover(path);
            self.steps.extend(c_string(path).map(Step::Seal));
        }
    }

    /// A job does not lift its own limits.
    fn guard_groups(&mut self) {
        let root = Path::new("/sys/fs/cgroup");
        self.read_only(root);
        let device = |path: &Path| path.metadata().ok().map(|file| file.dev());
        for entry in root.read_dir().into_iter().flatten().flatten() {
            // The hierarchies of version 1 are mounted below.
            if entry.path().is_dir() && device(&entry.path()) != device(root) {
                self.read_only(&entry.path());
            }
        }
    }
}

/// How to remount read-only what is mounted so now: a remount must keep what the mount below forbids.
pub(super) fn read_only_as(now: StatVfsMountFlags) -> MountFlags {
    let mut flags = MountFlags::BIND | MountFlags::RDONLY;
    for (has, flag) in [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        if now.contains(has) {
            flags |= flag;
        }
    }
    flags
}

pub(super) fn c_string(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolation::{Confinement, Groups};

    fn shown(step: &Step) -> String {
        let text = |path: &CString| path.to_string_lossy().into_owned();
        match step {
            Step::Cover(path) => format!("cover {}", text(path)),
            Step::CoverFile(path) => format!("cover file {}", text(path)),
            Step::ReadOnly { path, .. } => format!("read-only {}", text(path)),
            Step::Show { path, missing } => format!("show {} {}", text(path), missing.len()),
            Step::Seal(path) => format!("seal {}", text(path)),
        }
    }

    #[test]
    fn a_job_sees_its_own_directory_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let dirs = ["config", "other"].map(str::to_owned).into_iter();
        let in_cache = ["work/Session1/template", "init", "installing/one", "modules", "files"]
            .map(|dir| format!("all/cache/{dir}"));
        for path in dirs.chain(in_cache) {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        std::fs::write(root.join("database"), "").unwrap();
        let confinement = Confinement {
            cache: root.join("all/cache"),
            hidden: ["config", "config/below", "all", "database", "missing", "all/cache/files"]
                .map(|name| root.join(name))
                .to_vec(),
            ..Confinement::default()
        };
        let (job, groups) = (root.join("all/cache/work/Session1"), Groups::default());
        let installing = root.join("all/cache/installing/one");
        let cell = confinement.of_job(&job, &groups);
        let at = root.display().to_string();
        let steps = |cell| -> Vec<String> {
            let view = View::of(cell, false, &[root.join("other")]);
            // What else is covered depends on the machine.
            view.steps.iter().map(shown).filter(|step| step.contains(&at)).collect()
        };
        let mut wanted: Vec<String> = [
            "cover {at}/all",
            "cover {at}/config",
            "cover file {at}/database",
            "cover {at}/other",
            "show {at}/all/cache 1",
            "read-only {at}/all/cache",
            "cover {at}/all/cache/work",
            "cover {at}/all/cache/init",
            "cover {at}/all/cache/installing",
            "cover {at}/all/cache/modules",
            "cover {at}/all/cache/files",
            "show {at}/all/cache/work/Session1 1",
            "seal {at}/all",
            "seal {at}/config",
            "seal {at}/other",
            "seal {at}/all/cache/work",
            "seal {at}/all/cache/init",
            "seal {at}/all/cache/installing",
            "seal {at}/all/cache/modules",
            "seal {at}/all/cache/files",
        ]
        .map(|step| step.replace("{at}", &at))
        .to_vec();
        assert_eq!(steps(cell), wanted);
        // A command that fills a directory sees that one of its kind, and nothing else differs.
        wanted.insert(12, format!("show {at}/all/cache/installing/one 1"));
        assert_eq!(steps(cell.filling(&installing)), wanted);
        let elsewhere = root.join("config");
        assert!(
            !steps(cell.filling(&elsewhere)).contains(&format!("show {at}/config 0")),
            "it is no part of the cache"
        );
    }
}
