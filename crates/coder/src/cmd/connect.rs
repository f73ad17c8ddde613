//! `coder connect exists`: whether a host name leads to a workspace without this program, as the desktop client arranges it.

use std::net::IpAddr;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::timeout;

use crate::exit::AnswerIsNo;

/// The addresses of workspaces begin with it: `fd60:627a:a42b::/48`.
const PREFIX: [u16; 3] = [0xfd60, 0x627a, 0xa42b];
/// OpenSSH waits for the answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The commands below `coder connect`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Succeed when the host name leads to a workspace.
    Exists(Exists),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Exists {
    /// Host name.
    host: String,
}

pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    let Command::Exists(Exists { host }) = command;
    // A name that cannot be looked up does not exist.
    let found = timeout(ANSWER_TIMEOUT, lookup_host((host.as_str(), 22))).await;
    let exists = match found {
        Ok(Ok(mut found)) => found.any(|found| is_workspace(found.ip())),
        _ => false,
    };
    if exists { Ok(()) } else { Err(AnswerIsNo.into()) }
}

fn is_workspace(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.segments()[..3] == PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_workspaces_count() {
        assert!(is_workspace("fd60:627a:a42b::1".parse().unwrap()));
        for address in ["fd60:627a:a42c::1", "fd7a:115c:a1e0::1", "127.0.0.1", "::1"] {
            assert!(!is_workspace(address.parse().unwrap()), "{address}");
        }
    }
}
