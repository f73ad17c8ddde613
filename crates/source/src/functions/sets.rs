//! Functions on sets.

use std::rc::Rc;

use super::Param::{Any, Nullable, Set};
use super::{Args, Function, function, variadic};
use crate::budget::{NODE_COST, Result, failed};
use crate::value::{SequenceKind, Value};
use crate::value_type::Type;

pub(super) const FUNCTIONS: &[Function] = &[
    function("toset", &[Nullable], |args| Set.ty().convert(&args.values[0], args.budget)),
    variadic("setunion", &[Set], Set, union),
    variadic("setintersection", &[Set], Set, |args| filtered(args, true)),
    function("setsubtract", &[Set, Set], |args| filtered(args, false)),
    variadic("setproduct", &[], Any, product),
];

/// All arguments as sets of one type.
fn sets(args: &Args<'_>) -> Result<(Type, Vec<Value>)> {
    let mut types = Vec::new();
    for at in 0..args.values.len() {
        let set = args.sequence(at)?;
        match &set.kind {
            SequenceKind::Set(Type::Any) if set.items.is_empty() => {}
            SequenceKind::Set(of) | SequenceKind::List(of) => types.push(of.clone()),
            SequenceKind::Tuple => {}
        }
    }
    let of = if types.is_empty() { Type::Any } else { args.common(&types)? };
    if matches!(of, Type::Any) && !types.iter().all(|ty| matches!(ty, Type::Any)) {
        return failed("the sets have no type in common");
    }
    let ty = Type::Set(Rc::new(of.clone()));
    let sets: Result<_> = args.values.iter().map(|value| ty.convert(value, args.budget)).collect();
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
            if args.contains_value(&other.to_sequence()?.items, item)? != held {
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
    let mut types = Vec::new();
    let mut rows: Vec<Vec<Value>> = vec![Vec::new()];
    for at in 0..args.values.len() {
        let list = args.sequence(at)?;
        let of = match &list.kind {
            SequenceKind::List(of) => of.clone(),
            SequenceKind::Set(of) => {
                ordered = false;
                of.clone()
            }
            SequenceKind::Tuple if list.items.is_empty() => Type::Any,
            SequenceKind::Tuple => {
                let types: Result<Vec<_>> = list.items.iter().map(|item| args.type_of(item)).collect();
                args.common(&types?)?
            }
        };
        let items: Vec<_> =
            list.items.iter().map(|item| of.convert(item, args.budget)).collect::<Result<_>>()?;
        types.push(of);
        args.budget.spend(rows.len().saturating_mul(items.len()).saturating_mul(NODE_COST * (at + 1)))?;
        rows = rows
            .iter()
            .flat_map(|row| items.iter().map(|item| row.iter().chain([item]).cloned().collect()))
            .collect();
    }
    let of = Type::Tuple(Rc::new(types));
    let rows = rows.into_iter().map(Value::tuple).collect();
    if ordered { Ok(Value::list(of, rows)) } else { Value::set(of, rows, args.budget) }
}
