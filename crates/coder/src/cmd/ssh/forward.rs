//! Remote forwards: a port or a socket in the workspace that leads to this machine.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// One forward of `-R`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RemoteForward {
    /// `remote_port:local_address:local_port`. The remote port is on the loopback address.
    Tcp {
        /// In the workspace.
        remote_port: u16,
        /// On this machine: a name or an address.
        host: String,
        /// On this machine.
        port: u16,
    },
    /// `remote_socket:local_socket`.
    Unix {
        /// In the workspace.
        remote: String,
        /// On this machine.
        local: PathBuf,
    },
}

impl FromStr for RemoteForward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a forward: use remote_port:local_address:local_port or remote_socket:local_socket"
            )
        };
        if let Some((remote, local)) = text.split_once(':')
            && remote.starts_with('/')
        {
            if local.is_empty() || local.contains(':') {
                return Err(wrong());
            }
            return Ok(Self::Unix { remote: remote.to_owned(), local: local.into() });
        }
        let (remote_port, rest) = text.split_once(':').ok_or_else(wrong)?;
        let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong);
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match bare {
            Some(address) => address.parse::<IpAddr>().is_ok(),
            None => !host.is_empty() && !host.contains(':'),
        };
        if !is_host {
            return Err(wrong());
        }
        let host = bare.unwrap_or(host).to_owned();
        Ok(Self::Tcp { remote_port: number(remote_port)?, host, port: number(port)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_are_ports_or_sockets() {
        let tcp =
            |remote_port, host: &str, port| RemoteForward::Tcp { remote_port, host: host.to_owned(), port };
        assert_eq!("8080:127.0.0.1:80".parse(), Ok(tcp(8080, "127.0.0.1", 80)));
        assert_eq!("8080:localhost:80".parse(), Ok(tcp(8080, "localhost", 80)));
        assert_eq!("8080:[::1]:80".parse(), Ok(tcp(8080, "::1", 80)));
        let unix = RemoteForward::Unix { remote: "/tmp/a".to_owned(), local: "/tmp/b".into() };
        assert_eq!("/tmp/a:/tmp/b".parse(), Ok(unix));
        for wrong in [
            "",
            "8080",
            "8080:80",
            "0:h:80",
            "8080:h:0",
            "8080:h:70000",
            "/a",
            "/a:",
            "8080::80",
            "8080:::1:80",
        ] {
            assert!(wrong.parse::<RemoteForward>().is_err(), "{wrong}");
        }
    }
}
