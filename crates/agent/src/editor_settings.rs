//! Settings of VS Code in a workspace whose server has Git tokens: the editor must ask our askpass program instead of its own
//! (agent 4.3).

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use serde_json::{Map, Value};

/// Settings files of the machine, below the home directory.
const FILES: [&str; 2] =
    [".vscode-server/data/Machine/settings.json", ".local/share/code-server/Machine/settings.json"];
/// What is turned off.
const SETTINGS: [&str; 2] = ["git.useIntegratedAskPass", "github.gitAuthentication"];
/// Longest file that is changed.
const MAX_BYTES: u64 = 1 << 20;

/// Turns the editor's own authentication off. What cannot be changed is logged.
pub(crate) fn use_own_askpass(home: &Path) {
    if !home.is_dir() {
        return;
    }
    for file in FILES {
        let path = home.join(file);
        if let Err(error) = change(&path) {
            tracing::warn!(path = %path.display(), %error, "the settings of VS Code cannot be changed for Git");
        }
    }
}

fn change(path: &Path) -> io::Result<()> {
    let mut settings = match std::fs::metadata(path) {
        Ok(found) if found.len() > MAX_BYTES => {
            return Err(io::Error::other("the file is longer than 1 MiB"));
        }
        Ok(_) => {
            serde_json::from_slice::<Map<String, Value>>(&std::fs::read(path)?).map_err(io::Error::other)?
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Map::new(),
        Err(error) => return Err(error),
    };
    if SETTINGS.iter().all(|name| settings.get(*name) == Some(&Value::Bool(false))) {
        return Ok(());
    }
    for name in SETTINGS {
        settings.insert(name.to_owned(), Value::Bool(false));
    }
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // Another process may read it at any time.
    let fresh = path.with_extension("json.new");
    std::fs::write(&fresh, serde_json::to_vec_pretty(&settings).map_err(io::Error::other)?)?;
    std::fs::rename(fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_settings_are_kept() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(FILES[0]);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, r#"{"editor.tabSize": 2, "github.gitAuthentication": true}"#).unwrap();
        use_own_askpass(home.path());
        let read = |file: &str| -> Map<String, Value> {
            serde_json::from_slice(&std::fs::read(home.path().join(file)).unwrap()).unwrap()
        };
        let settings = read(FILES[0]);
        assert_eq!(settings["editor.tabSize"], 2);
        assert!(SETTINGS.iter().all(|name| settings[*name] == false));
        assert_eq!(read(FILES[1]).len(), 2);
    }

    #[test]
    fn file_that_is_not_json_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(FILES[0]);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "{ // a comment\n}").unwrap();
        assert!(change(&path).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{ // a comment\n}");
    }
}
