//! Kinds of values (Terraform calls them types): which kind several values have in common, and what converts one kind into
//! another.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::budget::{Budget, NODE, Result, Stop, failed};
use crate::value::{Shape, Value};

/// The kind of a value, or what a function or variable takes.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// Of a plain `null`; as what is wanted: anything.
    Any,
    Bool,
    Number,
    Text,
    List(Rc<Kind>),
    Set(Rc<Kind>),
    Map(Rc<Kind>),
    Tuple(Rc<Vec<Kind>>),
    Object(Rc<BTreeMap<String, Attribute>>),
}

/// What an object has under a name.
#[derive(Clone, Debug)]
pub(crate) struct Attribute {
    pub(crate) kind: Kind,
    /// Whether it may be left out; only where something is wanted, never of a value.
    pub(crate) optional: bool,
}

impl Kind {
    /// The kind of an object with these attributes.
    pub(crate) fn object<'k>(attributes: impl IntoIterator<Item = (&'k String, Self)>) -> Self {
        let attribute = |(name, kind): (&String, Self)| (name.clone(), Attribute { kind, optional: false });
        Self::Object(Rc::new(attributes.into_iter().map(attribute).collect()))
    }

    /// Whether two kinds are the same.
    pub(crate) fn same(&self, other: &Self, budget: &Budget) -> Result<bool> {
        budget.spend(NODE)?;
        Ok(match (self, other) {
            (Self::Any, Self::Any)
            | (Self::Bool, Self::Bool)
            | (Self::Number, Self::Number)
            | (Self::Text, Self::Text) => true,
            (Self::List(a), Self::List(b)) | (Self::Set(a), Self::Set(b)) | (Self::Map(a), Self::Map(b)) => {
                a.same(b, budget)?
            }
            (Self::Tuple(a), Self::Tuple(b)) => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                for (a, b) in a.iter().zip(b.iter()) {
                    if !a.same(b, budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Object(a), Self::Object(b)) => {
                if !a.keys().eq(b.keys()) {
                    return Ok(false);
                }
                for (a, b) in a.values().zip(b.values()) {
                    if !a.kind.same(&b.kind, budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            _ => false,
        })
    }

    const fn is_primitive(&self) -> bool {
        matches!(self, Self::Bool | Self::Number | Self::Text)
    }

    /// The kind of a value; unknown when that of any part is.
    pub(crate) fn of(value: &Value, budget: &Budget) -> Result<Self> {
        budget.spend(NODE)?;
        Ok(match value {
            Value::Unknown(reason) => return Err(Stop::Unknown(reason.clone())),
            Value::Null(kind) => kind.clone(),
            Value::Bool(_) => Self::Bool,
            Value::Number(_) => Self::Number,
            Value::Text(_) => Self::Text,
            Value::List(list) => match &list.shape {
                Shape::List(of) => Self::List(Rc::new(of.clone())),
                Shape::Set(of) => Self::Set(Rc::new(of.clone())),
                Shape::Tuple => {
                    let items: Result<_> = list.items.iter().map(|item| Self::of(item, budget)).collect();
                    Self::Tuple(Rc::new(items?))
                }
            },
            Value::Map(map) => match &map.of {
                Some(of) => Self::Map(Rc::new(of.clone())),
                None => {
                    let item = |(name, item)| Ok((name, Self::of(item, budget)?));
                    let items: Result<Vec<_>> = map.items.iter().map(item).collect();
                    Self::object(items?)
                }
            },
        })
    }

    /// The kind that values of all these kinds can be converted to; none when there is none.
    pub(crate) fn common(kinds: &[Self], budget: &Budget) -> Result<Option<Self>> {
        budget.spend(NODE * kinds.len())?;
        if kinds.is_empty() {
            return Ok(None);
        }
        let all = |test: fn(&Self) -> bool| kinds.iter().all(test);
        let some = |test: fn(&Self) -> bool| kinds.iter().any(test);
        let any = some(|kind| matches!(kind, Self::Any));
        // With a plain null among collections nothing is said about what they have in common.
        let some_and_any = |test: fn(&Self) -> bool| {
            some(test) && kinds.iter().all(|kind| matches!(kind, Self::Any) || test(kind))
        };
        type Collection = (fn(&Kind) -> bool, fn(Rc<Kind>) -> Kind);
        let collections: [Collection; 3] = [
            (|kind| matches!(kind, Self::Map(_)), Self::Map),
            (|kind| matches!(kind, Self::List(_)), Self::List),
            (|kind| matches!(kind, Self::Set(_)), Self::Set),
        ];
        for (is_one, make) in collections {
            if some_and_any(is_one) {
                if any {
                    return Ok(Some(Self::Any));
                }
                let elements: Vec<_> = kinds.iter().filter_map(Self::element).collect();
                return Ok(Self::common(&elements, budget)?.map(|kind| make(Rc::new(kind))));
            }
        }
        if some_and_any(|kind| matches!(kind, Self::Map(_) | Self::Object(_))) {
            if some(|kind| matches!(kind, Self::Map(_))) {
                if let Some(found) = Self::with_maps(kinds, budget)? {
                    return Ok(Some(found));
                }
            } else {
                return if any { Ok(Some(Self::Any)) } else { Self::of_objects(kinds, budget) };
            }
        }
        if some_and_any(|kind| matches!(kind, Self::List(_) | Self::Tuple(_))) {
            if some(|kind| matches!(kind, Self::List(_))) {
                if let Some(found) = Self::with_lists(kinds, budget)? {
                    return Ok(Some(found));
                }
            } else {
                return if any { Ok(Some(Self::Any)) } else { Self::of_tuples(kinds, budget) };
            }
        }
        if all(|kind| kind.is_primitive() || matches!(kind, Self::Any)) {
            return Ok(
                match (
                    some(|kind| matches!(kind, Self::Text)),
                    some(|kind| matches!(kind, Self::Number)),
                    some(|kind| matches!(kind, Self::Bool)),
                ) {
                    (true, ..) => Some(Self::Text),
                    (false, true, false) => Some(Self::Number),
                    (false, false, true) => Some(Self::Bool),
                    _ => any.then_some(Self::Any),
                },
            );
        }
        // Lists before tuples before sets, maps before objects, then anything.
        let rank = |kind: &&Self| match kind {
            Self::List(_) | Self::Map(_) => 0,
            Self::Tuple(_) => 1,
            Self::Any => 3,
            _ => 2,
        };
        let mut wanted: Vec<_> = kinds.iter().collect();
        wanted.sort_by_key(rank);
        'wanted: for wanted in wanted {
            for kind in kinds {
                if !kind.converts_to(wanted, budget)? {
                    continue 'wanted;
                }
            }
            return Ok(Some(wanted.clone()));
        }
        Ok(None)
    }

    fn element(&self) -> Option<Self> {
        match self {
            Self::List(of) | Self::Set(of) | Self::Map(of) => Some((**of).clone()),
            _ => None,
        }
    }

    /// The kinds of what is in tuples and objects.
    fn parts(kinds: &[Self]) -> Vec<Self> {
        let mut parts = Vec::new();
        for kind in kinds {
            match kind {
                Self::Tuple(items) => parts.extend(items.iter().cloned()),
                Self::Object(items) => parts.extend(items.values().map(|item| item.kind.clone())),
                _ => {}
            }
        }
        parts
    }

    /// Objects among maps count as maps.
    fn with_maps(kinds: &[Self], budget: &Budget) -> Result<Option<Self>> {
        let objects: Vec<_> = kinds.iter().filter(|kind| matches!(kind, Self::Object(_))).cloned().collect();
        let Some(of) = Self::common(&Self::parts(&objects), budget)? else { return Ok(None) };
        let map = Self::Map(Rc::new(of));
        let kinds: Vec<_> = kinds
            .iter()
            .map(|kind| if matches!(kind, Self::Object(_)) { map.clone() } else { kind.clone() })
            .collect();
        Self::common(&kinds, budget)
    }

    /// Tuples among lists count as lists.
    fn with_lists(kinds: &[Self], budget: &Budget) -> Result<Option<Self>> {
        let tuples: Vec<_> = kinds.iter().filter(|kind| matches!(kind, Self::Tuple(_))).cloned().collect();
        let Some(list) = Self::tuples_as_list(&tuples, budget)? else { return Ok(None) };
        let kinds: Vec<_> = kinds
            .iter()
            .map(|kind| if matches!(kind, Self::Tuple(_)) { list.clone() } else { kind.clone() })
            .collect();
        Ok(Self::common(&kinds, budget)?.filter(|kind| matches!(kind, Self::List(_))))
    }

    fn tuples_as_list(tuples: &[Self], budget: &Budget) -> Result<Option<Self>> {
        Ok(Self::common(&Self::parts(tuples), budget)?.map(|of| Self::List(Rc::new(of))))
    }

    fn of_objects(kinds: &[Self], budget: &Budget) -> Result<Option<Self>> {
        let objects: Vec<_> = kinds
            .iter()
            .filter_map(|kind| if let Self::Object(object) = kind { Some(object) } else { None })
            .collect();
        if objects.windows(2).any(|pair| !pair[0].keys().eq(pair[1].keys())) {
            let of = Self::common(&Self::parts(kinds), budget)?;
            return Ok(of.map(|of| Self::Map(Rc::new(of))));
        }
        let mut attributes = Vec::new();
        for name in objects.iter().take(1).flat_map(|object| object.keys()) {
            let across: Vec<_> = objects.iter().map(|object| object[name].kind.clone()).collect();
            let Some(kind) = Self::common(&across, budget)? else { return Ok(None) };
            attributes.push((name, kind));
        }
        Ok(Some(Self::object(attributes)))
    }

    fn of_tuples(kinds: &[Self], budget: &Budget) -> Result<Option<Self>> {
        let tuples: Vec<_> = kinds
            .iter()
            .filter_map(|kind| if let Self::Tuple(tuple) = kind { Some(tuple) } else { None })
            .collect();
        if tuples.windows(2).any(|pair| pair[0].len() != pair[1].len()) {
            return Self::tuples_as_list(kinds, budget);
        }
        let mut items = Vec::new();
        for at in 0..tuples.first().map_or(0, |tuple| tuple.len()) {
            let across: Vec<_> = tuples.iter().map(|tuple| tuple[at].clone()).collect();
            let Some(kind) = Self::common(&across, budget)? else { return Ok(None) };
            items.push(kind);
        }
        Ok(Some(Self::Tuple(Rc::new(items))))
    }

    /// Whether there is a conversion, which may still fail for a value.
    fn converts_to(&self, wanted: &Self, budget: &Budget) -> Result<bool> {
        budget.spend(NODE)?;
        Ok(match (self, wanted) {
            (_, Self::Any) | (Self::Any, _) => true,
            (Self::Number, Self::Bool) | (Self::Bool, Self::Number) => false,
            (a, b) if a.is_primitive() && b.is_primitive() => true,
            (Self::List(a) | Self::Set(a), Self::List(b) | Self::Set(b)) | (Self::Map(a), Self::Map(b)) => {
                a.converts_to(b, budget)?
            }
            (Self::Tuple(items), Self::List(of) | Self::Set(of)) => {
                let of = match &**of {
                    Self::Any => match Self::common(items, budget)? {
                        Some(Self::Any) => return Ok(items.iter().all(|item| matches!(item, Self::Any))),
                        Some(of) => of,
                        None => return Ok(items.is_empty()),
                    },
                    of => of.clone(),
                };
                for item in items.iter() {
                    if !item.converts_to(&of, budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Tuple(a), Self::Tuple(b)) => {
                for (a, b) in a.iter().zip(b.iter()) {
                    if !a.converts_to(b, budget)? {
                        return Ok(false);
                    }
                }
                a.len() == b.len()
            }
            (Self::Object(items), Self::Map(of)) => {
                let kinds: Vec<_> = items.values().map(|item| item.kind.clone()).collect();
                let of = match &**of {
                    Self::Any => match Self::common(&kinds, budget)? {
                        Some(of) => of,
                        None => return Ok(kinds.is_empty()),
                    },
                    of => of.clone(),
                };
                for kind in kinds {
                    if !kind.converts_to(&of, budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Map(of), Self::Object(wanted)) => {
                for attribute in wanted.values() {
                    if !attribute.optional && !of.converts_to(&attribute.kind, budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Object(given), Self::Object(wanted)) => {
                for (name, attribute) in wanted.iter() {
                    let converts = match given.get(name) {
                        Some(given) => given.kind.converts_to(&attribute.kind, budget)?,
                        None => attribute.optional,
                    };
                    if !converts {
                        return Ok(false);
                    }
                }
                true
            }
            _ => false,
        })
    }

    /// Converts a value to this kind.
    pub(crate) fn convert(&self, value: &Value, budget: &Budget) -> Result<Value> {
        budget.spend(NODE)?;
        if matches!(self, Self::Any) {
            return Ok(value.clone());
        }
        match value {
            Value::Unknown(_) => return Ok(value.clone()),
            Value::Null(kind) => {
                return match kind.converts_to(self, budget)? {
                    true => Ok(Value::Null(self.clone())),
                    false => failed(format!("{} is required", self.described())),
                };
            }
            _ => {}
        }
        match (self, value) {
            (Self::Text, value) => value.to_text(budget).map(Value::Text),
            (Self::Number, value) => value.to_number(budget).map(Value::Number),
            (Self::Bool, value) => value.to_bool().map(Value::Bool),
            (Self::List(of) | Self::Set(of), Value::List(list)) => {
                let (kind, items) = match (&**of, &list.shape) {
                    (Self::Any, Shape::List(kind) | Shape::Set(kind)) => (kind.clone(), list.items.clone()),
                    _ if list.items.is_empty() => ((**of).clone(), Vec::new()),
                    _ => Self::alike(of, list.items.iter(), true, budget)?,
                };
                budget.spend(NODE * items.len())?;
                match self {
                    Self::Set(_) => Value::set(kind, items, budget),
                    _ => Ok(Value::list(kind, items)),
                }
            }
            (Self::Map(of), Value::Map(map)) => {
                let (kind, items) = match (&**of, &map.of) {
                    (Self::Any, Some(kind)) => (kind.clone(), map.items.values().cloned().collect()),
                    _ if map.items.is_empty() => ((**of).clone(), Vec::new()),
                    _ => Self::alike(of, map.items.values(), false, budget)?,
                };
                Ok(Value::map(kind, keyed(map.items.keys(), items, budget)?))
            }
            (Self::Tuple(wanted), Value::List(list)) if matches!(list.shape, Shape::Tuple) => {
                if wanted.len() != list.items.len() {
                    return failed(format!("a list of {} elements is required", wanted.len()));
                }
                let items = wanted.iter().zip(&list.items);
                let items: Result<_> = items.map(|(wanted, item)| wanted.convert(item, budget)).collect();
                Ok(Value::tuple(items?))
            }
            (Self::Object(wanted), Value::Map(map)) => {
                let mut items = BTreeMap::new();
                for (name, attribute) in wanted.iter() {
                    budget.spend(NODE + name.len())?;
                    let item = match map.items.get(name) {
                        Some(item) => attribute.kind.convert(item, budget)?,
                        None if attribute.optional => Value::Null(attribute.kind.clone()),
                        None => return failed(format!("the attribute {name:?} is required")),
                    };
                    items.insert(name.clone(), item);
                }
                Ok(Value::object(items))
            }
            _ => failed(format!("{} is required, not {}", self.described(), value.described())),
        }
    }

    /// Converts elements to one kind, the wanted one as far as it says which. `sure` refuses what has nothing in common but
    /// being anything.
    fn alike<'v>(
        wanted: &Self,
        items: impl Iterator<Item = &'v Value>,
        sure: bool,
        budget: &Budget,
    ) -> Result<(Self, Vec<Value>)> {
        let items: Vec<_> = items.map(|item| wanted.convert(item, budget)).collect::<Result<_>>()?;
        if wanted.is_primitive() {
            return Ok((wanted.clone(), items));
        }
        let kinds =
            |items: &[Value]| items.iter().map(|item| Self::of(item, budget)).collect::<Result<Vec<_>>>();
        let differ = || failed("the elements have no type in common");
        let is_any = |kind: &Self| matches!(kind, Self::Any);
        let mut items = items;
        // A second time, since elements may say more about empty ones once they are converted.
        for _ in 0..2 {
            let found = kinds(&items)?;
            let Some(kind) = Self::common(&found, budget)? else { return differ() };
            if is_any(&kind) && sure && !found.iter().all(is_any) {
                return differ();
            }
            items = items.iter().map(|item| kind.convert(item, budget)).collect::<Result<_>>()?;
        }
        // Where what is in common is anything, the elements may still differ.
        let mut one = Self::Any;
        for kind in kinds(&items)? {
            if is_any(&one) {
                one = kind;
            } else if !is_any(&kind) && !one.same(&kind, budget)? {
                return differ();
            }
        }
        let items = items.iter().map(|item| one.convert(item, budget)).collect::<Result<_>>()?;
        Ok((one, items))
    }

    /// Whether this is a collection of which is not known what it holds.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::List(of) | Self::Set(of) | Self::Map(of) if matches!(**of, Self::Any))
    }

    const fn described(&self) -> &'static str {
        match self {
            Self::Any => "a value",
            Self::Bool => "a bool",
            Self::Number => "a number",
            Self::Text => "a string",
            Self::List(_) | Self::Tuple(_) => "a list",
            Self::Set(_) => "a set",
            Self::Map(_) => "a map",
            Self::Object(_) => "an object",
        }
    }
}

/// The elements of a map under their keys again.
fn keyed<'k>(
    keys: impl Iterator<Item = &'k String>,
    items: Vec<Value>,
    budget: &Budget,
) -> Result<BTreeMap<String, Value>> {
    keys.zip(items)
        .map(|(key, item)| {
            budget.spend(NODE + key.len())?;
            Ok((key.clone(), item))
        })
        .collect()
}
