//! The key that encrypts the secrets of a quickstart's database.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coder_domain::secret::Secret;
use coder_store::StateKeys;

/// The key is beside the database, which is acceptable for a demo. In production, keep them apart.
pub(super) const FILE: &str = "encryption-key";

/// The key of this directory. Creates one if there is none.
pub(super) fn of(directory: &Path) -> anyhow::Result<StateKeys> {
    let path = directory.join(FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => Secret::new(text.trim()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => make(&path)?,
        Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
    };
    StateKeys::parse(&[text]).with_context(|| format!("read {}", path.display()))
}

fn make(path: &Path) -> anyhow::Result<Secret> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).context("get random numbers")?;
    let key = Secret::new(BASE64_STANDARD.encode(bytes));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(key.expose().as_bytes()).with_context(|| format!("write {}", path.display()))?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_place_has_one_key_that_nobody_else_can_read() {
        let directory = tempfile::tempdir().unwrap();
        let first = of(directory.path()).unwrap().current().unwrap();
        assert_eq!(of(directory.path()).unwrap().current().unwrap(), first);
        let path = directory.path().join(FILE);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, "torn").unwrap();
        assert!(of(directory.path()).is_err(), "another key would lose what this one has encrypted");
    }
}
