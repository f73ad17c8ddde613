//! Functions on lists and maps.

use std::collections::BTreeMap;
use std::rc::Rc;

use unicode_segmentation::UnicodeSegmentation as _;

use super::Param::{Any, Bools, List, Nullable, Number as N, Text, TextLists, Texts};
use super::{Args, Function, function, size, variadic};
use crate::budget::{NODE_COST, Result, failed, unavailable};
use crate::number::Number;
use crate::value::{SequenceKind, Value};
use crate::value_type::Type;

pub(super) const FUNCTIONS: &[Function] = &[
    function("length", &[Any], length),
    variadic("coalesce", &[], Nullable, coalesce),
    variadic("coalescelist", &[], Nullable, coalesce_list),
    function("compact", &[Texts], compact),
    variadic("concat", &[], Any, concat),
    function("contains", &[Any, Any], |args| {
        Ok(Value::Bool(args.contains_value(args.items(0)?, args.value(1)?)?))
    }),
    function("distinct", &[List], distinct),
    function("element", &[Any, N], wrapped),
    function("index", &[Any, Any], index),
    function("flatten", &[Any], flatten),
    function("chunklist", &[List, N], chunk_list),
    function("keys", &[Any], keys),
    function("values", &[Any], values),
    variadic("lookup", &[Any, Text], Nullable, lookup),
    function("matchkeys", &[List, List, List], match_keys),
    variadic("merge", &[], Nullable, merge),
    function("reverse", &[Any], reverse),
    function("slice", &[Any, N, N], slice),
    function("sort", &[Texts], sort),
    function("sum", &[Any], sum),
    function("one", &[Any], only),
    function("alltrue", &[Bools], |args| all(args, true)),
    function("anytrue", &[Bools], |args| all(args, false)),
    function("transpose", &[TextLists], transpose),
    function("zipmap", &[Texts, Any], zip_map),
    function("tolist", &[Nullable], |args| List.ty().convert(&args.values[0], args.budget)),
    function("tomap", &[Nullable], |args| {
        Type::Map(Rc::new(Type::Any)).convert(&args.values[0], args.budget)
    }),
];

fn length(args: &Args<'_>) -> Result<Value> {
    match args.value(0)? {
        Value::Text(text) => {
            args.budget.spend(text.len() * 4)?;
            Ok(size(text.graphemes(true).count()))
        }
        Value::Map(map) => Ok(size(map.items.len())),
        other => Ok(size(other.to_sequence()?.items.len())),
    }
}

/// The first argument that is neither null nor an empty string, converted to the common type.
fn coalesce(args: &Args<'_>) -> Result<Value> {
    let types: Result<Vec<_>> = args.values.iter().map(|value| args.type_of(value)).collect();
    let ty = args.common(&types?)?;
    for value in args.values {
        let value = ty.convert(value, args.budget)?;
        if !value.is_null() && !matches!(&value, Value::Text(text) if text.is_empty()) {
            return Ok(value);
        }
    }
    failed("each argument is null or empty")
}

fn coalesce_list(args: &Args<'_>) -> Result<Value> {
    for at in 0..args.values.len() {
        let fits = match args.value(at)? {
            Value::Null(ty) => matches!(ty, Type::List(_) | Type::Tuple(_)),
            _ => !matches!(args.sequence(at)?.kind, SequenceKind::Set(_)),
        };
        if !fits {
            return failed("lists are required");
        }
    }
    for value in args.values {
        if !value.is_null() && !value.to_sequence()?.items.is_empty() {
            return Ok(value.clone());
        }
    }
    failed("each argument is null or empty")
}

fn compact(args: &Args<'_>) -> Result<Value> {
    let kept = |item: &&Value| !item.is_null() && !matches!(item, Value::Text(text) if text.is_empty());
    Ok(Value::list(Type::Text, args.items(0)?.iter().filter(kept).cloned().collect()))
}

/// Lists stay a list if their elements have a type in common; anything else becomes a tuple.
fn concat(args: &Args<'_>) -> Result<Value> {
    if args.values.is_empty() {
        return failed("at least one list is required");
    }
    let mut types = Vec::new();
    for at in 0..args.values.len() {
        match &args.sequence(at)?.kind {
            SequenceKind::Set(_) => return failed("lists are required, not sets"),
            SequenceKind::List(of) => types.push(of.clone()),
            SequenceKind::Tuple => {}
        }
    }
    let common = match types.len() == args.values.len() {
        true => Type::common(&types, args.budget)?,
        false => None,
    };
    let mut all = Vec::new();
    for value in args.values {
        let items = &value.to_sequence()?.items;
        match &common {
            Some(of) => {
                for item in items {
                    all.push(of.convert(item, args.budget)?);
                }
            }
            None => all.extend(items.iter().cloned()),
        }
    }
    match common {
        // The elements say which type that is.
        Some(Type::Any) => List.ty().convert(&Value::tuple(all), args.budget),
        Some(of) => Ok(Value::list(of, all)),
        None => Ok(Value::tuple(all)),
    }
}

/// A sequence of the same kind with other elements.
fn of_same_kind(kind: &SequenceKind, items: Vec<Value>) -> Value {
    match kind {
        SequenceKind::Tuple => Value::tuple(items),
        SequenceKind::List(of) | SequenceKind::Set(of) => Value::list(of.clone(), items),
    }
}

fn distinct(args: &Args<'_>) -> Result<Value> {
    let list = args.sequence(0)?;
    let mut unique: Vec<Value> = Vec::new();
    for item in &list.items {
        if !args.contains_value(&unique, item)? {
            unique.push(item.clone());
        }
    }
    Ok(of_same_kind(&list.kind, unique))
}

/// An argument that has an order.
fn ordered<'a>(args: &'a Args<'_>, at: usize) -> Result<&'a crate::value::Sequence> {
    let list = args.sequence(at)?;
    match list.kind {
        SequenceKind::Set(_) => failed("a list is required, not a set"),
        SequenceKind::List(_) | SequenceKind::Tuple => Ok(list),
    }
}

fn wrapped(args: &Args<'_>) -> Result<Value> {
    let (items, index) = (&ordered(args, 0)?.items, args.whole(1)?);
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    if length == 0 {
        return failed("the list is empty");
    }
    match usize::try_from(index % length) {
        Ok(at) if index >= 0 => Ok(items[at].clone()),
        _ => unavailable("whether an index may be negative depends on Terraform's version"),
    }
}

fn index(args: &Args<'_>) -> Result<Value> {
    for (at, item) in ordered(args, 0)?.items.iter().enumerate() {
        if item.equals(args.value(1)?, args.budget)? {
            return Ok(size(at));
        }
    }
    failed("the list does not hold the value")
}

fn flatten(args: &Args<'_>) -> Result<Value> {
    fn add(items: &[Value], out: &mut Vec<Value>, args: &Args<'_>) -> Result<()> {
        for item in items {
            args.budget.spend(NODE_COST)?;
            match item {
                Value::List(list) => add(&list.items, out, args)?,
                Value::Unknown(_) => return item.mismatch("a list"),
                other => out.push(other.clone()),
            }
        }
        Ok(())
    }
    let mut out = Vec::new();
    add(args.items(0)?, &mut out, args)?;
    Ok(Value::tuple(out))
}

fn chunk_list(args: &Args<'_>) -> Result<Value> {
    let (list, chunk) = (args.sequence(0)?, args.whole(1)?);
    let Ok(chunk) = usize::try_from(chunk) else { return failed("the size must not be negative") };
    let chunk = if chunk == 0 { list.items.len().max(1) } else { chunk };
    let chunks = list.items.chunks(chunk).map(|chunk| of_same_kind(&list.kind, chunk.to_vec())).collect();
    Ok(Value::list(args.type_of(args.value(0)?)?, chunks))
}

fn keys(args: &Args<'_>) -> Result<Value> {
    let map = args.map(0)?;
    let keys = map.items.keys().map(Value::text).collect();
    Ok(if map.of.is_some() { Value::list(Type::Text, keys) } else { Value::tuple(keys) })
}

fn values(args: &Args<'_>) -> Result<Value> {
    let map = args.map(0)?;
    let values = map.items.values().cloned().collect();
    Ok(match &map.of {
        Some(of) => Value::list(of.clone(), values),
        None => Value::tuple(values),
    })
}

fn lookup(args: &Args<'_>) -> Result<Value> {
    let (map, key) = (args.map(0)?, args.text(1)?);
    let default = match &args.values[2..] {
        [] => None,
        [default] => Some(match &map.of {
            Some(of) => of.convert(default, args.budget)?,
            None => default.clone(),
        }),
        _ => return failed("there is at most one default"),
    };
    match (map.items.get(&*key), default) {
        (Some(value), _) => Ok(value.clone()),
        (None, Some(default)) => Ok(default),
        (None, None) => failed(format!("the map has no key {key:?}")),
    }
}

/// Elements of the first list whose counterparts in the second are in the third.
fn match_keys(args: &Args<'_>) -> Result<Value> {
    let (values, keys, expected) = (args.sequence(0)?, args.sequence(1)?, args.sequence(2)?);
    if values.items.len() != keys.items.len() {
        return failed("the lists of values and of keys have different lengths");
    }
    let (SequenceKind::List(keys_of), SequenceKind::List(wanted_of)) = (&keys.kind, &expected.kind) else {
        return failed("lists are required");
    };
    let of = args.common(&[keys_of.clone(), wanted_of.clone()])?;
    let convert =
        |items: &[Value]| items.iter().map(|item| of.convert(item, args.budget)).collect::<Result<Vec<_>>>();
    let (keys, expected) = (convert(&keys.items)?, convert(&expected.items)?);
    let mut kept = Vec::new();
    for (value, key) in values.items.iter().zip(&keys) {
        if args.contains_value(&expected, key)? {
            kept.push(value.clone());
        }
    }
    Ok(of_same_kind(&values.kind, kept))
}

/// Maps of one type stay a map of that type; anything else becomes an object.
fn merge(args: &Args<'_>) -> Result<Value> {
    let mut merged = BTreeMap::new();
    let mut types = Vec::new();
    for (at, value) in args.values.iter().enumerate() {
        if let Value::Null(ty) = args.value(at)? {
            if !matches!(ty, Type::Any | Type::Map(_) | Type::Object(_)) {
                return failed("maps are required");
            }
            types.push(ty.clone());
            continue;
        }
        let map = args.map(at)?;
        types.push(match &map.of {
            Some(_) => args.type_of(value)?,
            // Objects become an object whatever they hold.
            None => Type::Any,
        });
        merged.extend(map.items.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    if let Some(Type::Map(of)) = types.first() {
        let mut all = true;
        for ty in &types {
            all &= ty.same(&types[0], args.budget)?;
        }
        if all {
            return Ok(Value::map((**of).clone(), merged));
        }
    }
    Ok(Value::object(merged))
}

fn reverse(args: &Args<'_>) -> Result<Value> {
    let list = args.sequence(0)?;
    Ok(of_same_kind(&list.kind, list.items.iter().rev().cloned().collect()))
}

fn slice(args: &Args<'_>) -> Result<Value> {
    let list = ordered(args, 0)?;
    match (usize::try_from(args.whole(1)?), usize::try_from(args.whole(2)?)) {
        (Ok(start), Ok(end)) if start <= end && end <= list.items.len() => {
            Ok(of_same_kind(&list.kind, list.items[start..end].to_vec()))
        }
        _ => failed("the bounds are outside of the list"),
    }
}

fn sort(args: &Args<'_>) -> Result<Value> {
    let mut texts = args.texts(0)?;
    args.budget.spend(texts.len() * NODE_COST)?;
    texts.sort();
    Ok(Value::list(Type::Text, texts.into_iter().map(Value::Text).collect()))
}

fn sum(args: &Args<'_>) -> Result<Value> {
    let items = args.items(0)?;
    let Some((first, rest)) = items.split_first() else { return failed("the list is empty") };
    let mut total: Number = first.to_number(args.budget)?;
    for item in rest {
        total = total.add(&item.to_number(args.budget)?, args.budget)?;
    }
    Ok(Value::Number(total))
}

fn only(args: &Args<'_>) -> Result<Value> {
    let list = args.sequence(0)?;
    match (list.items.as_slice(), &list.kind) {
        ([], SequenceKind::List(of) | SequenceKind::Set(of)) => Ok(Value::Null(of.clone())),
        ([], SequenceKind::Tuple) => Ok(Value::NULL),
        ([one], _) => Ok(one.clone()),
        _ => failed("the list has more than one element"),
    }
}

/// Whether all elements are true, or any is; null is false.
fn all(args: &Args<'_>, expected: bool) -> Result<Value> {
    for item in args.items(0)? {
        if (!item.is_null() && item.to_bool()?) != expected {
            return Ok(Value::Bool(!expected));
        }
    }
    Ok(Value::Bool(expected))
}

fn transpose(args: &Args<'_>) -> Result<Value> {
    let mut out: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (key, values) in &args.map(0)?.items {
        for value in &values.to_sequence()?.items {
            args.budget.spend(NODE_COST + key.len())?;
            out.entry(value.to_text(args.budget)?.to_string()).or_default().push(Value::text(key));
        }
    }
    let lists = out.into_iter().map(|(key, keys)| (key, Value::list(Type::Text, keys))).collect();
    Ok(Value::map(Type::List(Rc::new(Type::Text)), lists))
}

fn zip_map(args: &Args<'_>) -> Result<Value> {
    let (keys, values) = (args.texts(0)?, ordered(args, 1)?);
    if keys.len() != values.items.len() {
        return failed("the lists of keys and of values have different lengths");
    }
    let items = keys.iter().map(ToString::to_string).zip(values.items.iter().cloned()).collect();
    Ok(match &values.kind {
        SequenceKind::List(of) => Value::map(of.clone(), items),
        _ => Value::object(items),
    })
}
