//! The client address of a request, read through trusted proxies.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::extract::{ConnectInfo, Request};
use coder_domain::key::Network;
use http::HeaderMap;

use crate::config::Proxies;

/// The client's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The address of the connection, or the one that a trusted proxy reports.
    pub address: IpAddr,
}

impl Peer {
    /// Reads the address of a request; in-process requests count as local.
    pub fn of(request: &Request, proxies: &Proxies) -> Self {
        let connection = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
        let direct = connection.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)).to_canonical();
        if !proxies.trusts(direct) {
            return Self { address: direct };
        }
        let header = proxies.headers.iter().find(|name| request.headers().contains_key(*name));
        let address = header.map_or(direct, |name| forwarded(request.headers(), name, direct, proxies));
        Self { address }
    }

    /// The network by which the limits count this client.
    #[must_use]
    pub fn network(self) -> Network {
        Network::of_client(self.address)
    }
}

/// The rightmost address of a header that is not a trusted proxy's. Each proxy appends the address of its peer, so
/// everything further left is a claim of that client. When the list ends or is invalid, the last proxy's address counts.
fn forwarded(headers: &HeaderMap, name: &str, direct: IpAddr, proxies: &Proxies) -> IpAddr {
    let lines: Vec<_> =
        headers.get_all(name).iter().map(|value| value.to_str().unwrap_or_default()).collect();
    let mut last = direct;
    for entry in lines.iter().rev().flat_map(|line| line.rsplit(',')) {
        let Some(address) = address(entry.trim()) else { return last };
        last = address;
        if !proxies.trusts(address) {
            return last;
        }
    }
    last
}

/// Reads an address, with a port or without.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The address of a request from `from` with these lines of X-Forwarded-For.
    fn ask(from: &str, lines: &[&str]) -> String {
        let proxies = Proxies {
            headers: vec!["X-Forwarded-For".to_owned(), "X-Real-Ip".to_owned()],
            origins: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
        };
        let mut request = Request::builder().header("x-real-ip", "6.6.6.6");
        for line in lines {
            request = request.header("x-forwarded-for", *line);
        }
        let mut request = request.body(axum::body::Body::empty()).unwrap();
        let from: IpAddr = from.parse().unwrap();
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from((from, 1))));
        Peer::of(&request, &proxies).address.to_string()
    }

    #[test]
    fn headers_count_only_from_trusted_proxies() {
        assert_eq!(ask("10.1.1.1", &["1.2.3.4"]), "1.2.3.4");
        assert_eq!(ask("::ffff:10.1.1.1", &["1.2.3.4"]), "1.2.3.4");
        assert_eq!(ask("9.9.9.9", &["1.2.3.4"]), "9.9.9.9");
    }

    #[test]
    fn the_rightmost_address_that_is_no_trusted_proxy_counts() {
        for (lines, want) in [
            // The client's claims are left of the address that the proxy appended.
            (&["7.7.7.7, 1.2.3.4"][..], "1.2.3.4"),
            (&["7.7.7.7, 1.2.3.4, 10.0.0.9"], "1.2.3.4"),
            (&["10.0.0.1, 1.2.3.4,10.0.0.9 , fd00::1"], "1.2.3.4"),
            // A proxy that adds a line instead of extending the client's.
            (&["7.7.7.7", "1.2.3.4"], "1.2.3.4"),
            (&["7.7.7.7", "1.2.3.4", "10.0.0.9"], "1.2.3.4"),
            // Ports and brackets.
            (&["7.7.7.7, 1.2.3.4:5678"], "1.2.3.4"),
            (&["7.7.7.7, [2001:db8::1]:5678"], "2001:db8::1"),
            (&["7.7.7.7, [2001:db8::1]"], "2001:db8::1"),
            (&["7.7.7.7, ::ffff:1.2.3.4"], "1.2.3.4"),
            // Inside the proxies' own network.
            (&["10.0.0.7"], "10.0.0.7"),
            (&["10.0.0.7, 10.0.0.8"], "10.0.0.7"),
        ] {
            assert_eq!(ask("10.1.1.1", lines), want, "{lines:?}");
        }
    }

    #[test]
    fn entries_before_an_unreadable_one_are_ignored() {
        for (lines, want) in [
            (&["7.7.7.7, unknown"][..], "10.1.1.1"),
            (&["7.7.7.7, unknown, 10.0.0.9"], "10.0.0.9"),
            (&["7.7.7.7,"], "10.1.1.1"),
            (&["7.7.7.7", ""], "10.1.1.1"),
        ] {
            assert_eq!(ask("10.1.1.1", lines), want, "{lines:?}");
        }
    }

    #[test]
    fn the_next_header_counts_only_without_the_first() {
        assert_eq!(ask("10.1.1.1", &[]), "6.6.6.6");
        assert_eq!(ask("10.1.1.1", &["unknown"]), "10.1.1.1");
    }
}
