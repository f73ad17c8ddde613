//! What a job sees of the machine's files: as steps in their order, ready for a process that may only make system calls.
//!
//! Directories of daemons are covered by empty ones, the home directory by the job's own. What a job needs of them is taken
//! before that and attached again at its place: its own directory, providers and programs, which it cannot change.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};
use rustix::mount::MountFlags;

use super::Sandbox;
use super::mounts::Mounts;
use super::registry::RegisteredPaths;
use crate::cache_dir::resolve;

const SSH_INCLUDED: &str = "/etc/ssh/ssh_config.d";

/// What jobs run or read of a daemon's cache.
const USED_OF_CACHE: [&str; 2] = ["plugins", "bundles"];

/// By these a job could have programs started outside: the managers of services, of the machine and of the user.
const MANAGERS: [&str; 3] =
    ["/run/systemd/private", "/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket"];
const MANAGERS_OF_USER: [&str; 2] = ["bus", "systemd"];

/// One change of what is seen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MountStep {
    /// This directory keeps its name: with a directory above it under another name, what lies below would be seen there.
    Pin(CString),
    /// An empty directory lies over this one.
    Cover(CString),
    /// An empty device lies over this file.
    CoverFile(CString),
    /// This directory is not changed from within.
    ReadOnly { path: CString, flags: MountFlags },
    /// What is at this path now is kept, to be attached. It may be gone unless it `must` be there.
    Take { path: CString, must: bool },
    /// What was taken as this one of all is seen here.
    Attach { tree: usize, place: MountTarget, read_only: bool },
    /// The empty directory stays empty.
    Seal(CString),
}

/// Where something is attached: each step down from `base` is made where it is missing, and no link is followed, as the job
/// may have put one there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MountTarget {
    pub(super) base: CString,
    pub(super) below: Vec<CString>,
    pub(super) is_dir: bool,
}

/// Everything that a job's process changes before it runs a program.
#[derive(Debug, Default)]
pub(super) struct MountPlan {
    pub(super) steps: Vec<MountStep>,
    /// Room for what is taken.
    pub(super) trees: Vec<Option<OwnedFd>>,
}

/// Something that a job sees although what it lies in may be covered.
#[derive(Debug)]
struct VisiblePath {
    source: PathBuf,
    at: PathBuf,
    read_only: bool,
    must: bool,
}

impl VisiblePath {
    fn own(path: PathBuf) -> Self {
        Self { source: path.clone(), at: path, read_only: false, must: true }
    }

    fn read_only(source: PathBuf, at: PathBuf) -> Self {
        Self { source, at, read_only: true, must: false }
    }
}

impl MountPlan {
    /// What a job is to see, with the directories that `registered` daemons have. Reads the file system, so that what is not
    /// there is not covered.
    pub(super) fn of(cell: Sandbox<'_>, as_root: bool, registered: &RegisteredPaths) -> Self {
        let confinement = cell.confinement;
        let cache = resolve(&confinement.cache);
        let hidden = confinement.hidden.iter().chain(&registered.hidden).filter(|path| path.is_absolute());
        let mut hidden: BTreeSet<PathBuf> = hidden.map(|path| resolve(path)).chain([cache.clone()]).collect();
        let mounts = Mounts::read();
        let aliases: Vec<PathBuf> = hidden.iter().flat_map(|path| mounts.aliases(path)).collect();
        hidden.extend(aliases);
        hidden.extend(managers());
        hidden.retain(|path| path != Path::new("/") && path.symlink_metadata().is_ok());

        let job = resolve(cell.job);
        let homes = confinement.home.replaced(&job).map(|(home, folder)| (resolve(home), folder));
        let homes: BTreeMap<PathBuf, PathBuf> = homes.collect();
        let shows = shows(cell, registered, &cache, &homes, &hidden);
        let mut view = Self::default();
        view.arrange(&hidden, &homes.into_keys().collect(), shows);
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

    fn arrange(&mut self, hidden: &BTreeSet<PathBuf>, homes: &BTreeSet<PathBuf>, shows: Vec<VisiblePath>) {
        let is_below = |path: &Path, set: &BTreeSet<PathBuf>| set.iter().any(|above| path.starts_with(above));
        let has_show = |path: &&PathBuf| shows.iter().any(|show| show.at.starts_with(path));
        let (late, early): (BTreeSet<&PathBuf>, BTreeSet<&PathBuf>) = hidden.iter().partition(has_show);
        // Of directories in each other the outermost is enough.
        let bases = outermost(late.into_iter().chain(homes));
        let late: Vec<&PathBuf> = bases.iter().filter(|base| !homes.contains(*base)).collect();
        let is_shown = |path: &Path| shows.iter().any(|show| path.starts_with(&show.source));
        let early = outermost(early.into_iter());
        let early = early.iter().filter(|path| !is_below(path, &bases) || is_shown(path));

        let read_only = shows.iter().filter(|show| show.read_only).map(|show| &show.at);
        for path in pinned(hidden.iter().chain(read_only).filter(|path| !is_below(path, homes))) {
            self.steps.extend(c_string(&path).map(MountStep::Pin));
        }
        for path in early {
            self.cover(path);
            if path.is_dir() {
                self.steps.extend(c_string(path).map(MountStep::Seal));
            }
        }
        // The number of each tree that is taken, from outside to inside, so that what lies in another is attached after it.
        let mut attached: BTreeMap<(usize, usize), (usize, VisiblePath)> = BTreeMap::new();
        for (number, show) in shows.into_iter().enumerate() {
            let Some(path) = c_string(&show.source) else { continue };
            self.steps.push(MountStep::Take { path, must: show.must });
            attached.insert((show.at.components().count(), number), (number, show));
        }
        self.trees.resize_with(attached.len(), || None);
        for path in &late {
            self.cover(path);
        }
        for (tree, show) in attached.into_values() {
            let base = bases.iter().find(|base| show.at.starts_with(base));
            // What nothing lies over is there already, and may be changed if it may.
            if base.is_none() && !show.read_only {
                continue;
            }
            let base = base.cloned().unwrap_or_else(|| show.at.clone());
            let below = show.at.strip_prefix(&base).unwrap_or(Path::new(""));
            let place = MountTarget {
                below: below.components().filter_map(|part| c_string(Path::new(part.as_os_str()))).collect(),
                is_dir: show.source.is_dir(),
                base: match c_string(&base) {
                    Some(base) => base,
                    None => continue,
                },
            };
            self.steps.push(MountStep::Attach { tree, place, read_only: show.read_only });
        }
        for path in late.into_iter().filter(|path| path.is_dir()) {
            self.steps.extend(c_string(path).map(MountStep::Seal));
        }
    }

    fn cover(&mut self, path: &Path) {
        let Ok(kind) = path.symlink_metadata() else { return };
        let step = if kind.is_dir() { MountStep::Cover } else { MountStep::CoverFile };
        self.steps.extend(c_string(path).map(step));
    }

    fn read_only(&mut self, path: &Path) {
        let Ok(now) = statvfs(path) else { return };
        let flags = read_only_as(now.f_flag);
        self.steps.extend(c_string(path).map(|path| MountStep::ReadOnly { path, flags }));
    }

    /// The administrator could ask the kernel itself for what is covered.
    fn guard_kernel(&mut self) {
        self.read_only(Path::new("/sys"));
        for path in ["/sys/kernel/debug", "/sys/kernel/tracing"].map(Path::new) {
            if path.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
                self.cover(path);
                self.steps.extend(c_string(path).map(MountStep::Seal));
            }
        }
        for entry in std::fs::read_dir("/dev").into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_block_device()) {
                self.steps.extend(c_string(&entry.path()).map(MountStep::CoverFile));
            }
        }
    }

    /// In a user namespace the administrator's files seem to be nobody's, and OpenSSH refuses such files where they are
    /// included; without them it goes on.
    fn leave_out_ssh(&mut self) {
        let path = Path::new(SSH_INCLUDED);
        if path.is_dir() {
            self.cover(path);
            self.steps.extend(c_string(path).map(MountStep::Seal));
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

/// What a job is to see of what is covered.
fn shows(
    cell: Sandbox<'_>,
    registered: &RegisteredPaths,
    cache: &Path,
    homes: &BTreeMap<PathBuf, PathBuf>,
    hidden: &BTreeSet<PathBuf>,
) -> Vec<VisiblePath> {
    let confinement = cell.confinement;
    let job = resolve(cell.job);
    let mut shows: BTreeMap<PathBuf, VisiblePath> = BTreeMap::new();
    let mut add = |show: VisiblePath| {
        shows.entry(show.at.clone()).or_insert(show);
    };
    for (at, folder) in homes {
        add(VisiblePath { source: folder.clone(), at: at.clone(), read_only: false, must: true });
    }
    add(VisiblePath::own(job));
    if let Some(filled) = cell.filled {
        add(VisiblePath::own(resolve(filled)));
    }
    let temporary = resolve(&std::env::temp_dir());
    if homes.keys().any(|home| temporary.starts_with(home)) {
        add(VisiblePath { must: false, ..VisiblePath::own(temporary) });
    }
    let of_cache = USED_OF_CACHE.map(|name| cache.join(name));
    let programs = confinement.programs.iter().chain(registered.programs.iter());
    for path in of_cache.iter().chain(programs).chain(confinement.home.passed()) {
        let source = resolve(path);
        // Not with it what is hidden in it: that would be there once more.
        let has_all = cache.starts_with(&source) || homes.contains_key(&source) || hidden.contains(&source);
        if has_all || !source.exists() {
            continue;
        }
        // A link in the home directory is not there any more, but what it leads to is seen in its place.
        let name = path.file_name().zip(path.parent());
        let link = name.map(|(name, parent)| resolve(parent).join(name));
        let link = link.filter(|link| *link != source && homes.keys().any(|home| link.starts_with(home)));
        if let Some(at) = link {
            add(VisiblePath::read_only(source.clone(), at));
        }
        add(VisiblePath::read_only(source.clone(), source));
    }
    shows.into_values().collect()
}

/// The sockets of managers of services.
fn managers() -> impl Iterator<Item = PathBuf> {
    let user = Path::new("/run/user").join(rustix::process::geteuid().as_raw().to_string());
    let all = MANAGERS.into_iter().map(PathBuf::from).chain(MANAGERS_OF_USER.map(|name| user.join(name)));
    all.map(|path| resolve(&path))
}

/// Those that lie in no other.
fn outermost<'p>(paths: impl Iterator<Item = &'p PathBuf>) -> BTreeSet<PathBuf> {
    let mut found: BTreeSet<PathBuf> = BTreeSet::new();
    // In this order a directory comes before what lies in it.
    for path in paths.collect::<BTreeSet<_>>() {
        if !found.iter().any(|above| path.starts_with(above)) {
            found.insert(path.clone());
        }
    }
    found
}

/// The directories above these that this user could rename.
fn pinned<'p>(paths: impl Iterator<Item = &'p PathBuf>) -> BTreeSet<PathBuf> {
    let above = paths.flat_map(|path| path.ancestors().skip(1));
    let is_movable =
        |path: &&Path| path.parent().is_some_and(|parent| access(parent, Access::WRITE_OK).is_ok());
    above.filter(is_movable).map(Path::to_owned).collect()
}

pub(super) fn c_string(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolation::{JobCgroups, SandboxConfig};

    fn shown(step: &MountStep) -> String {
        let text = |path: &CString| path.to_string_lossy().into_owned();
        match step {
            MountStep::Pin(path) => format!("pin {}", text(path)),
            MountStep::Cover(path) => format!("cover {}", text(path)),
            MountStep::CoverFile(path) => format!("cover file {}", text(path)),
            MountStep::ReadOnly { path, .. } => format!("read-only {}", text(path)),
            MountStep::Take { path, .. } => format!("take {}", text(path)),
            MountStep::Attach { tree, place, read_only } => {
                let below: Vec<String> = place.below.iter().map(text).collect();
                let kind = if *read_only { "read-only " } else { "" };
                format!("attach {kind}{tree} {} {}", text(&place.base), below.join("/"))
            }
            MountStep::Seal(path) => format!("seal {}", text(path)),
        }
    }

    /// The steps that concern this directory, with paths below it.
    fn steps(cell: Sandbox<'_>, root: &Path, registered: &[&str]) -> Vec<String> {
        let hidden = registered.iter().map(|name| root.join(name)).collect();
        let registered = RegisteredPaths { hidden, ..RegisteredPaths::default() };
        let at = root.display().to_string();
        let view = MountPlan::of(cell, false, &registered);
        // What else is covered depends on the machine.
        let steps = view.steps.iter().filter(|step| !matches!(step, MountStep::Pin(_))).map(shown);
        steps.filter(|step| step.contains(&at)).map(|step| step.replace(&at, "").replace(" /", " ")).collect()
    }

    fn machine(dirs: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for path in dirs {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        (dir, root)
    }

    #[test]
    fn job_sees_its_own_directory_and_what_it_runs_of_the_cache() {
        let dirs = [
            "cache/work/Session1/home",
            "cache/init",
            "cache/plugins",
            "cache/terraform",
            "config/below",
            "other",
        ];
        let (_dir, root) = machine(&dirs);
        std::fs::write(root.join("database"), "").unwrap();
        let confinement = SandboxConfig {
            cache: root.join("cache"),
            hidden: ["config", "config/below", "database", "missing"].map(|name| root.join(name)).to_vec(),
            programs: vec![root.join("cache/terraform"), root.join("missing")],
            ..SandboxConfig::default()
        };
        let (job, groups) = (root.join("cache/work/Session1"), JobCgroups::default());
        let cell = confinement.of_job(&job, &groups);
        let wanted = [
            "cover config",
            "seal config",
            "cover file database",
            "cover other",
            "seal other",
            "take cache/plugins",
            "take cache/terraform",
            "take cache/work/Session1",
            "cover cache",
            "attach read-only 0 cache plugins",
            "attach read-only 1 cache terraform",
            "attach 2 cache work/Session1",
            "seal cache",
        ];
        assert_eq!(steps(cell, &root, &["other"]), wanted);
        // Of two daemons with directories in each other neither sees the other's.
        std::fs::create_dir_all(root.join("cache/plugins/nested")).unwrap();
        let nested = steps(cell, &root, &["", "cache/plugins/nested", "cache"]);
        let place = |wanted: &str| {
            nested.iter().position(|step| step == wanted).unwrap_or_else(|| panic!("{wanted}: {nested:#?}"))
        };
        assert!(place("cover cache/plugins/nested") < place("take cache/plugins"));
        assert!(place("take cache/work/Session1") < place("cover "));
        assert!(nested.contains(&"attach 2  cache/work/Session1".to_owned()), "{nested:#?}");
    }

    #[test]
    fn command_that_fills_a_directory_sees_that_one() {
        let (_dir, root) =
            machine(&["cache/work/Session1/home", "cache/installing/one", "cache/installing/two"]);
        let confinement = SandboxConfig { cache: root.join("cache"), ..SandboxConfig::default() };
        let (job, groups) = (root.join("cache/work/Session1"), JobCgroups::default());
        let filled = root.join("cache/installing/one");
        let steps = steps(confinement.of_job(&job, &groups).filling(&filled), &root, &[]);
        assert!(steps.contains(&"attach 0 cache installing/one".to_owned()), "{steps:#?}");
        assert!(!steps.iter().any(|step| step.contains("two")), "{steps:#?}");
    }

    #[test]
    fn links_to_directories_are_followed() {
        let (_dir, root) = machine(&["real/other", "cache/work/Session1/home"]);
        std::os::unix::fs::symlink(root.join("real"), root.join("link")).unwrap();
        let confinement = SandboxConfig { cache: root.join("cache"), ..SandboxConfig::default() };
        let (job, groups) = (root.join("cache/work/Session1"), JobCgroups::default());
        let steps = steps(confinement.of_job(&job, &groups), &root, &["link/other"]);
        assert_eq!(steps[0], "cover real/other");
    }

    #[test]
    fn directories_above_hidden_ones_keep_their_names() {
        let (_dir, root) = machine(&["a/b/cache"]);
        let found = pinned([root.join("a/b/cache")].iter());
        assert!(found.contains(&root.join("a")) && found.contains(&root.join("a/b")), "{found:?}");
        assert!(!found.contains(&root.join("a/b/cache")) && !found.contains(Path::new("/")));
    }
}
