//! What is forwarded: `[address:]local[-end][:remote[-end]]`.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Context as _, bail};

/// Forwards of one command: each has a listener or two.
const MAX_FORWARDS: usize = 4096;

/// The protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// One port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Forward {
    pub(super) protocol: Protocol,
    /// None for the loopback addresses.
    pub(super) address: Option<IpAddr>,
    pub(super) local: u16,
    pub(super) remote: u16,
}

/// Reads all of them. Each local port may be forwarded once.
pub(super) fn parse(tcp: &[String], udp: &[String]) -> anyhow::Result<Vec<Forward>> {
    let mut forwards = Vec::new();
    for (protocol, specs) in [(Protocol::Tcp, tcp), (Protocol::Udp, udp)] {
        for spec in specs.iter().map(|spec| spec.trim()).filter(|spec| !spec.is_empty()) {
            forwards.extend(
                parse_one(protocol, spec).with_context(|| format!("read --{} {spec:?}", protocol.name()))?,
            );
            if forwards.len() > MAX_FORWARDS {
                bail!("more than {MAX_FORWARDS} ports are forwarded");
            }
        }
    }
    let mut seen = BTreeSet::new();
    for forward in &forwards {
        if !seen.insert((forward.protocol, forward.address, forward.local)) {
            bail!("the local {} port {} is forwarded twice", forward.protocol.name(), forward.local);
        }
    }
    Ok(forwards)
}

fn parse_one(protocol: Protocol, spec: &str) -> anyhow::Result<Vec<Forward>> {
    let (address, ports) = split_address(spec)?;
    let parts: Vec<_> = ports.split(':').collect();
    let (local, remote) = match parts[..] {
        [both] => (range(both)?, range(both)?),
        [local, remote] => (range(local)?, range(remote)?),
        _ => bail!("it is not of the form [address:]local[:remote]"),
    };
    if local.len() != remote.len() {
        bail!("the local range has {} ports, the remote one {}", local.len(), remote.len());
    }
    let forward = |(local, remote)| Forward { protocol, address, local, remote };
    Ok(local.zip(remote).map(forward).collect())
}

/// The address, and the ports behind it. An IPv6 address has brackets.
fn split_address(spec: &str) -> anyhow::Result<(Option<IpAddr>, &str)> {
    if let Some(rest) = spec.strip_prefix('[') {
        let Some((address, ports)) = rest.split_once("]:") else {
            bail!("the address has no closing bracket")
        };
        let address = address.parse().with_context(|| format!("{address:?} is not an IP address"))?;
        return Ok((Some(IpAddr::V6(address)), ports));
    }
    if let Some((first, rest)) = spec.split_once(':')
        && first.contains('.')
    {
        let address = first.parse().with_context(|| format!("{first:?} is not an IP address"))?;
        return Ok((Some(address), rest));
    }
    Ok((None, spec))
}

fn range(text: &str) -> anyhow::Result<std::ops::RangeInclusive<u16>> {
    let number = |text: &str| match text.parse::<u16>() {
        Ok(0) => bail!("port 0 cannot be forwarded"),
        Ok(port) => Ok(port),
        Err(_) => bail!("{text:?} is not a port: ports are numbers from 1 to 65535"),
    };
    let (start, end) = match text.split_once('-') {
        Some((start, end)) => (number(start)?, number(end)?),
        None => (number(text)?, number(text)?),
    };
    if end < start {
        bail!("the range {text:?} ends before it starts");
    }
    Ok(start..=end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(specs: &[&str]) -> anyhow::Result<Vec<(String, u16, u16)>> {
        let specs: Vec<_> = specs.iter().map(|spec| (*spec).to_owned()).collect();
        let address =
            |address: Option<IpAddr>| address.map(|address| address.to_string()).unwrap_or_default();
        let show = |one: Forward| (address(one.address), one.local, one.remote);
        Ok(parse(&specs, &[])?.into_iter().map(show).collect())
    }

    /// agent 7.4.
    #[test]
    fn specs_have_the_forms_of_the_official_program() {
        let plain = |local, remote| (String::new(), local, remote);
        let at = |address: &str, local, remote| (address.to_owned(), local, remote);
        assert_eq!(tcp(&["8080"]).unwrap(), [plain(8080, 8080)]);
        assert_eq!(tcp(&["8080:3000"]).unwrap(), [plain(8080, 3000)]);
        assert_eq!(tcp(&["9000-9001:9004-9005"]).unwrap(), [plain(9000, 9004), plain(9001, 9005)]);
        assert_eq!(tcp(&["9000-9001"]).unwrap(), [plain(9000, 9000), plain(9001, 9001)]);
        assert_eq!(tcp(&["0.0.0.0:8080:80"]).unwrap(), [at("0.0.0.0", 8080, 80)]);
        assert_eq!(tcp(&["[::1]:8080"]).unwrap(), [at("::1", 8080, 8080)]);
        assert_eq!(tcp(&["127.0.0.1:1", "127.0.0.2:1"]).unwrap().len(), 2);
        for wrong in [
            "x",
            "0",
            "65536",
            "8080:0",
            "1:2:3:4",
            "1-2:3",
            "2-1",
            "1-2:1-3",
            "1.2.3:80",
            "[::1:80",
            "[::1]80",
            "[127.0.0.1]:80",
            "-1",
            "1-",
        ] {
            assert!(tcp(&[wrong]).is_err(), "{wrong}");
        }
        assert!(tcp(&["8080", "8079-8081"]).unwrap_err().to_string().contains("8080"));
        assert!(tcp(&["1-60000"]).is_err(), "too many");
        let both = parse(&["53".to_owned()], &["53".to_owned()]).unwrap();
        assert_eq!(both.len(), 2, "TCP and UDP have ports of their own");
    }
}
