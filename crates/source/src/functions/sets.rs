//! Functions on sets. A set is a sorted list without duplicates.

use super::Args;
use super::collections::list;
use crate::budget::{NODE, Result};
use crate::value::Value;

pub(super) fn call(name: &str, args: &Args<'_>) -> Option<Result<Value>> {
    Some(match name {
        "toset" => args.count(1, 1).and_then(|()| Value::set(list(args, 0)?, args.budget)),
        "setunion" => union(args),
        "setintersection" => filtered(args, true),
        "setsubtract" => args.count(2, 2).and_then(|()| filtered(args, false)),
        "setproduct" => product(args),
        _ => return None,
    })
}

fn union(args: &Args<'_>) -> Result<Value> {
    args.count(1, usize::MAX)?;
    let mut all = Vec::new();
    for at in 0..args.values.len() {
        all.extend(list(args, at)?);
    }
    Value::set(all, args.budget)
}

/// Elements of the first set that all the others hold, or that none of them does.
fn filtered(args: &Args<'_>, held: bool) -> Result<Value> {
    args.count(1, usize::MAX)?;
    let mut kept = list(args, 0)?;
    for at in 1..args.values.len() {
        let other = list(args, at)?;
        let mut next = Vec::new();
        for item in kept {
            if args.holds(&other, &item)? == held {
                next.push(item);
            }
        }
        kept = next;
    }
    Value::set(kept, args.budget)
}

fn product(args: &Args<'_>) -> Result<Value> {
    args.count(2, usize::MAX)?;
    let mut rows: Vec<Vec<Value>> = vec![Vec::new()];
    for at in 0..args.values.len() {
        let items = list(args, at)?;
        args.budget.spend(rows.len().saturating_mul(items.len()).saturating_mul(NODE * (at + 1)))?;
        rows = rows
            .iter()
            .flat_map(|row| items.iter().map(|item| row.iter().chain([item]).cloned().collect()))
            .collect();
    }
    Ok(Value::list(rows.into_iter().map(Value::list).collect()))
}
