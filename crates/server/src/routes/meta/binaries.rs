//! The programs that workspaces download: slim builds that lie beside the server's own executable, and that executable itself for its
//! platform (agent 1.3).

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::SystemTime;

use sha1::{Digest as _, Sha1};

/// Platforms that agents and command lines exist for.
const PLATFORMS: [&str; 7] = [
    "coder-linux-amd64",
    "coder-linux-arm64",
    "coder-linux-armv7",
    "coder-darwin-amd64",
    "coder-darwin-arm64",
    "coder-windows-amd64.exe",
    "coder-windows-arm64.exe",
];

/// The name of the server's own executable.
pub(super) fn own_name() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("coder-{}-{architecture}", std::env::consts::OS)
}

/// The name of the server's own executable where a slim build has its usual name. A daemon needs the whole program.
fn full_name() -> String {
    own_name().replacen("coder-", "coder-full-", 1)
}

/// The file that is served under a name. Underscores count as hyphens, and no name leads out of the directory.
pub(super) fn find(executable: &Path, name: &str) -> Option<PathBuf> {
    let name = name.replace('_', "-");
    if name == full_name() {
        return Some(executable.to_owned());
    }
    let known = PLATFORMS.iter().find(|known| **known == name)?;
    let slim = executable.with_file_name(known);
    if slim.is_file() {
        return Some(slim);
    }
    (*known == own_name()).then(|| executable.to_owned())
}

/// The names under which something is served.
pub(super) fn list(executable: &Path) -> Vec<String> {
    let names = PLATFORMS.into_iter().map(str::to_owned).chain([full_name()]);
    names.filter(|name| find(executable, name).is_some()).collect()
}

/// What was known of a file when it was hashed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) length: u64,
    pub(super) modified: Option<SystemTime>,
}

/// The SHA-1 of a file in hexadecimal digits. A file is read once for each of its versions. Blocks.
pub(super) fn hash(path: &Path, version: Version) -> std::io::Result<String> {
    static HASHES: LazyLock<Mutex<HashMap<PathBuf, (Version, String)>>> = LazyLock::new(Mutex::default);
    let hashes = || HASHES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((known, hash)) = hashes().get(path)
        && *known == version
    {
        return Ok(hash.clone());
    }
    let (mut file, mut hash) = (std::fs::File::open(path)?, Sha1::new());
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => hash.update(&buffer[..count]),
        }
    }
    let hash = hex::encode(hash.finalize());
    hashes().insert(path.to_owned(), (version, hash.clone()));
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slim_builds_beside_the_executable_are_served_first() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("coder");
        std::fs::write(&own, "full").unwrap();
        assert_eq!(find(&own, &own_name()), Some(own.clone()));
        assert_eq!(find(&own, &own_name().replace('-', "_")), Some(own.clone()));
        assert_eq!(find(&own, "coder-darwin-arm64"), None);
        std::fs::write(folder.path().join(own_name()), "slim").unwrap();
        std::fs::write(folder.path().join("coder-windows-amd64.exe"), "slim").unwrap();
        assert_eq!(find(&own, &own_name()), Some(folder.path().join(own_name())));
        assert_eq!(find(&own, &full_name()), Some(own.clone()), "install.sh installs the whole program");
        assert!(find(&own, "coder-windows-amd64.exe").is_some());
        for name in ["coder", "../coder", "coder-linux-amd64/..", "", "coder-linux-mips"] {
            assert_eq!(find(&own, name), None, "{name}");
        }
        assert_eq!(list(&own), [own_name(), "coder-windows-amd64.exe".to_owned(), full_name()]);
    }

    #[test]
    fn hash_follows_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let version = |length| Version { length, modified: None };
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(hash(&path, version(3)).unwrap(), "a9993e364706816aba3e25717850c26c9cd0d89d");
        std::fs::write(&path, "").unwrap();
        assert_eq!(hash(&path, version(0)).unwrap(), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    }
}
