//! The registry of daemons: the directories of all daemons of this user, so that no job of any of them sees
//! those of another.
//!
//! It is a directory of links, one for each hidden path. It lies where nobody else can create a directory,
//! depends on the user alone and not on the environment, and survives a reboot: the paths of stopped daemons
//! are hidden too. Jobs do not see the registry either.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::account;

const NAME: &str = "coder-daemons";

/// Prefix of links to programs.
const PROGRAM: &str = "program-";

/// The registry directories of this user.
#[derive(Debug, Clone, Default)]
pub(crate) struct DaemonRegistry {
    /// All usable ones are written, so that daemons to which one is read-only still find each other.
    places: Vec<PathBuf>,
}

/// What the daemons of this user have registered.
#[derive(Debug, Default)]
pub(crate) struct RegisteredPaths {
    /// Hidden from all jobs: directories of daemons, and the registry itself.
    pub(super) hidden: BTreeSet<PathBuf>,
    /// Read-only for all jobs: programs that daemons run.
    pub(super) programs: BTreeSet<PathBuf>,
}

impl RegisteredPaths {
    /// The paths to hide.
    pub(crate) fn into_hidden(self) -> impl Iterator<Item = PathBuf> {
        self.hidden.into_iter()
    }
}

/// Why a registry directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", place.display())]
pub(crate) struct RegistryError {
    place: PathBuf,
    reason: String,
    /// It exists, but others may write to it.
    is_there: bool,
}

impl DaemonRegistry {
    /// At the given path, or at the defaults of this user.
    pub(crate) fn locate(given: Option<&Path>) -> Self {
        if let Some(given) = given {
            return Self { places: std::path::absolute(given).into_iter().collect() };
        }
        let user = rustix::process::geteuid();
        let places = if user.is_root() {
            ["/var/lib", "/run"].map(|parent| Path::new(parent).join(NAME)).to_vec()
        } else {
            let homes = account::home().or_else(|| std::env::var_os("HOME").map(PathBuf::from));
            let homes = homes.filter(|home| home.is_absolute()).into_iter();
            let of_session = Path::new("/run/user").join(user.as_raw().to_string());
            homes
                .map(|home| home.join(".local/state"))
                .chain([of_session])
                .map(|dir| dir.join(NAME))
                .collect()
        };
        Self { places }
    }

    /// Creates the directories before the first job, which could otherwise create them itself. Blocks.
    ///
    /// # Errors
    /// None can be created that only this user can write to, or others can write to an existing one.
    pub(crate) fn prepare(&self) -> Result<(), RegistryError> {
        let mut failed = None;
        let mut is_usable = false;
        for place in &self.places {
            match prepare(place) {
                Ok(()) => is_usable = true,
                Err(error) if error.is_there => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) if !is_usable => Err(error),
            None if !is_usable => Err(RegistryError {
                place: PathBuf::from(NAME),
                reason: "this user has neither a home directory nor one below /run/user".to_owned(),
                is_there: false,
            }),
            _ => Ok(()),
        }
    }

    /// Registers the paths to hide and the programs to protect, and removes stale entries. Returns true when a
    /// hidden path is new, so that running jobs may see it. Blocks.
    pub(crate) fn register(&self, hidden: &[PathBuf], programs: &[PathBuf]) -> std::io::Result<bool> {
        let mut is_new = true;
        for place in self.trusted() {
            forget(place)?;
            let mut has_all = true;
            for path in hidden {
                has_all &= !link(place, "", path)?;
            }
            for path in programs {
                link(place, PROGRAM, path)?;
            }
            is_new &= !has_all;
        }
        Ok(is_new)
    }

    pub(crate) fn read(&self) -> RegisteredPaths {
        let mut registered = RegisteredPaths::default();
        for place in self.trusted() {
            registered.hidden.insert(place.clone());
            for entry in place.read_dir().into_iter().flatten().flatten() {
                let Ok(path) = std::fs::read_link(entry.path()) else { continue };
                let is_program = entry.file_name().as_bytes().starts_with(PROGRAM.as_bytes());
                if is_program { &mut registered.programs } else { &mut registered.hidden }.insert(path);
            }
        }
        registered
    }

    fn trusted(&self) -> impl Iterator<Item = &PathBuf> {
        self.places.iter().filter(|place| check(place).is_ok())
    }
}

/// Returns false when the link existed.
fn link(place: &Path, prefix: &str, path: &Path) -> std::io::Result<bool> {
    let name = hex::encode(&Sha256::digest(path.as_os_str().as_bytes())[..16]);
    match symlink(path, place.join(format!("{prefix}{name}"))) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes links whose target no longer exists.
fn forget(place: &Path) -> std::io::Result<()> {
    for entry in place.read_dir()?.flatten() {
        let path = entry.path();
        if path.symlink_metadata().is_ok_and(|link| link.is_symlink()) && !path.exists() {
            // Another daemon may remove the same link.
            let _ = std::fs::remove_file(path);
        }
    }
    Ok(())
}

fn prepare(place: &Path) -> Result<(), RegistryError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(place);
    check(place).map_err(|error| match made {
        Err(reason) if !error.is_there => RegistryError { reason: reason.to_string(), ..error },
        _ => error,
    })
}

/// Checks that only this user and root can have created or can replace the directory.
fn check(place: &Path) -> Result<(), RegistryError> {
    let failed = |is_there, reason: String| RegistryError { place: place.to_owned(), reason, is_there };
    let user = rustix::process::geteuid().as_raw();
    let dir = place.symlink_metadata().map_err(|error| failed(false, error.to_string()))?;
    if !dir.is_dir() {
        return Err(failed(true, "it is not a directory".to_owned()));
    }
    if dir.uid() != user {
        return Err(failed(true, format!("it belongs to the user {}, not to {user}", dir.uid())));
    }
    if dir.mode() & 0o077 != 0 {
        return Err(failed(true, format!("its mode is {:04o}, not 0700", dir.mode() & 0o7777)));
    }
    // A user who can rename a parent directory can replace it.
    let parent = place.parent().unwrap_or(place).canonicalize();
    let parent = parent.map_err(|error| failed(false, error.to_string()))?;
    for above in parent.ancestors() {
        let dir = above.metadata().map_err(|error| failed(false, error.to_string()))?;
        let writable = dir.mode() & 0o022;
        let is_sticky = dir.mode() & 0o1000 != 0;
        // Where each user has a private group, directories are often group-writable.
        let is_own_group = writable == 0o020 && dir.gid() == user && dir.uid() == user;
        if ![0, user].contains(&dir.uid()) || (writable != 0 && !is_sticky && !is_own_group) {
            return Err(failed(true, format!("other users can write to {}", above.display())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn daemons_know_of_each_other_while_their_directories_last() {
        let dir = tempfile::tempdir().unwrap();
        let registry = DaemonRegistry::locate(Some(&dir.path().join("list")));
        registry.prepare().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        for path in [&one, &two] {
            std::fs::create_dir(path).unwrap();
            assert!(registry.register(std::slice::from_ref(path), &[]).unwrap(), "it was not known before");
        }
        let program = dir.path().to_owned();
        let again = || registry.register(std::slice::from_ref(&one), std::slice::from_ref(&program)).unwrap();
        assert!(!again());
        let list = dir.path().join("list");
        let registered = registry.read();
        assert_eq!(registered.hidden, BTreeSet::from([list.clone(), one.clone(), two.clone()]));
        assert_eq!(registered.programs, BTreeSet::from([program.clone()]));
        std::fs::remove_dir(&two).unwrap();
        assert!(!again());
        assert_eq!(registry.read().hidden, BTreeSet::from([list, one]), "what is gone is forgotten");
    }

    #[test]
    fn list_that_others_can_write_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("above/list");
        let registry = DaemonRegistry::locate(Some(&place));
        registry.prepare().unwrap();
        registry.register(&[dir.path().to_owned()], &[]).unwrap();
        let refused = |words: &str| {
            let error = registry.prepare().unwrap_err().to_string();
            assert!(error.starts_with(place.to_str().unwrap()) && error.contains(words), "{error}");
            assert!(registry.read().hidden.is_empty(), "{words}");
        };
        set_mode(&place, 0o777);
        refused("its mode is 0777");
        set_mode(&place, 0o700);
        let above = dir.path().join("above");
        set_mode(&above, 0o777);
        refused("other users can write to");
        // As in /tmp: others can create files there, but not rename those of this user.
        set_mode(&above, 0o1777);
        registry.prepare().unwrap();
        std::fs::rename(&place, dir.path().join("moved")).unwrap();
        symlink(dir.path().join("moved"), &place).unwrap();
        refused("it is not a directory");
        std::fs::remove_file(&place).unwrap();
        std::fs::write(&place, "").unwrap();
        refused("it is not a directory");
    }

    #[test]
    fn one_usable_directory_is_enough_unless_another_one_is_untrusted() {
        let dir = tempfile::tempdir().unwrap();
        let (file, good, open) = (dir.path().join("file"), dir.path().join("good"), dir.path().join("open"));
        std::fs::write(&file, "").unwrap();
        std::fs::create_dir(&open).unwrap();
        set_mode(&open, 0o770);
        let prepare = |places: &[&Path]| {
            let registry = DaemonRegistry { places: places.iter().map(|&place| place.to_owned()).collect() };
            registry.prepare().map_err(|error| error.to_string())
        };
        let impossible = file.join("list");
        prepare(&[&impossible, &good]).unwrap();
        prepare(&[&good, &impossible]).unwrap();
        let error = prepare(&[&impossible]).unwrap_err();
        assert!(error.starts_with(impossible.to_str().unwrap()), "{error}");
        for places in [[&*open, &*good], [&*good, &*open]] {
            let error = prepare(&places).unwrap_err();
            assert!(error.contains("its mode is 0770"), "{error}");
        }
        assert!(prepare(&[]).unwrap_err().contains("neither a home directory"));
    }

    #[test]
    fn only_dangling_links_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("list");
        let registry = DaemonRegistry::locate(Some(&place));
        registry.prepare().unwrap();
        std::fs::write(place.join("file"), "").unwrap();
        symlink(dir.path().join("gone"), place.join("dangling")).unwrap();
        registry.register(&[], &[]).unwrap();
        let names: Vec<_> = place.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["file"]);
    }

    /// Where each user has a private group, that group may write to the directories above.
    #[test]
    fn directories_above_may_be_writable_for_the_own_group_alone() {
        if !rustix::process::geteuid().is_root() {
            // Only root can choose owner and group. The check itself is the same for everybody.
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let above = dir.path().join("above");
        let registry = DaemonRegistry::locate(Some(&above.join("list")));
        registry.prepare().unwrap();
        let with = |user: u32, group: u32, mode: u32| {
            std::os::unix::fs::chown(&above, Some(user), Some(group)).unwrap();
            set_mode(&above, mode);
            registry.prepare().map_err(|error| error.to_string())
        };
        with(0, 0, 0o770).unwrap();
        for (user, group, mode) in [(0, 12345, 0o770), (0, 0, 0o702), (12345, 0, 0o700), (12345, 0, 0o770)] {
            let error = with(user, group, mode).unwrap_err();
            assert!(error.contains("other users can write to"), "{user} {group} {mode:o}: {error}");
        }
    }

    #[test]
    fn directory_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            // Only root can create one. The check itself is the same for everybody.
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("list");
        std::fs::create_dir(&place).unwrap();
        set_mode(&place, 0o700);
        std::os::unix::fs::chown(&place, Some(12345), None).unwrap();
        let error = DaemonRegistry::locate(Some(&place)).prepare().unwrap_err().to_string();
        assert!(error.contains("belongs to the user 12345"), "{error}");
    }

    #[test]
    fn places_do_not_depend_on_the_environment_and_are_not_shared_with_others() {
        let registry = DaemonRegistry::locate(None);
        assert!(!registry.places.is_empty());
        let temporary = std::env::temp_dir();
        assert!(registry.places.iter().all(|place| !place.starts_with(&temporary)), "{registry:?}");
    }
}
