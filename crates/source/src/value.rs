//! Values of the configuration language, and what converts one kind into another.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::budget::{Budget, NODE, Result, Stop, failed};
use crate::number::Number;

/// Values may be nested this deep; deeper ones count as unknown. Everything that walks a value recurses.
const DEEPEST: u32 = 50;

/// A value. Clones share their content.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    Text(Rc<str>),
    /// List, tuple, or set: a set is sorted and has no duplicates.
    List(Rc<Nested<Vec<Value>>>),
    /// Map or object.
    Map(Rc<Nested<BTreeMap<String, Value>>>),
    /// Known only when Terraform runs, with the reason.
    Unknown(Rc<str>),
}

/// Content that knows how deep it is.
#[derive(Debug)]
pub(crate) struct Nested<T> {
    depth: u32,
    pub(crate) items: T,
}

impl Value {
    pub(crate) fn text(text: impl AsRef<str>) -> Self {
        Self::Text(text.as_ref().into())
    }

    pub(crate) fn unknown(reason: impl AsRef<str>) -> Self {
        Self::Unknown(reason.as_ref().into())
    }

    pub(crate) fn list(items: Vec<Self>) -> Self {
        match deeper(items.iter()) {
            Some(depth) => Self::List(Rc::new(Nested { depth, items })),
            None => Self::unknown("the value is nested too deep"),
        }
    }

    pub(crate) fn map(items: BTreeMap<String, Self>) -> Self {
        match deeper(items.values()) {
            Some(depth) => Self::Map(Rc::new(Nested { depth, items })),
            None => Self::unknown("the value is nested too deep"),
        }
    }

    pub(crate) fn texts<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> Self {
        Self::list(items.into_iter().map(Self::text).collect())
    }

    fn depth(&self) -> u32 {
        match self {
            Self::List(list) => list.depth,
            Self::Map(map) => map.depth,
            _ => 0,
        }
    }

    /// What kind of value this is, for messages.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a bool",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "an object",
            Self::Unknown(_) => "an unknown value",
        }
    }

    pub(crate) const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// As a string, the way Terraform converts.
    pub(crate) fn to_text(&self, budget: &Budget) -> Result<Rc<str>> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Bool(value) => Ok(if *value { "true" } else { "false" }.into()),
            Self::Number(number) => {
                let text = number.to_string();
                budget.spend(text.len())?;
                Ok(text.into())
            }
            other => other.mismatch("a string"),
        }
    }

    /// As a number; a string of digits converts.
    pub(crate) fn to_number(&self) -> Result<Number> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Text(text) => match Number::parse(text) {
                Some(number) => Ok(number),
                None => failed("a number is required"),
            },
            other => other.mismatch("a number"),
        }
    }

    /// As a bool; the strings `true` and `false` (and `1` and `0`) convert.
    pub(crate) fn to_bool(&self) -> Result<bool> {
        match self {
            Self::Bool(value) => Ok(*value),
            Self::Text(text) => match &**text {
                "true" | "1" => Ok(true),
                "false" | "0" => Ok(false),
                _ => failed("a bool is required: \"true\" or \"false\""),
            },
            other => other.mismatch("a bool"),
        }
    }

    /// The elements of a list, or the values of a map in the order of their keys.
    pub(crate) fn to_items(&self) -> Result<Vec<Self>> {
        match self {
            Self::List(list) => Ok(list.items.clone()),
            Self::Map(map) => Ok(map.items.values().cloned().collect()),
            other => other.mismatch("a list"),
        }
    }

    pub(crate) fn to_map(&self) -> Result<&BTreeMap<String, Self>> {
        match self {
            Self::Map(map) => Ok(&map.items),
            other => other.mismatch("a map"),
        }
    }

    fn mismatch<T>(&self, wanted: &str) -> Result<T> {
        match self {
            Self::Unknown(reason) => Err(Stop::Unknown(reason.clone())),
            other => failed(format!("{wanted} is required, not {}", other.kind())),
        }
    }

    /// Whether two values are equal; unknown as soon as a part that matters is.
    pub(crate) fn equals(&self, other: &Self, budget: &Budget) -> Result<bool> {
        budget.spend(NODE)?;
        match (self, other) {
            (Self::Unknown(reason), _) | (_, Self::Unknown(reason)) => Err(Stop::Unknown(reason.clone())),
            (Self::Null, Self::Null) => Ok(true),
            (Self::Bool(a), Self::Bool(b)) => Ok(a == b),
            (Self::Number(a), Self::Number(b)) => Ok(a == b),
            (Self::Text(a), Self::Text(b)) => {
                budget.spend(a.len().min(b.len()))?;
                Ok(a == b)
            }
            (Self::List(a), Self::List(b)) => {
                if a.items.len() != b.items.len() {
                    return Ok(false);
                }
                for (a, b) in a.items.iter().zip(&b.items) {
                    if !a.equals(b, budget)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Self::Map(a), Self::Map(b)) => {
                if !a.items.keys().eq(b.items.keys()) {
                    return Ok(false);
                }
                for (a, b) in a.items.values().zip(b.items.values()) {
                    if !a.equals(b, budget)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The order of the elements of a set: numbers by size, strings by bytes, anything else by its JSON.
    pub(crate) fn order(&self, other: &Self, budget: &Budget) -> Result<Ordering> {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => Ok(a.compare(*b)),
            (Self::Text(a), Self::Text(b)) => {
                budget.spend(NODE + a.len().min(b.len()))?;
                Ok(a.cmp(b))
            }
            _ => Ok(crate::json::encode(self, budget)?.cmp(&crate::json::encode(other, budget)?)),
        }
    }

    /// The members of a set: sorted, each once.
    pub(crate) fn set(mut items: Vec<Self>, budget: &Budget) -> Result<Self> {
        let mut stopped = None;
        items.sort_by(|a, b| {
            if stopped.is_some() {
                return Ordering::Equal;
            }
            a.order(b, budget).unwrap_or_else(|stop| {
                stopped = Some(stop);
                Ordering::Equal
            })
        });
        if let Some(stop) = stopped {
            return Err(stop);
        }
        let mut unique: Vec<Self> = Vec::with_capacity(items.len());
        for item in items {
            if unique.last().is_none_or(|last| !matches!(last.equals(&item, budget), Ok(true))) {
                unique.push(item);
            }
        }
        Ok(Self::list(unique))
    }

    /// The two branches of a condition have one type: a string where either is one (the HCL rule for primitives).
    pub(crate) fn unified_with(self, other: &Self, budget: &Budget) -> Result<Self> {
        match (&self, other) {
            (Self::Number(_) | Self::Bool(_), Self::Text(_)) | (Self::Number(_), Self::Bool(_)) => {
                self.to_text(budget).map(Self::Text)
            }
            _ => Ok(self),
        }
    }
}

fn deeper<'a>(items: impl Iterator<Item = &'a Value>) -> Option<u32> {
    let depth = items.map(Value::depth).max().unwrap_or(0) + 1;
    (depth <= DEEPEST).then_some(depth)
}
