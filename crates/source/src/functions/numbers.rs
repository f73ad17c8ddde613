//! Functions on numbers.

use std::cmp::Ordering;

use super::{Args, number};
use crate::budget::{NODE, Result, failed};
use crate::number::Number;
use crate::value::Value;

/// The longest list `range` makes.
const LONGEST_RANGE: usize = 1024;

pub(super) fn call(name: &str, args: &Args<'_>) -> Option<Result<Value>> {
    Some(match name {
        "abs" => one(args, |n| if n.as_f64() < 0.0 { n.negate() } else { Some(n) }),
        "ceil" => one(args, |n| n.rounded(f64::ceil)),
        "floor" => one(args, |n| n.rounded(f64::floor)),
        "signum" => one(args, |n| Some(Number::from(n.compare(Number::from(0)) as i64))),
        "log" => two(args, |a, b| Number::from_f64(log(a, b))),
        "pow" => two(args, power),
        "max" => extreme(args, Ordering::Greater),
        "min" => extreme(args, Ordering::Less),
        "parseint" => parseint(args),
        "range" => range(args),
        _ => return None,
    })
}

fn one(args: &Args<'_>, run: impl Fn(Number) -> Option<Number>) -> Result<Value> {
    args.count(1, 1)?;
    number(run(args.number(0)?))
}

fn two(args: &Args<'_>, run: impl Fn(Number, Number) -> Option<Number>) -> Result<Value> {
    args.count(2, 2)?;
    number(run(args.number(0)?, args.number(1)?))
}

fn log(value: Number, base: Number) -> f64 {
    value.as_f64().ln() / base.as_f64().ln()
}

fn power(base: Number, exponent: Number) -> Option<Number> {
    if let (Number::Whole(base), Number::Whole(exponent)) = (base, exponent)
        && let Some(exact) = u32::try_from(exponent).ok().and_then(|exponent| base.checked_pow(exponent))
    {
        return Some(Number::Whole(exact));
    }
    Number::from_f64(base.as_f64().powf(exponent.as_f64()))
}

fn extreme(args: &Args<'_>, wanted: Ordering) -> Result<Value> {
    args.count(1, usize::MAX)?;
    let mut best = args.number(0)?;
    for at in 1..args.values.len() {
        let other = args.number(at)?;
        if other.compare(best) == wanted {
            best = other;
        }
    }
    Ok(Value::Number(best))
}

fn parseint(args: &Args<'_>) -> Result<Value> {
    args.count(2, 2)?;
    let (text, base) = (args.text(0)?, args.whole(1)?);
    let base = u32::try_from(base).ok().filter(|base| (2..=36).contains(base));
    let Some(base) = base else { return failed("the base must be between 2 and 36") };
    match i128::from_str_radix(&text, base) {
        Ok(whole) => Ok(Value::Number(Number::Whole(whole))),
        Err(_) => failed(format!("the text is not a whole number of base {base}")),
    }
}

fn range(args: &Args<'_>) -> Result<Value> {
    args.count(1, 3)?;
    let zero = Number::from(0);
    let (start, limit) = match args.values.len() {
        1 => (zero, args.number(0)?),
        _ => (args.number(0)?, args.number(1)?),
    };
    let down = limit.compare(start).is_lt();
    let step = match args.values.len() {
        3 => args.number(2)?,
        _ => Number::from(if down { -1 } else { 1 }),
    };
    if start != limit && (step == zero || step.compare(zero).is_lt() != down) {
        return failed("the step leads away from the limit");
    }
    let mut items = Vec::new();
    let mut at = start;
    while at.compare(limit) == if down { Ordering::Greater } else { Ordering::Less } {
        if items.len() == LONGEST_RANGE {
            return failed(format!("a range has at most {LONGEST_RANGE} elements"));
        }
        args.budget.spend(NODE)?;
        items.push(Value::Number(at));
        let Some(next) = at.add(step) else { break };
        at = next;
    }
    Ok(Value::list(items))
}
