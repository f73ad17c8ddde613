//! Addresses of the overlay network: the last ten bytes of a UUID behind one of two prefixes.

use std::net::Ipv6Addr;

use uuid::Uuid;

/// First bytes of every agent's and client's address.
const PREFIX: [u8; 6] = [0xfd, 0x7a, 0x11, 0x5c, 0xa1, 0xe0];
/// First bytes of an agent's second address, which Coder Connect uses.
const CONNECT_PREFIX: [u8; 6] = [0xfd, 0x60, 0x62, 0x7a, 0xa4, 0x2b];
/// The address that old agents announce, all of them the same.
pub const LEGACY_AGENT: Ipv6Addr =
    Ipv6Addr::new(0xfd7a, 0x115c, 0xa1e0, 0x49d6, 0xb259, 0xb7ac, 0xb1b2, 0x48f4);

/// An address text is not `address/128`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an IPv6 address with a prefix of 128 bits")]
pub struct PrefixError;

fn with_prefix(prefix: [u8; 6], id: Uuid) -> Ipv6Addr {
    let mut bytes = *id.as_bytes();
    bytes[..prefix.len()].copy_from_slice(&prefix);
    bytes.into()
}

/// The address that everybody uses for the agent or client with this id.
#[must_use]
pub fn of(id: Uuid) -> Ipv6Addr {
    with_prefix(PREFIX, id)
}

/// The addresses that an agent announces, the usual one first.
#[must_use]
pub fn of_agent(id: Uuid) -> [Ipv6Addr; 2] {
    [of(id), with_prefix(CONNECT_PREFIX, id)]
}

/// Reads an address as peers announce it.
///
/// # Errors
/// [`PrefixError`] for anything but one IPv6 address with `/128`.
pub fn parse_prefix(text: &str) -> Result<Ipv6Addr, PrefixError> {
    text.strip_suffix("/128").and_then(|address| address.parse().ok()).ok_or(PrefixError)
}

/// The text as peers announce it.
#[must_use]
pub fn to_prefix(address: Ipv6Addr) -> String {
    format!("{address}/128")
}

/// `Node.id` of an agent.
#[must_use]
pub fn node_id(id: Uuid) -> i64 {
    let [.., a, b, c, d, e, f, g, h] = *id.as_bytes();
    i64::from_be_bytes([a, b, c, d, e, f, g, h]).wrapping_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Uuid = Uuid::from_u128(0x5d0a_3a52_7a1c_4c0f_9a83_2f9d_8d1e_6b10);

    #[test]
    fn addresses_replace_the_first_six_bytes() {
        assert_eq!(of(ID).to_string(), "fd7a:115c:a1e0:4c0f:9a83:2f9d:8d1e:6b10");
        assert_eq!(of_agent(ID)[1].to_string(), "fd60:627a:a42b:4c0f:9a83:2f9d:8d1e:6b10");
    }

    #[test]
    fn only_whole_addresses_are_announced() {
        assert_eq!(parse_prefix(&to_prefix(of(ID))), Ok(of(ID)));
        for text in ["", "/128", "fd7a::/48", "fd7a::1", "10.0.0.1/128", "::ffff:10.0.0.1/32", "fd7a::1/128 "]
        {
            assert_eq!(parse_prefix(text), Err(PrefixError), "{text}");
        }
    }

    #[test]
    fn node_id_is_the_absolute_value_of_the_last_bytes() {
        assert_eq!(node_id(ID), 0x9a83_2f9d_8d1e_6b10_u64.wrapping_neg() as i64);
        assert_eq!(node_id(Uuid::from_u128(5)), 5);
        assert_eq!(node_id(Uuid::from_u128(u128::from(u64::MAX))), 1);
    }
}
