//! OpenSSH's own server on loopback, for comparison.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use tempfile::TempDir;

use super::Ssh;
use crate::process::{Running, wait_for};

/// Where Debian has it.
const SSHD_PATH: &str = "/usr/sbin/sshd";

/// A server with a fresh key for host and user.
pub(super) struct Sshd {
    folder: TempDir,
    port: u16,
    _process: Running,
}

impl Sshd {
    /// None when it is not installed.
    pub(super) fn start() -> Result<Option<Self>> {
        if !Path::new(SSHD_PATH).exists() {
            eprintln!("{SSHD_PATH} does not exist: its rows are left out");
            return Ok(None);
        }
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let keygen = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f", &path("key")])
            .status()?;
        if !keygen.success() {
            bail!("ssh-keygen ended with {keygen}");
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let options = [
            format!("ListenAddress=127.0.0.1:{port}"),
            format!("HostKey={}", path("key")),
            format!("AuthorizedKeysFile={}", path("key.pub")),
            "StrictModes=no".to_owned(),
            "UsePAM=no".to_owned(),
            "PidFile=none".to_owned(),
        ];
        let mut server = Command::new(SSHD_PATH);
        server.args(["-D", "-f", "/dev/null"]);
        options.iter().for_each(|option| {
            server.args(["-o", option]);
        });
        let process = Running(server.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?);
        wait_for("OpenSSH's server", || Ok(TcpStream::connect(("127.0.0.1", port)).is_ok()))?;
        Ok(Some(Self { folder, port, _process: process }))
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// A client of it. OpenSSH takes the first port that it is given.
    pub(super) fn client(&self) -> Result<Ssh> {
        let config = self.folder.path().join("config");
        let text = format!(
            "Host sshd\n Hostname 127.0.0.1\n Port {}\n IdentityFile {}\n StrictHostKeyChecking no\n \
             UserKnownHostsFile /dev/null\n LogLevel ERROR\n",
            self.port,
            self.folder.path().join("key").display()
        );
        std::fs::write(&config, text)?;
        let options = vec!["-F".to_owned(), config.to_string_lossy().into_owned()];
        Ok(Ssh { options, host: "sshd".to_owned(), home: self.folder.path().to_owned() })
    }
}
