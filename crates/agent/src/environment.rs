//! The environment of every command that the agent starts for users (agent 4.3).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::config::Config;
use crate::expand;
use crate::manifest::Manifest;

/// Variables of a process.
pub(crate) type Variables = BTreeMap<OsString, OsString>;

/// Search path when the agent has none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The variables of a command. `session` is what an SSH client asked for; it cannot replace a variable that the agent has.
pub(crate) fn of_command(config: &Config, manifest: &Manifest, session: &[(String, String)]) -> Variables {
    let user = &config.user;
    let mut variables = Variables::new();
    let mut set = |name: &str, value: &OsStr| variables.insert(name.into(), value.into());
    set("USER", user.name.as_ref());
    set("LOGNAME", user.name.as_ref());
    set("SHELL", user.shell.as_os_str());
    set("HOME", user.home.as_os_str());
    for (name, value) in session {
        set(name, value.as_ref());
    }
    variables.extend(config.environment.clone());
    let program = shell_word(&config.program);
    let mut set = |name: &str, value: &str| variables.insert(name.into(), value.into());
    set("CODER", "true");
    set("CODER_WORKSPACE_NAME", &manifest.workspace_name);
    set("CODER_WORKSPACE_AGENT_NAME", &manifest.agent_name);
    set("CODER_WORKSPACE_OWNER_NAME", &manifest.owner_name);
    set("CODER_WORKSPACE_ID", &manifest.workspace_id.to_string());
    set("CODER_AGENT_TOKEN", config.token.expose());
    set("CS_DISABLE_GETTING_STARTED_OVERRIDE", "true");
    if !manifest.port_proxy_uri.is_empty() {
        set("VSCODE_PROXY_URI", &manifest.port_proxy_uri);
    }
    let mut git_ssh = program;
    git_ssh.push(" gitssh --");
    variables.insert("GIT_SSH_COMMAND".into(), git_ssh);
    for (name, value) in &manifest.environment {
        let value = expand::variables(value, |name| config.environment.get(OsStr::new(name)).cloned());
        variables.insert(name.into(), value);
    }
    variables.insert("GIT_ASKPASS".into(), config.program.clone().into());
    variables.insert("SSH_CLIENT".into(), "0.0.0.0 0 0".into());
    variables.insert("SSH_CONNECTION".into(), "0.0.0.0 0 0.0.0.0 0".into());
    let path = variables.get(OsStr::new("PATH")).cloned().unwrap_or_else(|| DEFAULT_PATH.into());
    variables.insert("PATH".into(), search_path(&config.bin_dir(), &path, config.program.parent()));
    // A name with a NUL or an equals sign cannot be passed on.
    variables.retain(|name, value| {
        let bytes = name.as_encoded_bytes();
        !bytes.is_empty()
            && !bytes.contains(&b'=')
            && !bytes.contains(&0)
            && !value.as_encoded_bytes().contains(&0)
    });
    variables
}

/// The scripts' directory first; the agent's own last, so that `coder` is found.
fn search_path(first: &Path, path: &OsStr, last: Option<&Path>) -> OsString {
    let mut searched = first.as_os_str().to_owned();
    searched.push(":");
    searched.push(path);
    let last = last.filter(|last| !std::env::split_paths(path).any(|known| known == *last));
    if let Some(last) = last {
        searched.push(":");
        searched.push(last);
    }
    searched
}

/// Git runs the variable with a shell.
fn shell_word(program: &Path) -> OsString {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(byte);
    if program.as_os_str().as_encoded_bytes().iter().all(plain) {
        return program.into();
    }
    let text = program.to_string_lossy().replace('\'', r"'\''");
    format!("'{text}'").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::test_config;

    fn of(config: &Config, manifest: &Manifest, session: &[(&str, &str)]) -> BTreeMap<String, String> {
        let session: Vec<_> =
            session.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let text = |text: OsString| text.into_string().unwrap();
        of_command(config, manifest, &session)
            .into_iter()
            .map(|(name, value)| (text(name), text(value)))
            .collect()
    }

    /// agent 4.3.
    #[test]
    fn strongest_source_wins() {
        let mut config = test_config();
        config.environment = [("PATH", "/bin"), ("KEPT", "agent"), ("LANG", "C"), ("CODER", "no")]
            .map(|(name, value)| (name.into(), value.into()))
            .into();
        let mut manifest = Manifest { workspace_name: "dev".to_owned(), ..Manifest::default() };
        manifest.environment = [("KEPT", "$KEPT and manifest"), ("OTHER", "$HOME_")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let all =
            of(&config, &manifest, &[("LANG", "de"), ("MINE", "yes"), ("USER", "client"), ("A=B", "x")]);
        let check =
            |name: &str, want: &str| assert_eq!(all.get(name).map(String::as_str), Some(want), "{name}");
        check("CODER", "true");
        check("KEPT", "agent and manifest");
        check("OTHER", "");
        check("LANG", "C");
        check("MINE", "yes");
        check("USER", "client");
        check("CODER_WORKSPACE_NAME", "dev");
        check("GIT_SSH_COMMAND", "/opt/coder gitssh --");
        check("GIT_ASKPASS", "/opt/coder");
        check("SSH_CONNECTION", "0.0.0.0 0 0.0.0.0 0");
        assert!(!all.contains_key("A=B") && !all.contains_key("VSCODE_PROXY_URI"));
        let bin = config.bin_dir();
        check("PATH", &format!("{}:/bin:/opt", bin.display()));
    }

    #[test]
    fn program_is_quoted_for_the_shell() {
        assert_eq!(shell_word(Path::new("/opt/my coder's/coder")), r"'/opt/my coder'\''s/coder'");
    }
}
