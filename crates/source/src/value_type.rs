//! Types of values: the type that several values have in common, and conversion between types.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::budget::{Budget, EvalError, NODE_COST, Result, failed};
use crate::value::{SequenceKind, Value};

/// The type of a value, or of a parameter of a function or variable.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    /// The type of a plain `null`; as a target type it accepts anything.
    Any,
    Bool,
    Number,
    Text,
    List(Rc<Type>),
    Set(Rc<Type>),
    Map(Rc<Type>),
    Tuple(Rc<Vec<Type>>),
    Object(Rc<BTreeMap<String, Attribute>>),
}

/// An attribute of an object type.
#[derive(Clone, Debug)]
pub(crate) struct Attribute {
    pub(crate) ty: Type,
    /// Whether the attribute may be missing; only in target types, never in the type of a value.
    pub(crate) optional: bool,
}

impl Type {
    /// The type of an object with these attributes.
    pub(crate) fn object<'k>(attributes: impl IntoIterator<Item = (&'k String, Self)>) -> Self {
        let attribute = |(name, ty): (&String, Self)| (name.clone(), Attribute { ty, optional: false });
        Self::Object(Rc::new(attributes.into_iter().map(attribute).collect()))
    }

    /// Whether two types are the same.
    pub(crate) fn same(&self, other: &Self, budget: &Budget) -> Result<bool> {
        budget.spend(NODE_COST)?;
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
                    if !a.ty.same(&b.ty, budget)? {
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

    /// The type of a value; unknown when any part of the value is.
    pub(crate) fn of(value: &Value, budget: &Budget) -> Result<Self> {
        budget.spend(NODE_COST)?;
        Ok(match value {
            Value::Unknown(reason) => return Err(EvalError::Unknown(reason.clone())),
            Value::Null(ty) => ty.clone(),
            Value::Bool(_) => Self::Bool,
            Value::Number(_) => Self::Number,
            Value::Text(_) => Self::Text,
            Value::List(list) => match &list.kind {
                SequenceKind::List(of) => Self::List(Rc::new(of.clone())),
                SequenceKind::Set(of) => Self::Set(Rc::new(of.clone())),
                SequenceKind::Tuple => {
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

    /// The type that values of all these types can be converted to, if any.
    pub(crate) fn common(types: &[Self], budget: &Budget) -> Result<Option<Self>> {
        budget.spend(NODE_COST * types.len())?;
        if types.is_empty() {
            return Ok(None);
        }
        let all = |test: fn(&Self) -> bool| types.iter().all(test);
        let some = |test: fn(&Self) -> bool| types.iter().any(test);
        let any = some(|ty| matches!(ty, Self::Any));
        // With a plain null among collections the common type stays open.
        let some_and_any = |test: fn(&Self) -> bool| {
            some(test) && types.iter().all(|ty| matches!(ty, Self::Any) || test(ty))
        };
        type Collection = (fn(&Type) -> bool, fn(Rc<Type>) -> Type);
        let collections: [Collection; 3] = [
            (|ty| matches!(ty, Self::Map(_)), Self::Map),
            (|ty| matches!(ty, Self::List(_)), Self::List),
            (|ty| matches!(ty, Self::Set(_)), Self::Set),
        ];
        for (is_one, make) in collections {
            if some_and_any(is_one) {
                if any {
                    return Ok(Some(Self::Any));
                }
                let elements: Vec<_> = types.iter().filter_map(Self::element).collect();
                return Ok(Self::common(&elements, budget)?.map(|ty| make(Rc::new(ty))));
            }
        }
        if some_and_any(|ty| matches!(ty, Self::Map(_) | Self::Object(_))) {
            if some(|ty| matches!(ty, Self::Map(_))) {
                if let Some(found) = Self::with_maps(types, budget)? {
                    return Ok(Some(found));
                }
            } else {
                return if any { Ok(Some(Self::Any)) } else { Self::of_objects(types, budget) };
            }
        }
        if some_and_any(|ty| matches!(ty, Self::List(_) | Self::Tuple(_))) {
            if some(|ty| matches!(ty, Self::List(_))) {
                if let Some(found) = Self::with_lists(types, budget)? {
                    return Ok(Some(found));
                }
            } else {
                return if any { Ok(Some(Self::Any)) } else { Self::of_tuples(types, budget) };
            }
        }
        if all(|ty| ty.is_primitive() || matches!(ty, Self::Any)) {
            return Ok(
                match (
                    some(|ty| matches!(ty, Self::Text)),
                    some(|ty| matches!(ty, Self::Number)),
                    some(|ty| matches!(ty, Self::Bool)),
                ) {
                    (true, ..) => Some(Self::Text),
                    (false, true, false) => Some(Self::Number),
                    (false, false, true) => Some(Self::Bool),
                    _ => any.then_some(Self::Any),
                },
            );
        }
        if some(|ty| matches!(ty, Self::Object(_))) && some(|ty| matches!(ty, Self::Tuple(_))) {
            return Ok(None);
        }
        // Lists before sets, maps before objects, then anything. To a tuple nothing else converts.
        let rank = |ty: &&Self| match ty {
            Self::List(_) | Self::Map(_) => 0,
            Self::Any => 2,
            _ => 1,
        };
        let mut expected: Vec<_> = types.iter().collect();
        expected.sort_by_key(rank);
        'expected: for expected in expected {
            for ty in types {
                if !ty.converts_to(expected, budget)? {
                    continue 'expected;
                }
            }
            return Ok(Some(expected.clone()));
        }
        Ok(None)
    }

    fn element(&self) -> Option<Self> {
        match self {
            Self::List(of) | Self::Set(of) | Self::Map(of) => Some((**of).clone()),
            _ => None,
        }
    }

    /// The types of the elements of tuples and objects.
    fn parts(types: &[Self]) -> Vec<Self> {
        let mut parts = Vec::new();
        for ty in types {
            match ty {
                Self::Tuple(items) => parts.extend(items.iter().cloned()),
                Self::Object(items) => parts.extend(items.values().map(|item| item.ty.clone())),
                _ => {}
            }
        }
        parts
    }

    /// Treats objects among maps as maps.
    fn with_maps(types: &[Self], budget: &Budget) -> Result<Option<Self>> {
        let objects: Vec<_> = types.iter().filter(|ty| matches!(ty, Self::Object(_))).cloned().collect();
        let Some(of) = Self::common(&Self::parts(&objects), budget)? else { return Ok(None) };
        let map = Self::Map(Rc::new(of));
        let types: Vec<_> = types
            .iter()
            .map(|ty| if matches!(ty, Self::Object(_)) { map.clone() } else { ty.clone() })
            .collect();
        Self::common(&types, budget)
    }

    /// Treats tuples among lists as lists.
    fn with_lists(types: &[Self], budget: &Budget) -> Result<Option<Self>> {
        let tuples: Vec<_> = types.iter().filter(|ty| matches!(ty, Self::Tuple(_))).cloned().collect();
        let Some(list) = Self::tuples_as_list(&tuples, budget)? else { return Ok(None) };
        let types: Vec<_> = types
            .iter()
            .map(|ty| if matches!(ty, Self::Tuple(_)) { list.clone() } else { ty.clone() })
            .collect();
        Ok(Self::common(&types, budget)?.filter(|ty| matches!(ty, Self::List(_))))
    }

    fn tuples_as_list(tuples: &[Self], budget: &Budget) -> Result<Option<Self>> {
        let Some(of) = Self::common(&Self::parts(tuples), budget)? else { return Ok(None) };
        Self::if_all_convert(tuples, Self::List(Rc::new(of)), budget)
    }

    /// The common type, if there is a conversion for each of these types. With a null among the elements the common type
    /// is open, and elements of one tuple may still have nothing in common.
    fn if_all_convert(types: &[Self], common: Self, budget: &Budget) -> Result<Option<Self>> {
        for ty in types {
            if !ty.converts_to(&common, budget)? {
                return Ok(None);
            }
        }
        Ok(Some(common))
    }

    fn of_objects(types: &[Self], budget: &Budget) -> Result<Option<Self>> {
        let objects: Vec<_> = types
            .iter()
            .filter_map(|ty| if let Self::Object(object) = ty { Some(object) } else { None })
            .collect();
        if objects.windows(2).any(|pair| !pair[0].keys().eq(pair[1].keys())) {
            let Some(of) = Self::common(&Self::parts(types), budget)? else { return Ok(None) };
            return Self::if_all_convert(types, Self::Map(Rc::new(of)), budget);
        }
        let mut attributes = Vec::new();
        for name in objects.iter().take(1).flat_map(|object| object.keys()) {
            let across: Vec<_> = objects.iter().map(|object| object[name].ty.clone()).collect();
            let Some(ty) = Self::common(&across, budget)? else { return Ok(None) };
            attributes.push((name, ty));
        }
        Ok(Some(Self::object(attributes)))
    }

    fn of_tuples(types: &[Self], budget: &Budget) -> Result<Option<Self>> {
        let tuples: Vec<_> = types
            .iter()
            .filter_map(|ty| if let Self::Tuple(tuple) = ty { Some(tuple) } else { None })
            .collect();
        if tuples.windows(2).any(|pair| pair[0].len() != pair[1].len()) {
            return Self::tuples_as_list(types, budget);
        }
        let mut items = Vec::new();
        for at in 0..tuples.first().map_or(0, |tuple| tuple.len()) {
            let across: Vec<_> = tuples.iter().map(|tuple| tuple[at].clone()).collect();
            let Some(ty) = Self::common(&across, budget)? else { return Ok(None) };
            items.push(ty);
        }
        Ok(Some(Self::Tuple(Rc::new(items))))
    }

    /// Whether there is a conversion, which may still fail for a value.
    fn converts_to(&self, expected: &Self, budget: &Budget) -> Result<bool> {
        budget.spend(NODE_COST)?;
        Ok(match (self, expected) {
            (_, Self::Any) | (Self::Any, _) => true,
            (Self::Number, Self::Bool) | (Self::Bool, Self::Number) => false,
            (a, b) if a.is_primitive() && b.is_primitive() => true,
            (Self::List(a) | Self::Set(a), Self::List(b) | Self::Set(b)) | (Self::Map(a), Self::Map(b)) => {
                a.converts_to(b, budget)?
            }
            (Self::Tuple(items), Self::List(of) | Self::Set(of)) => {
                let of = match &**of {
                    Self::Any => match Self::common(items, budget)? {
                        Some(Self::Any) => {
                            return Ok(items.iter().all(|item| matches!(item, Self::Any)));
                        }
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
                let types: Vec<_> = items.values().map(|item| item.ty.clone()).collect();
                let of = match &**of {
                    Self::Any => match Self::common(&types, budget)? {
                        Some(of) => of,
                        None => return Ok(types.is_empty()),
                    },
                    of => of.clone(),
                };
                for ty in types {
                    if !ty.converts_to(&of, budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Map(of), Self::Object(expected)) => {
                for attribute in expected.values() {
                    if !attribute.optional && !of.converts_to(&attribute.ty, budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Object(given), Self::Object(expected)) => {
                for (name, attribute) in expected.iter() {
                    let converts = match given.get(name) {
                        Some(given) => given.ty.converts_to(&attribute.ty, budget)?,
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

    pub(crate) fn convert(&self, value: &Value, budget: &Budget) -> Result<Value> {
        budget.spend(NODE_COST)?;
        if matches!(self, Self::Any) {
            return Ok(value.clone());
        }
        match value {
            Value::Unknown(_) => return Ok(value.clone()),
            Value::Null(ty) => {
                return match ty.converts_to(self, budget)? {
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
                let (ty, items) = match (&**of, &list.kind) {
                    (Self::Any, SequenceKind::List(ty) | SequenceKind::Set(ty)) => {
                        (ty.clone(), list.items.clone())
                    }
                    _ if list.items.is_empty() => ((**of).clone(), Vec::new()),
                    _ => Self::alike(of, list.items.iter(), true, budget)?,
                };
                budget.spend(NODE_COST * items.len())?;
                match self {
                    Self::Set(_) => Value::set(ty, items, budget),
                    _ => Ok(Value::list(ty, items)),
                }
            }
            (Self::Map(of), Value::Map(map)) => {
                let (ty, items) = match (&**of, &map.of) {
                    (Self::Any, Some(ty)) => (ty.clone(), map.items.values().cloned().collect()),
                    _ if map.items.is_empty() => ((**of).clone(), Vec::new()),
                    _ => Self::alike(of, map.items.values(), false, budget)?,
                };
                Ok(Value::map(ty, keyed(map.items.keys(), items, budget)?))
            }
            (Self::Tuple(expected), Value::List(list)) if matches!(list.kind, SequenceKind::Tuple) => {
                if expected.len() != list.items.len() {
                    return failed(format!("a list of {} elements is required", expected.len()));
                }
                let items = expected.iter().zip(&list.items);
                let items: Result<_> = items.map(|(expected, item)| expected.convert(item, budget)).collect();
                Ok(Value::tuple(items?))
            }
            (Self::Object(expected), Value::Map(map)) => {
                let mut items = BTreeMap::new();
                for (name, attribute) in expected.iter() {
                    budget.spend(NODE_COST + name.len())?;
                    let item = match map.items.get(name) {
                        Some(item) => attribute.ty.convert(item, budget)?,
                        None if attribute.optional => Value::Null(attribute.ty.clone()),
                        None => return failed(format!("the attribute {name:?} is required")),
                    };
                    items.insert(name.clone(), item);
                }
                Ok(Value::object(items))
            }
            _ => failed(format!("{} is required, not {}", self.described(), value.described())),
        }
    }

    /// Converts elements to one type, the expected one as far as it says which. `sure` refuses what has nothing in common but
    /// being anything.
    fn alike<'v>(
        expected: &Self,
        items: impl Iterator<Item = &'v Value>,
        sure: bool,
        budget: &Budget,
    ) -> Result<(Self, Vec<Value>)> {
        let items: Vec<_> = items.map(|item| expected.convert(item, budget)).collect::<Result<_>>()?;
        if expected.is_primitive() {
            return Ok((expected.clone(), items));
        }
        let types =
            |items: &[Value]| items.iter().map(|item| Self::of(item, budget)).collect::<Result<Vec<_>>>();
        let differ = || failed("the elements have no type in common");
        let is_any = |ty: &Self| matches!(ty, Self::Any);
        let mut items = items;
        // A second time, since elements may say more about empty ones once they are converted.
        for _ in 0..2 {
            let found = types(&items)?;
            let Some(ty) = Self::common(&found, budget)? else { return differ() };
            if is_any(&ty) && sure && !found.iter().all(is_any) {
                return differ();
            }
            items = items.iter().map(|item| ty.convert(item, budget)).collect::<Result<_>>()?;
        }
        // With an open common type the elements may still have different types.
        let mut one = Self::Any;
        for ty in types(&items)? {
            if is_any(&one) {
                one = ty;
            } else if !is_any(&ty) && !one.same(&ty, budget)? {
                return differ();
            }
        }
        let items = items.iter().map(|item| one.convert(item, budget)).collect::<Result<_>>()?;
        Ok((one, items))
    }

    /// Whether this is a collection with an unknown element type.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::List(of) | Self::Set(of) | Self::Map(of) if matches!(**of, Self::Any))
    }

    /// Whether all elements of such a value have one type.
    pub(crate) const fn is_collection(&self) -> bool {
        matches!(self, Self::List(_) | Self::Set(_) | Self::Map(_))
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
            budget.spend(NODE_COST + key.len())?;
            Ok((key.clone(), item))
        })
        .collect()
}
