//! The mounts that a job's process makes, in order, prepared for a process that may only make system calls.
//!
//! Directories of daemons are masked by empty ones, the home directory by the job's own. The parts that a job needs
//! are opened before and attached again at their paths: its own directory, and read-only providers and
//! programs.

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
use crate::files::cache_dir::{EMPTY_DIR, resolve};

const SSH_INCLUDE_DIR: &str = "/etc/ssh/ssh_config.d";

/// The parts of a daemon's cache that jobs may read.
const VISIBLE_CACHE_DIRS: [&str; 2] = ["plugins", "bundles"];

/// The sockets of the service managers of the system and of the user. Through them a job could start programs
/// outside of its sandbox.
const SERVICE_MANAGERS: [&str; 3] =
    ["/run/systemd/private", "/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket"];
const USER_SERVICE_MANAGERS: [&str; 2] = ["bus", "systemd"];

/// One mount operation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MountStep {
    /// Mounts the directory on itself, so that it cannot be renamed: below a renamed parent the masked content
    /// would be visible.
    BindSelf(CString),
    /// Attaches the daemon's empty directory over this one, read-only. Only before the daemon's cache, which contains it, is
    /// masked.
    HideDirectory(MountTarget),
    /// Mounts a new empty directory over this one, in which trees are attached.
    MaskDirectory(CString),
    /// Mounts an empty device over this file.
    MaskFile(CString),
    /// Makes a directory read-only.
    ReadOnly { path: CString, flags: MountFlags },
    /// Opens the tree at this path, to be attached later. It may be missing unless it is `required`.
    OpenTree { path: CString, required: bool },
    /// Attaches the tree with this index.
    AttachTree { tree: usize, place: MountTarget, read_only: bool },
    /// Makes the mask itself read-only.
    MakeMaskReadOnly(CString),
}

/// Where a tree is attached: each component below `base` is created if missing, and no link is followed,
/// because the job may have created one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MountTarget {
    pub(super) base: CString,
    pub(super) below: Vec<CString>,
    pub(super) is_dir: bool,
}

impl MountTarget {
    /// The directory at this path, which exists.
    const fn directory(base: CString) -> Self {
        Self { base, below: Vec::new(), is_dir: true }
    }
}

/// All mounts that a job's process makes before it runs a program.
#[derive(Debug, Default)]
pub(super) struct MountPlan {
    pub(super) steps: Vec<MountStep>,
    /// The directory that hides others. A new file system for each would cost every process of a job ten times as much.
    pub(super) empty_dir: CString,
    /// Slots for the opened trees.
    pub(super) trees: Vec<Option<OwnedFd>>,
}

/// A path that a job sees although it lies in a masked directory.
#[derive(Debug)]
struct VisiblePath {
    source: PathBuf,
    at: PathBuf,
    read_only: bool,
    required: bool,
}

impl VisiblePath {
    fn own(path: PathBuf) -> Self {
        Self { source: path.clone(), at: path, read_only: false, required: true }
    }

    fn read_only(source: PathBuf, at: PathBuf) -> Self {
        Self { source, at, read_only: true, required: false }
    }
}

impl MountPlan {
    /// The mounts of a sandbox, with the paths that daemons have `registered`. Reads the file system: paths
    /// that do not exist are not masked.
    pub(super) fn of(sandbox: Sandbox<'_>, as_root: bool, registered: &RegisteredPaths) -> Self {
        let sandbox_config = sandbox.config;
        let cache = resolve(&sandbox_config.cache);
        let hidden = sandbox_config.hidden.iter().chain(&registered.hidden).filter(|path| path.is_absolute());
        let mut hidden: BTreeSet<PathBuf> = hidden.map(|path| resolve(path)).chain([cache.clone()]).collect();
        let mounts = Mounts::read();
        let aliases: Vec<PathBuf> = hidden.iter().flat_map(|path| mounts.aliases(path)).collect();
        hidden.extend(aliases);
        hidden.extend(service_managers());
        hidden.retain(|path| path != Path::new("/") && path.symlink_metadata().is_ok());

        let job = resolve(sandbox.job);
        let homes = sandbox_config.home.replacements(&job).map(|(home, folder)| (resolve(home), folder));
        let homes: BTreeMap<PathBuf, PathBuf> = homes.collect();
        let visible_paths = visible_paths(sandbox, registered, &cache, &homes, &hidden);
        let empty_dir = c_string(&cache.join(EMPTY_DIR)).unwrap_or_default();
        let mut plan = Self { empty_dir, ..Self::default() };
        plan.add_steps(&hidden, &homes.into_keys().collect(), visible_paths);
        if as_root {
            plan.protect_kernel();
        } else {
            plan.mask_ssh_includes();
        }
        if as_root || sandbox_config.limits.has_groups() {
            plan.protect_cgroups();
        }
        plan
    }

    fn add_steps(
        &mut self,
        hidden: &BTreeSet<PathBuf>,
        homes: &BTreeSet<PathBuf>,
        visible_paths: Vec<VisiblePath>,
    ) {
        let is_below = |path: &Path, set: &BTreeSet<PathBuf>| set.iter().any(|above| path.starts_with(above));
        let contains_visible =
            |path: &&PathBuf| visible_paths.iter().any(|visible| visible.at.starts_with(path));
        let (outer, inner): (BTreeSet<&PathBuf>, BTreeSet<&PathBuf>) =
            hidden.iter().partition(contains_visible);
        // Of nested directories only the outermost is masked.
        let bases = outermost(outer.into_iter().chain(homes));
        let outer: Vec<&PathBuf> = bases.iter().filter(|base| !homes.contains(*base)).collect();
        let is_visible_source =
            |path: &Path| visible_paths.iter().any(|visible| path.starts_with(&visible.source));
        let inner = outermost(inner.into_iter());
        let inner = inner.iter().filter(|path| !is_below(path, &bases) || is_visible_source(path));

        let read_only = visible_paths.iter().filter(|visible| visible.read_only).map(|visible| &visible.at);
        for path in renamable_ancestors(hidden.iter().chain(read_only).filter(|path| !is_below(path, homes)))
        {
            self.steps.extend(c_string(&path).map(MountStep::BindSelf));
        }
        for path in inner {
            if path.is_dir() {
                self.steps.extend(c_string(path).map(MountTarget::directory).map(MountStep::HideDirectory));
            } else {
                self.add_mask(path);
            }
        }
        // Indexes of the trees, outermost first, so that a nested tree is attached after the one that contains
        // it.
        let mut attached: BTreeMap<(usize, usize), (usize, VisiblePath)> = BTreeMap::new();
        for (number, visible) in visible_paths.into_iter().enumerate() {
            let Some(path) = c_string(&visible.source) else { continue };
            self.steps.push(MountStep::OpenTree { path, required: visible.required });
            attached.insert((visible.at.components().count(), number), (number, visible));
        }
        self.trees.resize_with(attached.len(), || None);
        for path in &outer {
            self.add_mask(path);
        }
        for (tree, visible) in attached.into_values() {
            let base = bases.iter().find(|base| visible.at.starts_with(base));
            // A path that no mask hides is visible already, and may be writable.
            if base.is_none() && !visible.read_only {
                continue;
            }
            let base = base.cloned().unwrap_or_else(|| visible.at.clone());
            let below = visible.at.strip_prefix(&base).unwrap_or(Path::new(""));
            let place = MountTarget {
                below: below.components().filter_map(|part| c_string(Path::new(part.as_os_str()))).collect(),
                is_dir: visible.source.is_dir(),
                base: match c_string(&base) {
                    Some(base) => base,
                    None => continue,
                },
            };
            self.steps.push(MountStep::AttachTree { tree, place, read_only: visible.read_only });
        }
        for path in outer.into_iter().filter(|path| path.is_dir()) {
            self.steps.extend(c_string(path).map(MountStep::MakeMaskReadOnly));
        }
    }

    fn add_mask(&mut self, path: &Path) {
        let Ok(kind) = path.symlink_metadata() else { return };
        let step = if kind.is_dir() { MountStep::MaskDirectory } else { MountStep::MaskFile };
        self.steps.extend(c_string(path).map(step));
    }

    fn read_only(&mut self, path: &Path) {
        let Ok(now) = statvfs(path) else { return };
        let flags = read_only_as(now.f_flag);
        self.steps.extend(c_string(path).map(|path| MountStep::ReadOnly { path, flags }));
    }

    /// Root could read the masked content through the kernel.
    fn protect_kernel(&mut self) {
        self.read_only(Path::new("/sys"));
        for path in ["/sys/kernel/debug", "/sys/kernel/tracing"].map(Path::new) {
            if path.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
                self.add_mask(path);
                self.steps.extend(c_string(path).map(MountStep::MakeMaskReadOnly));
            }
        }
        for entry in std::fs::read_dir("/dev").into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_block_device()) {
                self.steps.extend(c_string(&entry.path()).map(MountStep::MaskFile));
            }
        }
    }

    /// In a user namespace, files of root seem to belong to the user `nobody`, and OpenSSH rejects such included files; it
    /// works without them.
    fn mask_ssh_includes(&mut self) {
        let path = Path::new(SSH_INCLUDE_DIR);
        if path.is_dir() {
            self.add_mask(path);
            self.steps.extend(c_string(path).map(MountStep::MakeMaskReadOnly));
        }
    }

    /// A job must not change its own limits.
    fn protect_cgroups(&mut self) {
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

/// The flags to remount a mount read-only: a remount must keep the restrictions of the mount below.
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

/// What a job sees of the masked directories.
fn visible_paths(
    sandbox: Sandbox<'_>,
    registered: &RegisteredPaths,
    cache: &Path,
    homes: &BTreeMap<PathBuf, PathBuf>,
    hidden: &BTreeSet<PathBuf>,
) -> Vec<VisiblePath> {
    let sandbox_config = sandbox.config;
    let job = resolve(sandbox.job);
    let mut visible_paths: BTreeMap<PathBuf, VisiblePath> = BTreeMap::new();
    let mut add = |visible: VisiblePath| {
        visible_paths.entry(visible.at.clone()).or_insert(visible);
    };
    for (at, folder) in homes {
        add(VisiblePath { source: folder.clone(), at: at.clone(), read_only: false, required: true });
    }
    add(VisiblePath::own(job));
    if let Some(writable) = sandbox.writable {
        add(VisiblePath::own(resolve(writable)));
    }
    let temporary = resolve(&std::env::temp_dir());
    if homes.keys().any(|home| temporary.starts_with(home)) {
        add(VisiblePath { required: false, ..VisiblePath::own(temporary) });
    }
    let of_cache = VISIBLE_CACHE_DIRS.map(|name| cache.join(name));
    let programs = sandbox_config.programs.iter().chain(registered.programs.iter());
    for path in of_cache.iter().chain(programs).chain(sandbox_config.home.exposed()) {
        let source = resolve(path);
        // Not when it contains hidden paths: they would be visible through it.
        let has_all = cache.starts_with(&source) || homes.contains_key(&source) || hidden.contains(&source);
        if has_all || !source.exists() {
            continue;
        }
        // A link in the masked home is missing, so its target is attached at the link's path too.
        let name = path.file_name().zip(path.parent());
        let link = name.map(|(name, parent)| resolve(parent).join(name));
        let link = link.filter(|link| *link != source && homes.keys().any(|home| link.starts_with(home)));
        if let Some(at) = link {
            add(VisiblePath::read_only(source.clone(), at));
        }
        add(VisiblePath::read_only(source.clone(), source));
    }
    visible_paths.into_values().collect()
}

/// The sockets of service managers.
fn service_managers() -> impl Iterator<Item = PathBuf> {
    let user = Path::new("/run/user").join(rustix::process::geteuid().as_raw().to_string());
    let all = SERVICE_MANAGERS
        .into_iter()
        .map(PathBuf::from)
        .chain(USER_SERVICE_MANAGERS.map(|name| user.join(name)));
    all.map(|path| resolve(&path))
}

/// The paths that are not inside of another one.
fn outermost<'p>(paths: impl Iterator<Item = &'p PathBuf>) -> BTreeSet<PathBuf> {
    let mut found: BTreeSet<PathBuf> = BTreeSet::new();
    // Sorted, a directory precedes its content.
    for path in paths.collect::<BTreeSet<_>>() {
        if !found.iter().any(|above| path.starts_with(above)) {
            found.insert(path.clone());
        }
    }
    found
}

/// The parent directories that this user could rename.
fn renamable_ancestors<'p>(paths: impl Iterator<Item = &'p PathBuf>) -> BTreeSet<PathBuf> {
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

    fn described(step: &MountStep) -> String {
        let text = |path: &CString| path.to_string_lossy().into_owned();
        match step {
            MountStep::BindSelf(path) => format!("bind {}", text(path)),
            MountStep::HideDirectory(place) => format!("hide {}", text(&place.base)),
            MountStep::MaskDirectory(path) => format!("mask {}", text(path)),
            MountStep::MaskFile(path) => format!("mask file {}", text(path)),
            MountStep::ReadOnly { path, .. } => format!("read-only {}", text(path)),
            MountStep::OpenTree { path, .. } => format!("open {}", text(path)),
            MountStep::AttachTree { tree, place, read_only } => {
                let below: Vec<String> = place.below.iter().map(text).collect();
                let kind = if *read_only { "read-only " } else { "" };
                format!("attach {kind}{tree} {} {}", text(&place.base), below.join("/"))
            }
            MountStep::MakeMaskReadOnly(path) => format!("close {}", text(path)),
        }
    }

    /// The operations on this directory, with paths relative to it.
    fn steps(sandbox: Sandbox<'_>, root: &Path, registered: &[&str]) -> Vec<String> {
        let hidden = registered.iter().map(|name| root.join(name)).collect();
        let registered = RegisteredPaths { hidden, ..RegisteredPaths::default() };
        let at = root.display().to_string();
        let plan = MountPlan::of(sandbox, false, &registered);
        // What else is masked depends on the machine.
        let steps = plan.steps.iter().filter(|step| !matches!(step, MountStep::BindSelf(_))).map(described);
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
        let sandbox_config = SandboxConfig {
            cache: root.join("cache"),
            hidden: ["config", "config/below", "database", "missing"].map(|name| root.join(name)).to_vec(),
            programs: vec![root.join("cache/terraform"), root.join("missing")],
            ..SandboxConfig::default()
        };
        let (job, groups) = (root.join("cache/work/Session1"), JobCgroups::default());
        let sandbox = sandbox_config.for_job(&job, &groups);
        let wanted = [
            "hide config",
            "mask file database",
            "hide other",
            "open cache/plugins",
            "open cache/terraform",
            "open cache/work/Session1",
            "mask cache",
            "attach read-only 0 cache plugins",
            "attach read-only 1 cache terraform",
            "attach 2 cache work/Session1",
            "close cache",
        ];
        assert_eq!(steps(sandbox, &root, &["other"]), wanted);
        // Of two daemons with nested directories neither sees those of the other.
        std::fs::create_dir_all(root.join("cache/plugins/nested")).unwrap();
        let nested = steps(sandbox, &root, &["", "cache/plugins/nested", "cache"]);
        let place = |wanted: &str| {
            nested.iter().position(|step| step == wanted).unwrap_or_else(|| panic!("{wanted}: {nested:#?}"))
        };
        assert!(place("hide cache/plugins/nested") < place("open cache/plugins"));
        assert!(place("open cache/work/Session1") < place("mask "));
        assert!(nested.contains(&"attach 2  cache/work/Session1".to_owned()), "{nested:#?}");
    }

    #[test]
    fn command_that_fills_a_directory_sees_that_one() {
        let (_dir, root) =
            machine(&["cache/work/Session1/home", "cache/installing/one", "cache/installing/two"]);
        let sandbox_config = SandboxConfig { cache: root.join("cache"), ..SandboxConfig::default() };
        let (job, groups) = (root.join("cache/work/Session1"), JobCgroups::default());
        let writable = root.join("cache/installing/one");
        let steps = steps(sandbox_config.for_job(&job, &groups).with_writable(&writable), &root, &[]);
        assert!(steps.contains(&"attach 0 cache installing/one".to_owned()), "{steps:#?}");
        assert!(!steps.iter().any(|step| step.contains("two")), "{steps:#?}");
    }

    #[test]
    fn links_to_directories_are_followed() {
        let (_dir, root) = machine(&["real/other", "cache/work/Session1/home"]);
        std::os::unix::fs::symlink(root.join("real"), root.join("link")).unwrap();
        let sandbox_config = SandboxConfig { cache: root.join("cache"), ..SandboxConfig::default() };
        let (job, groups) = (root.join("cache/work/Session1"), JobCgroups::default());
        let steps = steps(sandbox_config.for_job(&job, &groups), &root, &["link/other"]);
        assert_eq!(steps[0], "hide real/other");
    }

    #[test]
    fn directories_above_hidden_ones_keep_their_names() {
        let (_dir, root) = machine(&["a/b/cache"]);
        let found = renamable_ancestors([root.join("a/b/cache")].iter());
        assert!(found.contains(&root.join("a")) && found.contains(&root.join("a/b")), "{found:?}");
        assert!(!found.contains(&root.join("a/b/cache")) && !found.contains(Path::new("/")));
    }

    #[test]
    fn remount_keeps_the_restrictions_of_the_mount_below() {
        let read_only = MountFlags::BIND | MountFlags::RDONLY;
        assert_eq!(read_only_as(StatVfsMountFlags::empty()), read_only);
        assert_eq!(read_only_as(StatVfsMountFlags::RDONLY), read_only);
        let mut all = (StatVfsMountFlags::empty(), read_only);
        for (now, kept) in [
            (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
            (StatVfsMountFlags::NODEV, MountFlags::NODEV),
            (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
            (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
            (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
            (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
        ] {
            assert_eq!(read_only_as(now), read_only | kept);
            all = (all.0 | now, all.1 | kept);
        }
        assert_eq!(read_only_as(all.0), all.1);
    }

    #[test]
    fn service_managers_of_system_and_user_are_masked() {
        let user = rustix::process::geteuid().as_raw();
        let found: Vec<PathBuf> = service_managers().collect();
        for path in [
            "/run/systemd/private".to_owned(),
            "/run/dbus/system_bus_socket".to_owned(),
            format!("/run/user/{user}/bus"),
            format!("/run/user/{user}/systemd"),
        ] {
            assert!(found.contains(&resolve(Path::new(&path))), "{path}: {found:?}");
        }
    }
}
