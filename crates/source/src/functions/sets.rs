//! Functions on sets.

use std::rc::Rc;

use super::Param::{Any, Nullable, Set};
use super::{Args, Function, function, variadic};
use crate::budget::{NODE, Result, failed};
use crate::kind::Kind;
use crate::value::{Shape, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    function("toset", &[Nullable], |args| Set.kind().convert(&args.values[0], args.budget)),
    variadic("setunion", &[Set], Set, union),
    variadic("setintersection", &[Set], Set, |args| filtered(args, true)),
    function("setsubtract", &[Set, Set], |args| filtered(args, false)),
    variadic("setproduct", &[], Any, product),
];

/// All arguments as sets of one kind.
fn sets(args: &Args<'_>) -> Result<(Kind, Vec<Value>)> {
    let mut kinds = Vec::new();
    for at in 0..args.values.len() {
        let set = args.sequence(at)?;
        match &set.shape {
            Shape::Set(Kind::Any) if set.items.is_empty() => {}
            Shape::Set(of) | Shape::List(of) => kinds.push(of.clone()),
            Shape::Tuple => {}
        }
    }
    let of = if kinds.is_empty() { Kind::Any } else { args.common(&kinds)? };
    if matches!(of, Kind::Any) && !kinds.iter().all(|kind| matches!(kind, Kind::Any)) {
        return failed("the sets have no type in common");
    }
    let kind = Kind::Set(Rc::new(of.clone()));
    let sets: Result<_> = args.values.iter().map(|value| kind.convert(value, args.budget)).collect();
    Ok((of, sets?))
}

fn union(args: &Args<'_>) -> Result<Value> {
    let (of, sets) = sets(args)?;
    let mut all = Vec::new();
    for set in &sets {
        all.extend(set.to_sequence()?.items.iter().cloned());
    }
    Value::set(of, all, args.budget)
}

/// Elements of the first set that all the others hold, or that none of them does.
fn filtered(args: &Args<'_>, held: bool) -> Result<Value> {
    let (of, sets) = sets(args)?;
    let mut kept = Vec::new();
    let Some((first, others)) = sets.split_first() else { return Value::set(of, kept, args.budget) };
    'items: for item in &first.to_sequence()?.items {
        for other in others {
            if args.holds(&other.to_sequence()?.items, item)? != held {
                continue 'items;
            }
        }
        kept.push(item.clone());
    }
    Value::set(of, kept, args.budget)
}

fn product(args: &Args<'_>) -> Result<Value> {
    if args.values.len() < 2 {
        return failed("at least two sets are required");
    }
    let mut ordered = true;
    let mut kinds = Vec::new();
    let mut rows: Vec<Vec<Value>> = vec![Vec::new()];
    for at in 0..args.values.len() {
        let list = args.sequence(at)?;
        let of = match &list.shape {
            Shape::List(of) => of.clone(),
            Shape::Set(of) => {
                ordered = false;
                of.clone()
            }
            Shape::Tuple if list.items.is_empty() => Kind::Any,
            Shape::Tuple => {
                let kinds: Result<Vec<_>> = list.items.iter().map(|item| args.kind(item)).collect();
                args.common(&kinds?)?
            }
        };
        let items: Vec<_> =
            list.items.iter().map(|item| of.convert(item, args.budget)).collect::<Result<_>>()?;
        kinds.push(of);
        args.budget.spend(rows.len().saturating_mul(items.len()).saturating_mul(NODE * (at + 1)))?;
        rows = rows
            .iter()
            .flat_map(|row| items.iter().map(|item| row.iter().chain([item]).cloned().collect()))
            .collect();
    }
    let of = Kind::Tuple(Rc::new(kinds));
    let rows = rows.into_iter().map(Value::tuple).collect();
    if ordered { Ok(Value::list(of, rows)) } else { Value::set(of, rows, args.budget) }
}
