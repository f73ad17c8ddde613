//! A Terraform value of a configuration, a plan or a state.

use std::collections::BTreeMap;

/// One value. The schema defines its type; sets are encoded as lists.
#[derive(Clone, PartialEq)]
pub(crate) enum Value {
    /// Not known before apply.
    Unknown,
    /// Absent.
    Null,
    Bool(bool),
    Int(i64),
    /// A number that is not an `i64`.
    Float(f64),
    Text(String),
    List(Vec<Value>),
    Object(BTreeMap<String, Value>),
}

static NULL: Value = Value::Null;

impl Value {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// An object of the given fields.
    pub(crate) fn object<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        Self::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// Whether no part of the value is unknown.
    pub(crate) fn is_known(&self) -> bool {
        match self {
            Self::Unknown => false,
            Self::List(items) => items.iter().all(Self::is_known),
            Self::Object(fields) => fields.values().all(Self::is_known),
            _ => true,
        }
    }

    /// The field of an object; null for a missing field and for other values.
    pub(crate) fn field(&self, name: &str) -> &Self {
        match self {
            Self::Object(fields) => fields.get(name).unwrap_or(&NULL),
            _ => &NULL,
        }
    }

    /// Sets the field of an object; other values do not change.
    pub(crate) fn set(&mut self, name: &str, value: Self) {
        if let Self::Object(fields) = self {
            fields.insert(name.to_owned(), value);
        }
    }

    /// The field of an object, mutable.
    pub(crate) fn field_mut(&mut self, name: &str) -> Option<&mut Self> {
        match self {
            Self::Object(fields) => fields.get_mut(name),
            _ => None,
        }
    }

    /// The elements of a list or set; empty for other values.
    pub(crate) fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The text; empty for other values.
    pub(crate) fn text_or_empty(&self) -> &str {
        self.as_text().unwrap_or_default()
    }

    pub(crate) fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn is_true(&self) -> bool {
        matches!(self, Self::Bool(true))
    }

    /// Whether the value is null or the zero value of its type: `""`, 0, false, no elements.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Unknown => false,
            Self::Null | Self::Bool(false) | Self::Int(0) => true,
            Self::Bool(true) | Self::Int(_) => false,
            Self::Float(number) => *number == 0.0,
            Self::Text(text) => text.is_empty(),
            Self::List(items) => items.is_empty(),
            Self::Object(fields) => fields.is_empty(),
        }
    }
}

/// Values contain tokens and keys, so only their kind is printed.
impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) | Self::Float(_) => "number",
            Self::Text(_) => "text",
            Self::List(_) => "list",
            Self::Object(_) => "object",
        })
    }
}
