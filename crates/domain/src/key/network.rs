//! Networks from which a key may be used: prefixes of IPv4 and IPv6 addresses, and lists of them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// An address prefix such as `10.1.0.0/16`, `fd00::/8` or a single address.
///
/// Invariant: the bits behind the prefix are zero, and an IPv4 network is never written as IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network(IpNet);

/// Why a text is not a network, or not a list of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No address before the slash.
    #[error("{0:?} is not a network: write it as 10.0.0.0/8, fd00::/8 or a single address")]
    Address(String),
    /// The prefix length is missing or too long.
    #[error("{text:?} has no valid prefix length: it is a number up to {limit}")]
    Prefix {
        /// The whole text.
        text: String,
        /// The greatest prefix length of the address.
        limit: u8,
    },
    /// Bits after the prefix are set, so the network is ambiguous.
    #[error("{text:?} has bits set behind its prefix: write {meant} for the network, or the address alone")]
    HostBits {
        /// The whole text.
        text: String,
        /// The network that contains it.
        meant: Network,
    },
    /// More than [`AllowList::MAX_NETWORKS`].
    #[error("an allow list has at most {limit} networks, this one has {0}", limit = AllowList::MAX_NETWORKS)]
    TooMany(usize),
}

impl Network {
    /// The network by which limits count a client: its IPv4 address, or the /64 of its IPv6 address, because the owner of
    /// one IPv6 address usually has a whole /64.
    #[must_use]
    pub fn of_client(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self(IpNet::new_assert(address, if address.is_ipv4() { 32 } else { 64 }).trunc())
    }

    /// Whether it contains the address. An IPv4 address that arrives in IPv6 form (`::ffff:10.0.0.1`, as on a socket that
    /// listens to both) counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Network {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let shown = || text.chars().take(64).collect::<String>();
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let mut address: IpAddr = address.parse().map_err(|_| Error::Address(shown()))?;
        let limit = IpNet::from(address).max_prefix_len();
        let mut length = limit;
        if let Some(prefix) = prefix {
            let plain = !prefix.is_empty() && prefix.len() <= 3 && prefix.bytes().all(|b| b.is_ascii_digit());
            let number = prefix.parse().ok().filter(|number| plain && *number <= limit);
            length = number.ok_or_else(|| Error::Prefix { text: shown(), limit })?;
        }
        // ::ffff:10.0.0.0/104 is 10.0.0.0/8; a shorter prefix is a network of IPv6 and stays one.
        if address.to_canonical().is_ipv4() != address.is_ipv4() && length >= 96 {
            address = address.to_canonical();
            length -= 96;
        }
        let network = IpNet::new_assert(address, length).trunc();
        if network.addr() != address {
            return Err(Error::HostBits { text: shown(), meant: Self(network) });
        }
        Ok(Self(network))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.prefix_len() == self.0.max_prefix_len() { self.0.addr().fmt(f) } else { self.0.fmt(f) }
    }
}

impl TryFrom<String> for Network {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

/// The networks from which a key may be used; an empty list allows all addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<Network>", into = "Vec<Network>")]
pub struct AllowList(Vec<Network>);

impl AllowList {
    /// How many networks a list may have.
    pub const MAX_NETWORKS: usize = 64;

    /// A list, in order and without duplicates.
    pub fn new(networks: impl IntoIterator<Item = Network>) -> Result<Self, Error> {
        let mut networks: Vec<_> = networks.into_iter().collect();
        networks.sort_unstable();
        networks.dedup();
        if networks.len() > Self::MAX_NETWORKS {
            Err(Error::TooMany(networks.len()))
        } else {
            Ok(Self(networks))
        }
    }

    /// Parses a list of texts, as clients send it.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        Self::new(texts.into_iter().map(str::parse).collect::<Result<Vec<_>, _>>()?)
    }

    #[must_use]
    pub fn networks(&self) -> &[Network] {
        &self.0
    }

    /// Whether a key with this list may be used from the address. An unknown address is allowed by an empty list only.
    #[must_use]
    pub fn allows(&self, address: Option<IpAddr>) -> bool {
        let inside = |address| self.0.iter().any(|network| network.contains(address));
        self.0.is_empty() || address.is_some_and(inside)
    }
}

impl TryFrom<Vec<Network>> for AllowList {
    type Error = Error;
    fn try_from(networks: Vec<Network>) -> Result<Self, Error> {
        Self::new(networks)
    }
}

impl From<AllowList> for Vec<Network> {
    fn from(list: AllowList) -> Self {
        list.0
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;

    fn network(text: &str) -> Network {
        text.parse().expect("a network")
    }

    #[test]
    fn texts_round_trip() {
        for (text, shown) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("192.168.1.7", "192.168.1.7"),
            ("192.168.1.7/32", "192.168.1.7"),
            ("fd00::/8", "fd00::/8"),
            ("::/0", "::/0"),
            ("::1", "::1"),
            ("2001:DB8::/32", "2001:db8::/32"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
        ] {
            assert_eq!(network(text).to_string(), shown);
            assert_eq!(network(shown), network(text));
        }
    }

    #[test]
    fn texts_that_are_not_a_network() {
        for text in
            ["", "/8", "10.0.0/8", "10.0.0.0.0/8", "example.com", "fe80::1%eth0", "010.0.0.1", " 10.0.0.1"]
        {
            assert!(matches!(text.parse::<Network>(), Err(Error::Address(_))), "{text:?}");
        }
        for text in
            ["10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/8/8", "::/129", "::/0000"]
        {
            assert!(matches!(text.parse::<Network>(), Err(Error::Prefix { .. })), "{text:?}");
        }
        let error = "10.1.2.3/8".parse::<Network>().expect_err("host bits");
        assert!(error.to_string().contains("write 10.0.0.0/8"), "{error}");
    }

    #[test]
    fn membership_at_the_edges() {
        let check = |text: &str, address: &str, inside| {
            assert_eq!(
                network(text).contains(address.parse().expect("an address")),
                inside,
                "{text} {address}"
            );
        };
        check("10.0.0.0/8", "10.0.0.0", true);
        check("10.0.0.0/8", "10.255.255.255", true);
        check("10.0.0.0/8", "11.0.0.0", false);
        check("10.0.0.0/8", "::ffff:10.9.8.7", true);
        check("::ffff:10.0.0.0/104", "10.9.8.7", true);
        check("0.0.0.0/0", "255.1.2.3", true);
        check("0.0.0.0/0", "::1", false);
        check("::/0", "::1", true);
        check("::/0", "10.0.0.1", false);
        check("::/0", "::ffff:10.0.0.1", false);
        check("fd00::/8", "fdff::1", true);
        check("fd00::/8", "fe00::1", false);
        check("2001:db8::1", "2001:db8::1", true);
        check("2001:db8::1", "2001:db8::2", false);
    }

    #[test]
    fn a_list_allows_the_addresses_of_its_networks() {
        let list = AllowList::parse(["10.0.0.0/8", "::1"]).expect("a list");
        let at = |text: &str| Some(text.parse().expect("an address"));
        assert!(list.allows(at("10.1.1.1")) && list.allows(at("::1")) && !list.allows(at("8.8.8.8")));
        assert!(!list.allows(None), "an unknown address is not in it");
        assert!(AllowList::default().allows(None) && AllowList::default().allows(at("8.8.8.8")));
    }

    #[test]
    fn a_list_has_a_bound_and_no_duplicates() {
        let all: Vec<_> = (0..=64).map(|n| format!("10.0.0.{n}")).collect();
        assert_eq!(AllowList::parse(all.iter().map(String::as_str)), Err(Error::TooMany(65)));
        assert_eq!(
            AllowList::parse(["10.0.0.1", "::ffff:10.0.0.1"]).map(|list| list.networks().len()),
            Ok(1)
        );
        let read: Result<AllowList, _> = serde_json::from_str(r#"["10.0.0.1/8"]"#);
        assert!(read.is_err());
        let list: AllowList = serde_json::from_str(r#"["10.0.0.0/8"]"#).expect("a list");
        assert_eq!(serde_json::to_string(&list).expect("json"), r#"["10.0.0.0/8"]"#);
    }

    proptest! {
        /// Membership bit by bit.
        #[test]
        fn membership_is_equality_of_leading_bits(network: [u8; 16], address: [u8; 16], same in 0_usize..=128, prefix in 0_u8..=128) {
            let bit = |bytes: &[u8; 16], index: usize| bytes[index / 8] >> (7 - index % 8) & 1;
            // The address shares its first bits with the network, else nothing would ever be inside.
            let mut near = address;
            for index in 0..same {
                let mask = 1 << (7 - index % 8);
                near[index / 8] = (near[index / 8] & !mask) | (bit(&network, index) << (7 - index % 8));
            }
            let (base, near_address) = (Ipv6Addr::from(network), Ipv6Addr::from(near));
            prop_assume!(base.to_ipv4_mapped().is_none() && near_address.to_ipv4_mapped().is_none());
            let parsed = Network(IpNet::new_assert(base.into(), prefix).trunc());
            let expected = (0..usize::from(prefix)).all(|index| bit(&network, index) == bit(&near, index));
            prop_assert_eq!(parsed.contains(near_address.into()), expected);
            prop_assert_eq!(parsed.to_string().parse::<Network>(), Ok(parsed));
        }
    }

    #[test]
    fn clients_are_counted_by_ipv4_address_and_ipv6_64() {
        let of = |text: &str| Network::of_client(text.parse().unwrap());
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
    }
}
