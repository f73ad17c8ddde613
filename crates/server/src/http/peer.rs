//! Whose address a request comes from, through the proxies that are believed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::extract::{ConnectInfo, Request};

use crate::config::Proxies;

/// The client's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// As the connection says, or as a believed proxy says.
    pub address: IpAddr,
}

impl Peer {
    /// Reads the address of a request; in-process requests count as local.
    pub fn of(request: &Request, proxies: &Proxies) -> Self {
        let connection = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
        let direct = connection.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)).to_canonical();
        if !proxies.origins.iter().any(|(network, bits)| contains(*network, *bits, direct)) {
            return Self { address: direct };
        }
        let forwarded = proxies.headers.iter().find_map(|name| {
            let value = request.headers().get(name)?.to_str().ok()?;
            value.split(',').next()?.trim().parse::<IpAddr>().ok()
        });
        Self { address: forwarded.unwrap_or(direct).to_canonical() }
    }
}

fn contains(network: IpAddr, bits: u8, address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            network.to_bits() & mask == address.to_bits() & mask
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            network.to_bits() & mask == address.to_bits() & mask
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        let check = |network: &str, bits, address: &str| {
            contains(network.parse().unwrap(), bits, address.parse().unwrap())
        };
        assert!(check("10.0.0.0", 8, "10.200.3.4"));
        assert!(!check("10.0.0.0", 8, "11.0.0.1"));
        assert!(check("0.0.0.0", 0, "8.8.8.8"));
        assert!(check("fd00::", 8, "fd12::1"));
        assert!(!check("fd00::", 8, "10.0.0.1"));
    }

    #[test]
    fn only_believed_proxies_speak_for_others() {
        let ask = |from: [u8; 4]| {
            let proxies = Proxies {
                headers: vec!["X-Forwarded-For".to_owned()],
                origins: vec![("10.0.0.0".parse().unwrap(), 8)],
            };
            let mut request = Request::builder()
                .header("x-forwarded-for", "1.2.3.4, 10.0.0.9")
                .body(axum::body::Body::empty())
                .unwrap();
            request.extensions_mut().insert(ConnectInfo(SocketAddr::from((from, 1))));
            Peer::of(&request, &proxies).address.to_string()
        };
        assert_eq!(ask([10, 1, 1, 1]), "1.2.3.4");
        assert_eq!(ask([9, 9, 9, 9]), "9.9.9.9");
    }
}
