//! The home directory of jobs: each job has an empty one, so that no job uses settings that another one left there,
//! such as a configuration of Terraform or git. What the operator names is visible there, read-only.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::Result;
use std::path::{Path, PathBuf};

use super::account;
use crate::files::cache_dir::private_dirs;

/// The directory in a job's directory that becomes its home, and the one for the account's home when `HOME`
/// names another.
const FOLDER: &str = "home";
const ACCOUNT_FOLDER: &str = "home-of-account";

/// What people expect programs to read there; the daemon logs which of them jobs do not see.
const WELL_KNOWN: [&str; 17] = [
    ".terraformrc",
    ".terraform.d",
    ".tofurc",
    ".gitconfig",
    ".git-credentials",
    ".config/git",
    ".netrc",
    ".ssh",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".kube",
    ".docker",
    ".oci",
    ".config/hcloud",
    ".config/doctl",
    ".vault-token",
];

/// Variables that name where to write or search, and not a file that is meant for jobs.
const NOT_CREDENTIAL_FILES: [&str; 7] =
    ["HOME", "PWD", "OLDPWD", "TMPDIR", "MAIL", "HISTFILE", "XDG_RUNTIME_DIR"];

/// A home that contains one of these is not a person's: no program would run without them.
const SYSTEM_DIRECTORIES: [&str; 10] =
    ["/bin", "/dev", "/etc", "/lib", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr"];

/// What jobs see instead of the daemon's home directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobHome {
    /// The value of `HOME`, or the account's home.
    named: Option<PathBuf>,
    /// The real homes to hide: the value of `HOME`, and the account's home.
    real: Vec<PathBuf>,
    /// Absolute paths that jobs see in the real homes.
    exposed: Vec<PathBuf>,
    /// Whether the job's home is mounted over the real one.
    mounts_over_home: bool,
}

impl JobHome {
    /// For a daemon whose jobs have this environment; `listed` are paths below its home. `can_mount` says
    /// whether the kernel permits mounting a job's home over the real one.
    pub(crate) fn from_environment<'v>(
        environment: impl Iterator<Item = &'v (OsString, OsString)> + Clone,
        listed: &[PathBuf],
        can_mount: bool,
    ) -> Self {
        let value = |wanted: &str| {
            environment.clone().find(|(name, _)| name == wanted).map(|(_, value)| PathBuf::from(value))
        };
        let named = value("HOME").filter(|home| home.is_absolute()).or_else(account::home);
        let homes: BTreeSet<PathBuf> =
            named.iter().cloned().chain(account::home()).filter(|home| home.is_dir()).collect();
        let real: Vec<PathBuf> = homes.into_iter().filter(|home| is_personal(home)).collect();
        let listed = listed
            .iter()
            .filter_map(|path| Some(named.as_ref()?.join(path.strip_prefix("~").unwrap_or(path))));
        let in_home = |path: &Path| {
            let homes = real.iter().chain(&named);
            let mut homes = homes.filter(|home| path.starts_with(home) && path != *home);
            path.is_absolute() && homes.next().is_some()
        };
        let by_variables = environment
            .clone()
            .filter(|(name, _)| !NOT_CREDENTIAL_FILES.iter().any(|known| name == known))
            .flat_map(|(_, value)| std::env::split_paths(value).collect::<Vec<_>>());
        let exposed: BTreeSet<PathBuf> = by_variables.filter(|path| in_home(path)).chain(listed).collect();
        let mounts_over_home = can_mount && named.as_ref().is_some_and(|home| real.contains(home));
        let exposed = exposed.into_iter().filter(|path| path.symlink_metadata().is_ok()).collect();
        Self { named, real, exposed, mounts_over_home }
    }

    /// The path of a job's home inside its sandbox.
    pub(crate) fn path_for_job(&self, job: &Path) -> PathBuf {
        match &self.named {
            Some(home) if self.mounts_over_home => home.clone(),
            _ => job.join(FOLDER),
        }
    }

    /// The real homes, each with the directory that replaces it.
    pub(super) fn replacements(&self, job: &Path) -> impl Iterator<Item = (&PathBuf, PathBuf)> {
        self.real.iter().map(move |real| {
            let is_named = self.named.as_ref() == Some(real);
            (real, job.join(if is_named { FOLDER } else { ACCOUNT_FOLDER }))
        })
    }

    /// What jobs see of the real homes.
    pub(super) fn exposed(&self) -> &[PathBuf] {
        &self.exposed
    }

    /// Whether jobs see something at this path.
    pub(crate) fn exposes(&self, path: &Path) -> bool {
        self.exposed.iter().any(|exposed| path.starts_with(exposed) || exposed.starts_with(path))
    }

    /// Well-known files and directories of the daemon's user that jobs do not see.
    pub(crate) fn hidden_files(&self) -> Vec<String> {
        let Some(home) = &self.named else { return Vec::new() };
        let is_left_out = |name: &&&str| {
            let path = home.join(name);
            path.symlink_metadata().is_ok() && !self.exposes(&path)
        };
        WELL_KNOWN.iter().filter(is_left_out).map(|name| format!("~/{name}")).collect()
    }

    /// Creates the home of a workspace. One that exists is kept with its content. Blocks.
    pub(crate) fn create_kept(root: &Path) -> Result<()> {
        for folder in [FOLDER, ACCOUNT_FOLDER].map(|name| root.join(name)) {
            match folder.symlink_metadata() {
                Ok(there) if there.is_dir() => continue,
                // The workspace put it in place of its home.
                Ok(_) => std::fs::remove_file(&folder)?,
                Err(_) => {}
            }
            private_dirs(&folder)?;
        }
        Ok(())
    }

    /// Creates a job's home, or empties it: a command must not see what an earlier one left. Blocks.
    pub(crate) fn create(&self, job: &Path) -> Result<()> {
        for folder in [FOLDER, ACCOUNT_FOLDER].map(|name| job.join(name)) {
            match folder.symlink_metadata() {
                Ok(there) if there.is_dir() => std::fs::remove_dir_all(&folder)?,
                // A job put it in place of its home.
                Ok(_) => std::fs::remove_file(&folder)?,
                Err(_) => {}
            }
            private_dirs(&folder)?;
        }
        let home = job.join(FOLDER);
        let Some(named) = self.named.as_ref().filter(|_| !self.mounts_over_home) else { return Ok(()) };
        for path in &self.exposed {
            let Ok(below) = path.strip_prefix(named) else { continue };
            let link = home.join(below);
            private_dirs(link.parent().unwrap_or(&home))?;
            match std::os::unix::fs::symlink(path, link) {
                // It lies below another exposed path.
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether a directory can be replaced without hiding what all programs need.
fn is_personal(home: &Path) -> bool {
    let Ok(home) = home.canonicalize() else { return false };
    let temporary = std::env::temp_dir();
    let mut needed = SYSTEM_DIRECTORIES.iter().copied().map(OsStr::new).chain([temporary.as_os_str()]);
    !needed.any(|path| Path::new(path).canonicalize().is_ok_and(|path| path.starts_with(&home)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(list: &[(&str, &Path)]) -> Vec<(OsString, OsString)> {
        list.iter().map(|(name, value)| (name.into(), value.as_os_str().to_owned())).collect()
    }

    fn person() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        for dir in [".aws", ".kube", ".ssh", "bin", "tmp"] {
            std::fs::create_dir(home.path().join(dir)).unwrap();
        }
        for file in [".terraformrc", ".kube/config", ".kube/other"] {
            std::fs::write(home.path().join(file), "").unwrap();
        }
        home
    }

    #[test]
    fn listed_paths_and_paths_in_variables_are_visible_to_jobs() {
        let home = person();
        let at = home.path();
        let two = std::env::join_paths([at.join(".kube/config"), at.join(".kube/missing")]).unwrap();
        let list = variables(&[
            ("HOME", at),
            ("KUBECONFIG", Path::new(&two)),
            ("PATH", &at.join("bin")),
            ("TMPDIR", &at.join("tmp")),
            ("ELSEWHERE", Path::new("/usr")),
            ("WHOLE", at),
        ]);
        let listed = ["~/.aws", ".missing"].map(PathBuf::from);
        let made = JobHome::from_environment(list.iter(), &listed, true);
        assert_eq!(made.exposed(), [at.join(".aws"), at.join(".kube/config"), at.join("bin")]);
        let replacements: Vec<_> =
            made.replacements(Path::new("/job")).filter(|(real, _)| *real == at).collect();
        assert_eq!(replacements, [(&at.to_owned(), PathBuf::from("/job/home"))]);
        assert_eq!(made.hidden_files(), ["~/.terraformrc", "~/.ssh"]);
        assert_eq!(made.path_for_job(Path::new("/job")), at);
        assert_eq!(
            JobHome::from_environment(list.iter(), &listed, false).path_for_job(Path::new("/job")),
            Path::new("/job/home")
        );
    }

    #[test]
    fn home_without_namespaces_has_links_to_what_is_passed_and_nothing_of_the_last_command() {
        let (home, job) = (person(), tempfile::tempdir().unwrap());
        let list = variables(&[("HOME", home.path())]);
        let made = JobHome::from_environment(list.iter(), &[PathBuf::from(".kube/config")], false);
        made.create(job.path()).unwrap();
        let folder = job.path().join(FOLDER);
        assert_eq!(
            std::fs::read_link(folder.join(".kube/config")).unwrap(),
            home.path().join(".kube/config")
        );
        std::fs::write(folder.join(".terraformrc"), "hostile").unwrap();
        made.create(job.path()).unwrap();
        assert!(!folder.join(".terraformrc").exists() && folder.join(".kube/config").exists());
        // A link in place of a job's home leads nowhere.
        std::fs::remove_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(home.path(), &folder).unwrap();
        made.create(job.path()).unwrap();
        assert!(folder.symlink_metadata().unwrap().is_dir() && home.path().join(".terraformrc").exists());
    }

    /// It would be missing without a word.
    #[test]
    fn a_link_that_cannot_be_made_is_an_error() {
        let (home, job) = (person(), tempfile::tempdir().unwrap());
        let list = variables(&[("HOME", home.path())]);
        let listed = [".kube", ".kube/config"].map(PathBuf::from);
        let mut made = JobHome::from_environment(list.iter(), &listed, false);
        assert_eq!(made.exposed().len(), 2);
        made.create(job.path()).unwrap();
        assert!(job.path().join(FOLDER).join(".kube/config").exists(), "by the link to what it lies in");
        made.exposed.push(home.path().join("no\0name"));
        assert_eq!(made.create(job.path()).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_path_is_visible_with_what_is_above_and_below_it() {
        let home = person();
        let list = variables(&[("HOME", home.path())]);
        let made = JobHome::from_environment(list.iter(), &[PathBuf::from(".kube/config")], true);
        for (path, visible) in [
            (".kube", true),
            (".kube/config", true),
            (".kube/config/below", true),
            (".kube/other", false),
            (".aws", false),
        ] {
            assert_eq!(made.exposes(&home.path().join(path)), visible, "{path}");
        }
    }

    #[test]
    fn directory_that_programs_need_is_not_replaced() {
        for home in ["/", "/usr", "/tmp"] {
            let list = variables(&[("HOME", Path::new(home))]);
            let made = JobHome::from_environment(list.iter(), &[], true);
            assert_eq!(made.path_for_job(Path::new("/job")), Path::new("/job/home"), "{home}");
            assert!(made.replacements(Path::new("/job")).all(|(real, _)| real != Path::new(home)));
        }
    }
}
