//! `coder gitssh`: SSH for Git with the key of the workspace's owner, after the user's own keys (agent 7.5).

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use tokio::signal::unix::{SignalKind, signal};

use crate::cmd::agent::session::AgentSession;
use crate::runtime;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: AgentSession,
    /// What `ssh` gets.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "SSH ARGUMENTS")]
    arguments: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let code = runtime::small()?.block_on(execute(args))?;
    // Git and its users know the codes of ssh.
    std::process::exit(code);
}

async fn execute(args: &Args) -> anyhow::Result<i32> {
    let key = args.session.client()?.git_ssh_key_of_owner().await;
    let key = key.context("ask the server for the owner's Git key")?;
    // A signal ends ssh and not this process, which removes the key.
    let mut interrupted = signal(SignalKind::interrupt()).context("take over signals")?;
    let mut terminated = signal(SignalKind::terminate()).context("take over signals")?;
    let mut hung_up = signal(SignalKind::hangup()).context("take over signals")?;
    let directory = tempfile::Builder::new()
        .prefix("coder-gitssh-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
        .context("make a directory for the key")?;
    let identity = directory.path().join("key");
    write_private(&identity, key.private_key.expose().as_bytes()).context("write the owner's Git key")?;
    let mut ssh = tokio::process::Command::new("ssh");
    for path in own_identities(&args.arguments).into_iter().chain([identity]) {
        ssh.arg("-i").arg(path);
    }
    let mut child = match ssh.args(&args.arguments).spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("`ssh` is not installed: install the OpenSSH client in the workspace's image")
        }
        Err(error) => return Err(error).context("run ssh"),
    };
    let status = loop {
        tokio::select! {
            status = child.wait() => break status.context("run ssh")?,
            // The terminal signals ssh, too.
            _ = interrupted.recv() => {}
            _ = terminated.recv() => drop(child.start_kill()),
            _ = hung_up.recv() => drop(child.start_kill()),
        }
    };
    Ok(status.code().unwrap_or(255))
}

/// The files that `ssh` would use by itself: with `-i` it uses only those named.
fn own_identities(arguments: &[String]) -> Vec<PathBuf> {
    let Ok(output) = Command::new("ssh").arg("-G").args(arguments).output() else { return Vec::new() };
    let home = std::env::home_dir();
    parse_identities(&String::from_utf8_lossy(&output.stdout), home.as_deref(), |path| path.is_file())
}

fn parse_identities(text: &str, home: Option<&Path>, exists: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let paths = text.lines().filter_map(|line| line.strip_prefix("identityfile ")).map(str::trim);
    let paths = paths.filter_map(|path| match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => Some(home.join(rest)),
        (Some(_), None) => None,
        (None, _) => Some(PathBuf::from(path)),
    });
    paths.filter(|path| exists(path)).collect()
}

fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_identities_come_first() {
        let text = "user git\nidentityfile ~/.ssh/id_rsa\nidentityfile /keys/a\nidentityfile ~/.ssh/missing\nport 22\n";
        let found = parse_identities(text, Some(Path::new("/home/ann")), |path| !path.ends_with("missing"));
        assert_eq!(found, [Path::new("/home/ann/.ssh/id_rsa"), Path::new("/keys/a")]);
        assert_eq!(parse_identities(text, None, |_| true), [Path::new("/keys/a")]);
    }
}
