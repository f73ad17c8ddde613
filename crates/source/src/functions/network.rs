//! Arithmetic on address ranges.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Param::{Number as N, Text};
use super::{Args, Function, function, variadic};
use crate::budget::{NODE, Result, failed, unavailable};
use crate::kind::Kind;
use crate::value::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    function("cidrhost", &[Text, N], host),
    function("cidrnetmask", &[Text], netmask),
    function("cidrsubnet", &[Text, N, N], subnet),
    variadic("cidrsubnets", &[Text], N, subnets),
];

/// A range: the address as a number, how many bits addresses of its kind have, and how many of them are the prefix.
#[derive(Clone, Copy)]
struct Range {
    address: u128,
    width: u32,
    prefix: u32,
}

impl Range {
    fn parse(text: &str) -> Result<Self> {
        let wrong = || failed("an address range is written like 10.0.0.0/16");
        let Some((address, prefix)) = text.split_once('/') else { return wrong() };
        // Zeros in front mean nothing.
        let parts: Vec<_> = address
            .split('.')
            .map(|part| match part.trim_start_matches('0') {
                "" if !part.is_empty() => "0",
                trimmed => trimmed,
            })
            .collect();
        let address = if address.contains(':') { address.to_owned() } else { parts.join(".") };
        let is_number = prefix.bytes().all(|byte| byte.is_ascii_digit());
        let (Ok(address), Ok(prefix), true) = (address.parse::<IpAddr>(), prefix.parse::<u32>(), is_number)
        else {
            return wrong();
        };
        if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
            return unavailable("IPv4 addresses written as IPv6 are not computed with here");
        }
        let (address, width) = match address {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
            IpAddr::V6(v6) => (v6.to_bits(), 128),
        };
        if prefix > width {
            return wrong();
        }
        let range = Self { address, width, prefix };
        Ok(Self { address: address & !range.host_mask(), ..range })
    }

    /// Ones where the host part is.
    fn host_mask(self) -> u128 {
        1u128.checked_shl(self.width - self.prefix).map_or(u128::MAX, |bit| bit - 1)
    }

    fn shown(self, address: u128) -> String {
        match self.width {
            32 => Ipv4Addr::from_bits(u32::try_from(address & u128::from(u32::MAX)).unwrap_or(0)).to_string(),
            _ => Ipv6Addr::from_bits(address).to_string(),
        }
    }

    /// The part number `number` of those with `bits` more bits of prefix.
    fn part(self, bits: u32, number: u128) -> Result<Self> {
        let prefix = self.prefix.saturating_add(bits);
        if prefix > self.width {
            return failed("the range has not that many bits");
        }
        if bits < 128 && number >> bits != 0 {
            return failed("the range has not that many parts");
        }
        let offset = number.checked_shl(self.width - prefix).unwrap_or(0);
        Ok(Self { address: self.address | offset, prefix, ..self })
    }
}

fn host(args: &Args<'_>) -> Result<Value> {
    let (range, number) = (Range::parse(&args.text(0)?)?, args.whole(1)?);
    let mask = range.host_mask();
    let distance = u128::from(number.unsigned_abs());
    // Negative numbers count from the end.
    let host = if number < 0 { mask.checked_sub(distance - 1) } else { Some(distance) };
    match host.filter(|host| *host <= mask) {
        Some(host) => args.made(range.shown(range.address | host)),
        None => failed("the range has not that many addresses"),
    }
}

fn netmask(args: &Args<'_>) -> Result<Value> {
    let range = Range::parse(&args.text(0)?)?;
    if range.width != 32 {
        return failed("only an IPv4 range has a netmask");
    }
    args.made(range.shown(!range.host_mask()))
}

fn negative<T>() -> Result<T> {
    unavailable("negative numbers of bits or parts are not computed with here")
}

fn bits(number: i64) -> Result<u32> {
    if number < 0 {
        return negative();
    }
    match u32::try_from(number) {
        Ok(bits) if bits <= 128 => Ok(bits),
        _ => failed("the number of bits must be between 0 and 128"),
    }
}

fn subnet(args: &Args<'_>) -> Result<Value> {
    let range = Range::parse(&args.text(0)?)?;
    let Ok(number) = u128::try_from(args.whole(2)?) else { return negative() };
    let part = range.part(bits(args.whole(1)?)?, number)?;
    args.made(format!("{}/{}", part.shown(part.address), part.prefix))
}

/// Parts one after the other, each aligned to its own size.
fn subnets(args: &Args<'_>) -> Result<Value> {
    let range = Range::parse(&args.text(0)?)?;
    if range.prefix == 0 && args.values.len() > 1 {
        // Terraform looks for the room before the first part.
        return failed("all addresses together cannot be divided");
    }
    let mut next = range.address;
    let mut full = false;
    let mut out = Vec::new();
    for at in 1..args.values.len() {
        args.budget.spend(NODE)?;
        let bits = bits(args.whole(at)?)?;
        if !(1..=32).contains(&bits) {
            return failed("the number of bits must be between 1 and 32");
        }
        let prefix = range.prefix + bits;
        if prefix > range.width {
            return failed("the range has not that many bits");
        }
        let mask = Range { prefix, ..range }.host_mask();
        let aligned = match next.checked_add(mask) {
            Some(sum) => sum & !mask,
            None => next,
        };
        if full || aligned & !range.host_mask() != range.address {
            return failed("the range has no room for all parts");
        }
        out.push(args.made(format!("{}/{prefix}", range.shown(aligned)))?);
        full = aligned.checked_add(mask).and_then(|last| last.checked_add(1)).is_none();
        next = aligned.wrapping_add(mask).wrapping_add(1);
    }
    Ok(Value::list(Kind::Text, out))
}
