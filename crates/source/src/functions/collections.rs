//! Functions on lists and maps.

use std::collections::BTreeMap;

use super::{Args, size};
use crate::budget::{NODE, Result, Stop, failed};
use crate::value::Value;

pub(super) fn call(name: &str, args: &Args<'_>) -> Option<Result<Value>> {
    Some(match name {
        "length" => length(args),
        "coalesce" => coalesce(args),
        "coalescelist" => coalesce_list(args),
        "compact" => compact(args),
        "concat" => concat(args),
        "contains" => contains(args),
        "distinct" => distinct(args),
        "element" => wrapped(args),
        "index" => index(args),
        "flatten" => flatten(args),
        "chunklist" => chunk_list(args),
        "keys" => args.count(1, 1).and_then(|()| Ok(Value::texts(args.map(0)?.keys()))),
        "values" => args.count(1, 1).and_then(|()| Ok(Value::list(args.map(0)?.values().cloned().collect()))),
        "list" => Ok(Value::list(args.values.to_vec())),
        "map" => pairs(args),
        "lookup" => lookup(args),
        "matchkeys" => match_keys(args),
        "merge" => merge(args),
        "reverse" => reverse(args),
        "slice" => slice(args),
        "sort" => sort(args),
        "sum" => sum(args),
        "one" => only(args),
        "alltrue" => all(args, true),
        "anytrue" => all(args, false),
        "transpose" => transpose(args),
        "zipmap" => zip_map(args),
        "tolist" => args.count(1, 1).and_then(|()| Ok(Value::list(list(args, 0)?))),
        "tomap" => args.count(1, 1).and_then(|()| Ok(Value::map(args.map(0)?.clone()))),
        _ => return None,
    })
}

/// The elements of an argument that must be a list.
pub(super) fn list(args: &Args<'_>, at: usize) -> Result<Vec<Value>> {
    match args.value(at)? {
        Value::Map(_) => failed("a list is required, not an object"),
        _ => args.items(at),
    }
}

fn length(args: &Args<'_>) -> Result<Value> {
    args.count(1, 1)?;
    match args.value(0)? {
        Value::Text(text) => Ok(size(text.chars().count())),
        other => Ok(size(other.to_items()?.len())),
    }
}

fn coalesce(args: &Args<'_>) -> Result<Value> {
    let texts = args.values.iter().any(|value| matches!(value, Value::Text(_)));
    for value in args.values {
        match value {
            Value::Unknown(reason) => return Err(Stop::Unknown(reason.clone())),
            Value::Null => {}
            Value::Text(text) if text.is_empty() => {}
            // All arguments have one type, and that is string as soon as one of them is.
            other if texts => return other.to_text(args.budget).map(Value::Text),
            other => return Ok(other.clone()),
        }
    }
    failed("no argument is neither null nor empty")
}

fn coalesce_list(args: &Args<'_>) -> Result<Value> {
    for at in 0..args.values.len() {
        if args.value(at)?.is_null() {
            continue;
        }
        if !args.items(at)?.is_empty() {
            return Ok(args.values[at].clone());
        }
    }
    failed("no argument is a list with elements")
}

fn compact(args: &Args<'_>) -> Result<Value> {
    args.count(1, 1)?;
    let mut kept = Vec::new();
    for item in list(args, 0)? {
        if !item.is_null() {
            let text = item.to_text(args.budget)?;
            if !text.is_empty() {
                kept.push(Value::Text(text));
            }
        }
    }
    Ok(Value::list(kept))
}

fn concat(args: &Args<'_>) -> Result<Value> {
    args.count(1, usize::MAX)?;
    let mut all = Vec::new();
    for at in 0..args.values.len() {
        all.extend(list(args, at)?);
    }
    Ok(Value::list(all))
}

fn contains(args: &Args<'_>) -> Result<Value> {
    args.count(2, 2)?;
    Ok(Value::Bool(args.holds(&args.items(0)?, args.value(1)?)?))
}

fn distinct(args: &Args<'_>) -> Result<Value> {
    args.count(1, 1)?;
    let mut unique: Vec<Value> = Vec::new();
    for item in list(args, 0)? {
        if !args.holds(&unique, &item)? {
            unique.push(item);
        }
    }
    Ok(Value::list(unique))
}

fn wrapped(args: &Args<'_>) -> Result<Value> {
    args.count(2, 2)?;
    let (items, index) = (list(args, 0)?, args.whole(1)?);
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    if length == 0 {
        return failed("the list is empty");
    }
    let at = usize::try_from(index.rem_euclid(length)).unwrap_or(0);
    Ok(items[at].clone())
}

fn index(args: &Args<'_>) -> Result<Value> {
    args.count(2, 2)?;
    for (at, item) in list(args, 0)?.iter().enumerate() {
        if item.equals(args.value(1)?, args.budget)? {
            return Ok(size(at));
        }
    }
    failed("the list does not hold the value")
}

fn flatten(args: &Args<'_>) -> Result<Value> {
    fn add(items: &[Value], out: &mut Vec<Value>, args: &Args<'_>) -> Result<()> {
        for item in items {
            args.budget.spend(NODE)?;
            match item {
                Value::List(list) => add(&list.items, out, args)?,
                Value::Unknown(reason) => return Err(Stop::Unknown(reason.clone())),
                other => out.push(other.clone()),
            }
        }
        Ok(())
    }
    args.count(1, 1)?;
    let mut out = Vec::new();
    add(&list(args, 0)?, &mut out, args)?;
    Ok(Value::list(out))
}

fn chunk_list(args: &Args<'_>) -> Result<Value> {
    args.count(2, 2)?;
    let (items, chunk) = (list(args, 0)?, args.whole(1)?);
    let Ok(chunk) = usize::try_from(chunk) else { return failed("the size must not be negative") };
    let chunk = if chunk == 0 { items.len().max(1) } else { chunk };
    Ok(Value::list(items.chunks(chunk).map(|chunk| Value::list(chunk.to_vec())).collect()))
}

fn pairs(args: &Args<'_>) -> Result<Value> {
    if !args.values.len().is_multiple_of(2) {
        return failed("an even number of arguments is required");
    }
    let mut map = BTreeMap::new();
    for pair in args.values.chunks(2) {
        map.insert(pair[0].to_text(args.budget)?.to_string(), pair[1].clone());
    }
    Ok(Value::map(map))
}

fn lookup(args: &Args<'_>) -> Result<Value> {
    args.count(2, 3)?;
    let (map, key) = (args.map(0)?, args.text(1)?);
    match (map.get(&*key), args.values.get(2)) {
        (Some(value), _) => Ok(value.clone()),
        (None, Some(default)) => Ok(default.clone()),
        (None, None) => failed(format!("the map has no key {key:?}")),
    }
}

fn match_keys(args: &Args<'_>) -> Result<Value> {
    args.count(3, 3)?;
    let (values, keys, wanted) = (list(args, 0)?, list(args, 1)?, list(args, 2)?);
    if values.len() != keys.len() {
        return failed("the lists of values and of keys have different lengths");
    }
    let mut kept = Vec::new();
    for (value, key) in values.into_iter().zip(&keys) {
        if args.holds(&wanted, key)? {
            kept.push(value);
        }
    }
    Ok(Value::list(kept))
}

fn merge(args: &Args<'_>) -> Result<Value> {
    let mut merged = BTreeMap::new();
    for (at, value) in args.values.iter().enumerate() {
        if !value.is_null() {
            merged.extend(args.map(at)?.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
    }
    Ok(Value::map(merged))
}

fn reverse(args: &Args<'_>) -> Result<Value> {
    args.count(1, 1)?;
    Ok(Value::list(list(args, 0)?.into_iter().rev().collect()))
}

fn slice(args: &Args<'_>) -> Result<Value> {
    args.count(3, 3)?;
    let items = list(args, 0)?;
    let bounds = (usize::try_from(args.whole(1)?), usize::try_from(args.whole(2)?));
    match bounds {
        (Ok(start), Ok(end)) if start <= end && end <= items.len() => {
            Ok(Value::list(items[start..end].to_vec()))
        }
        _ => failed("the bounds are outside of the list"),
    }
}

fn sort(args: &Args<'_>) -> Result<Value> {
    args.count(1, 1)?;
    let mut texts = args.texts(0)?;
    texts.sort();
    Ok(Value::list(texts.into_iter().map(Value::Text).collect()))
}

fn sum(args: &Args<'_>) -> Result<Value> {
    args.count(1, 1)?;
    let items = list(args, 0)?;
    if items.is_empty() {
        return failed("the list is empty");
    }
    let mut total = crate::number::Number::from(0);
    for item in items {
        match total.add(item.to_number()?) {
            Some(sum) => total = sum,
            None => return failed("the result is not a number in range"),
        }
    }
    Ok(Value::Number(total))
}

fn only(args: &Args<'_>) -> Result<Value> {
    args.count(1, 1)?;
    match list(args, 0)?.as_slice() {
        [] => Ok(Value::Null),
        [one] => Ok(one.clone()),
        _ => failed("the list has more than one element"),
    }
}

fn all(args: &Args<'_>, wanted: bool) -> Result<Value> {
    args.count(1, 1)?;
    for item in list(args, 0)? {
        if (!item.is_null() && item.to_bool()?) != wanted {
            return Ok(Value::Bool(!wanted));
        }
    }
    Ok(Value::Bool(wanted))
}

fn transpose(args: &Args<'_>) -> Result<Value> {
    args.count(1, 1)?;
    let mut out: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (key, values) in args.map(0)? {
        for value in values.to_items()? {
            args.budget.spend(NODE + key.len())?;
            out.entry(value.to_text(args.budget)?.to_string()).or_default().push(Value::text(key));
        }
    }
    Ok(Value::map(out.into_iter().map(|(key, keys)| (key, Value::list(keys))).collect()))
}

fn zip_map(args: &Args<'_>) -> Result<Value> {
    args.count(2, 2)?;
    let (keys, values) = (args.texts(0)?, list(args, 1)?);
    if keys.len() != values.len() {
        return failed("the lists of keys and of values have different lengths");
    }
    Ok(Value::map(keys.iter().map(ToString::to_string).zip(values).collect()))
}
