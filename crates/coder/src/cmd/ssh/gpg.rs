//! `--forward-gpg`: programs in the workspace use the keys of this machine's GnuPG agent. Only public keys leave this machine.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail};
use coder_tailnet::node::TcpStream;
use tokio::process::Command;

use super::forward::RemoteForward;
use super::session;

/// Where the shell of the workspace does not find a program.
const NOT_FOUND: u8 = 127;

/// Public keys, how far they are trusted, and the socket for clients on other machines.
pub(super) struct LocalAgent {
    keys: Vec<u8>,
    trust: Vec<u8>,
    socket: PathBuf,
}

impl LocalAgent {
    /// Reads what the GnuPG of this machine says.
    pub(super) async fn find() -> anyhow::Result<Self> {
        let socket = local("gpgconf", &["--list-dirs", "agent-extra-socket"]).await?;
        let socket = PathBuf::from(OsString::from_vec(socket.trim_ascii_end().to_vec()));
        if !is_socket(&socket) {
            bail!("no GnuPG agent runs on this machine: start it with `gpgconf --launch gpg-agent`");
        }
        let keys = local("gpg", &["--batch", "--export"]).await?;
        if keys.is_empty() {
            bail!("--forward-gpg needs a key of GnuPG: `gpg --list-keys` lists none on this machine");
        }
        let trust = local("gpg", &["--batch", "--export-ownertrust"]).await?;
        Ok(Self { keys, trust, socket })
    }

    /// Gives the workspace the public keys. Returns the forward of the socket where its programs look for an agent.
    pub(super) async fn prepare(self, stream: TcpStream) -> anyhow::Result<RemoteForward> {
        let session = session::connect(stream, session::Handler::default()).await?;
        let run = async |command, input| {
            let output = session::output_of(&session, command, input).await?;
            match output.code {
                0 => Ok(output.out),
                NOT_FOUND => {
                    bail!("--forward-gpg needs GnuPG in the workspace: install gpg and gpgconf in its image")
                }
                code => {
                    let text = String::from_utf8_lossy(&output.err);
                    bail!("`{command}` ended with {code} in the workspace: {}", text.trim())
                }
            }
        };
        run("gpg --batch --import", &self.keys).await?;
        run("gpg --batch --import-ownertrust", &self.trust).await?;
        // An agent of the workspace would take the socket back.
        run("gpgconf --kill gpg-agent", &[]).await?;
        let remote = run("gpgconf --list-dirs agent-socket", &[]).await?;
        let remote = String::from_utf8(remote).context("read the path of the workspace's GnuPG agent")?;
        session::leave(&session).await;
        Ok(RemoteForward::Unix { remote: remote.trim_end().to_owned(), local: self.socket })
    }
}

async fn local(program: &str, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output = command
        .output()
        .await
        .with_context(|| format!("--forward-gpg needs GnuPG on this machine: run {program}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("{program} ended with {}: {}", output.status, text.trim());
    }
    Ok(output.stdout)
}

fn is_socket(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_socket())
}
