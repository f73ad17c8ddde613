//! Arithmetic on address ranges.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::Param::{Number as N, Text};
use super::{Args, Function, function, variadic};
use crate::budget::{NODE_COST, Result, failed, unavailable};
use crate::value::Value;
use crate::value_type::Type;

pub(super) const FUNCTIONS: &[Function] = &[
    function("cidrhost", &[Text, N], host),
    function("cidrnetmask", &[Text], netmask),
    function("cidrsubnet", &[Text, N, N], subnet),
    variadic("cidrsubnets", &[Text], N, subnets),
];

/// Parses an address range and clears its host bits.
fn parse(text: &str) -> Result<IpNet> {
    let wrong = || failed("an address range is written like 10.0.0.0/16");
    let Some((address, prefix)) = text.split_once('/') else { return wrong() };
    // Terraform ignores leading zeros.
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
        return unavailable("IPv4 addresses written as IPv6 are not available here");
    }
    let range = u8::try_from(prefix).ok().and_then(|prefix| IpNet::new(address, prefix).ok());
    range.map_or_else(wrong, |range| Ok(range.trunc()))
}

const fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits() as u128,
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The address of this number in the family of `range`.
fn address(range: IpNet, number: u128) -> Result<IpAddr> {
    match (range, u32::try_from(number)) {
        (IpNet::V6(_), _) => Ok(Ipv6Addr::from_bits(number).into()),
        (IpNet::V4(_), Ok(number)) => Ok(Ipv4Addr::from_bits(number).into()),
        (IpNet::V4(_), Err(_)) => failed("the range has not that many addresses"),
    }
}

/// The range of `range` with this prefix length that contains the address of this number.
fn part(range: IpNet, prefix: u8, number: u128) -> Result<IpNet> {
    IpNet::new(address(range, number)?, prefix).or_else(|_| failed("the range has not that many bits"))
}

fn host(args: &Args<'_>) -> Result<Value> {
    let (range, index) = (parse(&args.text(0)?)?, args.whole(1)?);
    let mask = number(range.hostmask());
    let distance = u128::from(index.unsigned_abs());
    // Negative numbers count from the end.
    let host = if index < 0 { mask.checked_sub(distance - 1) } else { Some(distance) };
    match host.filter(|host| *host <= mask) {
        Some(host) => args.text_result(address(range, number(range.network()) | host)?.to_string()),
        None => failed("the range has not that many addresses"),
    }
}

fn netmask(args: &Args<'_>) -> Result<Value> {
    match parse(&args.text(0)?)? {
        IpNet::V4(range) => args.text_result(range.netmask().to_string()),
        IpNet::V6(_) => failed("only an IPv4 range has a netmask"),
    }
}

fn negative<T>() -> Result<T> {
    unavailable("negative numbers of bits or parts are not available here")
}

fn bits(number: i64) -> Result<u8> {
    if number < 0 {
        return negative();
    }
    match u8::try_from(number) {
        Ok(bits) if bits <= 128 => Ok(bits),
        _ => failed("the number of bits must be between 0 and 128"),
    }
}

fn subnet(args: &Args<'_>) -> Result<Value> {
    let range = parse(&args.text(0)?)?;
    let Ok(index) = u128::try_from(args.whole(2)?) else { return negative() };
    let bits = bits(args.whole(1)?)?;
    let prefix = range.prefix_len().saturating_add(bits);
    if prefix > range.max_prefix_len() {
        return failed("the range has not that many bits");
    }
    if index.checked_shr(bits.into()).is_some_and(|rest| rest != 0) {
        return failed("the range has not that many parts");
    }
    let offset = index.checked_shl((range.max_prefix_len() - prefix).into()).unwrap_or(0);
    args.text_result(part(range, prefix, number(range.network()) | offset)?.to_string())
}

/// Ranges one after the other, each aligned to its own size.
fn subnets(args: &Args<'_>) -> Result<Value> {
    let range = parse(&args.text(0)?)?;
    if range.prefix_len() == 0 && args.values.len() > 1 {
        // Terraform looks for space before the first range.
        return failed("all addresses together cannot be divided");
    }
    let mut next = number(range.network());
    let mut full = false;
    let mut out = Vec::new();
    for at in 1..args.values.len() {
        args.budget.spend(NODE_COST)?;
        let bits = bits(args.whole(at)?)?;
        if !(1..=32).contains(&bits) {
            return failed("the number of bits must be between 1 and 32");
        }
        let prefix = range.prefix_len() + bits;
        if prefix > range.max_prefix_len() {
            return failed("the range has not that many bits");
        }
        let mask = number(part(range, prefix, number(range.network()))?.hostmask());
        // Beyond the last address there is no range.
        let aligned = next.checked_add(mask).map(|sum| sum & !mask).filter(|_| !full);
        let within = |at: &u128| at & !number(range.hostmask()) == number(range.network());
        let Some(aligned) = aligned.filter(within) else {
            return failed("the range has not enough space for all parts");
        };
        out.push(args.text_result(part(range, prefix, aligned)?.to_string())?);
        full = aligned.checked_add(mask).and_then(|last| last.checked_add(1)).is_none();
        next = aligned.wrapping_add(mask).wrapping_add(1);
    }
    Ok(Value::list(Type::Text, out))
}
