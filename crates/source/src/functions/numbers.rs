//! Functions on numbers.

use std::cmp::Ordering;

use super::Param::{Any, Number as N};
use super::{Args, Function, function, variadic};
use crate::budget::{NODE_COST, Result, failed};
use crate::number::Number;
use crate::value::Value;
use crate::value_type::Type;

/// The longest list `range` makes.
const MAX_RANGE_LENGTH: usize = 1024;

pub(super) const FUNCTIONS: &[Function] = &[
    function("abs", &[N], |args| Ok(Value::Number(args.number(0)?.absolute()))),
    function("ceil", &[N], |args| args.number(0)?.rounded_to(true).map(Value::Number)),
    function("floor", &[N], |args| args.number(0)?.rounded_to(false).map(Value::Number)),
    function("signum", &[N], |args| Ok(Value::Number(args.whole(0)?.signum().into()))),
    function("log", &[N, N], |args| {
        let (value, base) = floats(args)?;
        Number::from_f64(logarithm(value) / logarithm(base)).map(Value::Number)
    }),
    function("pow", &[N, N], |args| {
        let (base, exponent) = floats(args)?;
        Number::from_f64(power(base, exponent)).map(Value::Number)
    }),
    variadic("max", &[], N, |args| extreme(args, Ordering::Greater)),
    variadic("min", &[], N, |args| extreme(args, Ordering::Less)),
    function("parseint", &[Any, N], parse_integer),
    variadic("range", &[], N, range),
];

/// Two numbers for a function that Terraform computes in `f64`.
fn floats(args: &Args<'_>) -> Result<(f64, f64)> {
    match (args.number(0)?.as_f64(), args.number(1)?.as_f64()) {
        (Some(a), Some(b)) => Ok((a, b)),
        _ => failed("the number is too large for this function"),
    }
}

/// A finite float, which is not zero, as a fraction from a half up to one, and a power of two.
fn split(value: f64) -> (f64, i32) {
    const SUBNORMAL: f64 = (1u64 << 54) as f64;
    if value.is_subnormal() {
        let (fraction, exponent) = split(value * SUBNORMAL);
        return (fraction, exponent - 54);
    }
    let bits = value.to_bits();
    let exponent = i32::try_from((bits >> 52) & 0x7ff).unwrap_or(0) - 1022;
    (f64::from_bits((bits & !(0x7ff << 52)) | (1022 << 52)), exponent)
}

/// The natural logarithm by the method that Go has it from (FreeBSD's `e_log.c`), whose last digit differs from that of other
/// libraries.
fn logarithm(value: f64) -> f64 {
    const HIGH: f64 = 6.931_471_803_691_238e-1;
    const LOW: f64 = 1.908_214_929_270_587_7e-10;
    const SERIES: [f64; 7] = [
        6.666_666_666_666_735e-1,
        3.999_999_999_940_942e-1,
        2.857_142_874_366_239e-1,
        2.222_219_843_214_978_4e-1,
        1.818_357_216_161_805e-1,
        1.531_383_769_920_937_3e-1,
        1.479_819_860_511_658_6e-1,
    ];
    if value <= 0.0 || !value.is_finite() {
        return value.ln();
    }
    let (mut fraction, mut exponent) = split(value);
    if fraction < std::f64::consts::FRAC_1_SQRT_2 {
        fraction *= 2.0;
        exponent -= 1;
    }
    let (f, k) = (fraction - 1.0, f64::from(exponent));
    let s = f / (2.0 + f);
    let s2 = s * s;
    let s4 = s2 * s2;
    let [l1, l2, l3, l4, l5, l6, l7] = SERIES;
    let odd = s2 * (l1 + s4 * (l3 + s4 * (l5 + s4 * l7)));
    let even = s4 * (l2 + s4 * (l4 + s4 * l6));
    let half = 0.5 * f * f;
    k * HIGH - ((half - (s * (half + (odd + even)) + k * LOW)) - f)
}

/// A power, whole exponents by squaring as Go does it. Others depend in their last digit on the processor that Terraform
/// runs on.
fn power(base: f64, exponent: f64) -> f64 {
    if base == 0.0 || !base.is_finite() || !exponent.is_finite() || exponent.abs() >= 2f64.powi(63) {
        return base.powf(exponent);
    }
    if exponent.abs() == 0.5 {
        return if exponent > 0.0 { base.sqrt() } else { 1.0 / base.sqrt() };
    }
    let (mut whole, mut rest) = (exponent.abs().trunc(), exponent.abs().fract());
    if rest != 0.0 && base < 0.0 {
        return f64::NAN;
    }
    let (mut result, mut twos) = (1.0, 0);
    if rest != 0.0 {
        if rest > 0.5 {
            rest -= 1.0;
            whole += 1.0;
        }
        result = (rest * logarithm(base)).exp();
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and below 2^63")]
    let mut left = whole as i64;
    let (mut factor, mut factor_twos) = split(base);
    while left != 0 {
        if factor_twos.abs() > 1 << 12 {
            // The result is beyond all floats.
            twos += factor_twos;
            break;
        }
        if left & 1 == 1 {
            result *= factor;
            twos += factor_twos;
        }
        factor *= factor;
        factor_twos *= 2;
        if factor < 0.5 {
            factor += factor;
            factor_twos -= 1;
        }
        left >>= 1;
    }
    if exponent < 0.0 {
        (result, twos) = (1.0 / result, -twos);
    }
    scaled(result, twos)
}

/// `value * 2^twos`, rounded once.
fn scaled(value: f64, twos: i32) -> f64 {
    let (fraction, exponent) = split(value);
    let exponent = exponent + twos;
    // As far as the smallest normal number exactly, and from there in one step.
    let normal = exponent.clamp(-1021, 1024);
    let rest = (exponent - normal).clamp(-200, 200);
    fraction * 2f64.powi(normal / 2) * 2f64.powi(normal - normal / 2) * 2f64.powi(rest)
}

fn extreme(args: &Args<'_>, expected: Ordering) -> Result<Value> {
    if args.values.is_empty() {
        return failed("at least one number is required");
    }
    let mut best = args.number(0)?;
    for at in 1..args.values.len() {
        let other = args.number(at)?;
        if other.compare(&best) == expected {
            best = other;
        }
    }
    Ok(Value::Number(best))
}

fn parse_integer(args: &Args<'_>) -> Result<Value> {
    let Value::Text(text) = args.value(0)? else { return failed("a string is required") };
    let base = u32::try_from(args.whole(1)?).ok().filter(|base| (2..=62).contains(base));
    let Some(base) = base else { return failed("the base must be between 2 and 62") };
    match Number::parse_integer(text, base, args.budget)? {
        Some(whole) => Ok(Value::Number(whole)),
        None => failed(format!("the text is not a whole number of base {base}")),
    }
}

fn range(args: &Args<'_>) -> Result<Value> {
    let zero = Number::from(0);
    let (start, end) = match args.values.len() {
        1 => (zero.clone(), args.number(0)?),
        2 | 3 => (args.number(0)?, args.number(1)?),
        _ => return failed("one, two or three numbers are required"),
    };
    let step = match args.values.len() {
        3 => args.number(2)?,
        _ => Number::from(if end.compare(&start).is_lt() { -1 } else { 1 }),
    };
    let down = step.compare(&zero).is_lt();
    let before = if down { Ordering::Greater } else { Ordering::Less };
    if end.compare(&start) == before {
        return failed("the step leads away from the end");
    }
    let mut items = Vec::new();
    let mut at = start;
    while at.compare(&end) == before {
        if items.len() == MAX_RANGE_LENGTH {
            return failed(format!("a range has at most {MAX_RANGE_LENGTH} elements"));
        }
        args.budget.spend(NODE_COST)?;
        items.push(Value::Number(at.clone()));
        at = at.add(&step, args.budget)?;
    }
    Ok(Value::list(Type::Number, items))
}
