//! The files of `coder login` in the configuration directory (http-api 2.4).

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use coder_domain::secret::Secret;

use crate::env;

/// The configuration directory.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    /// None without a home directory, as in many containers. Then nothing is saved, and only flags and variables count.
    path: Option<PathBuf>,
}

/// The files, with the names of the official program.
const URL: &str = "url";
const SESSION: &str = "session";
const ORGANIZATION: &str = "organization";

impl Directory {
    /// The given directory, or `$XDG_CONFIG_HOME/coderv2`, or `~/.config/coderv2`.
    pub(crate) fn locate(given: Option<PathBuf>) -> Self {
        let base = || {
            let base = env::get(env::XDG_CONFIG_HOME).map(PathBuf::from);
            base.or_else(|| env::get(env::HOME).map(|home| Path::new(&home).join(".config")))
        };
        Self { path: given.or_else(|| Some(base()?.join("coderv2"))) }
    }

    /// The directory of the token, which templates must not see at all.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The saved server.
    pub(crate) fn url(&self) -> anyhow::Result<Option<String>> {
        self.read(URL)
    }

    /// The saved token.
    pub(crate) fn token(&self) -> anyhow::Result<Option<Secret>> {
        Ok(self.read(SESSION)?.map(Secret::new))
    }

    /// The saved organization.
    pub(crate) fn organization(&self) -> anyhow::Result<Option<String>> {
        self.read(ORGANIZATION)
    }

    /// Saves a log-in.
    pub(crate) fn save(&self, url: &str, token: &Secret) -> anyhow::Result<()> {
        self.write(URL, url)?;
        self.write(SESSION, token.expose())
    }

    /// Deletes the session. Missing files are not an error. The URL stays, so that `coder login` without arguments uses it
    /// again.
    pub(crate) fn forget(&self) -> anyhow::Result<()> {
        let Some(directory) = &self.path else { return Ok(()) };
        for name in [SESSION, ORGANIZATION] {
            let path = directory.join(name);
            match fs::remove_file(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(|| format!("remove {}", path.display())),
            }
        }
        Ok(())
    }

    fn read(&self, name: &str) -> anyhow::Result<Option<String>> {
        let Some(path) = self.path.as_ref().map(|path| path.join(name)) else { return Ok(None) };
        match fs::read_to_string(&path) {
            // Files written by hand often end with a newline.
            Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
        }
    }

    /// Atomically replaces the file, so that a reader never sees a part of a token.
    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let directory =
            self.path.as_ref().context("the home directory is not known: set HOME or CODER_CONFIG_DIR")?;
        let path = directory.join(name);
        let replace = || -> io::Result<()> {
            fs::DirBuilder::new().recursive(true).mode(0o750).create(directory)?;
            let mut file = tempfile::NamedTempFile::new_in(directory)?;
            file.as_file().set_permissions(fs::Permissions::from_mode(0o600))?;
            file.write_all(text.as_bytes())?;
            file.persist(&path).map_err(|error| error.error)?;
            Ok(())
        };
        replace().with_context(|| format!("write {}", path.display()))
    }
}
