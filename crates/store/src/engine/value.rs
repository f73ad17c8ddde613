//! The parameter values, and the conversions between Rust types and columns.

use std::collections::BTreeMap;

use coder_domain::build::{BuildReason, Transition};
use coder_domain::ids::{
    AgentId, AppId, BuildId, DaemonId, FileId, JobId, KeyId, LogSourceId, OrganizationId, PresetId,
    ResourceId, ScriptId, TemplateId, TemplateVersionId, UserId, WorkspaceId,
};
use coder_domain::job;
use coder_domain::key::Sha256Digest;
use coder_domain::secret::Secret;
use coder_domain::tags::TagSet;
use jiff::Timestamp;
use uuid::Uuid;

use super::Row;
use crate::error::Error;

/// A parameter. Nulls are typed, because Postgres needs the type.
#[derive(Clone, PartialEq)]
pub(crate) enum Value {
    /// A null boolean.
    NullBool,
    /// A null number or instant.
    NullInt,
    /// A null text, id or document.
    NullText,
    /// Null bytes.
    NullBytes,
    /// A boolean.
    Bool(bool),
    /// A number, or an instant in microseconds since 1970.
    Int(i64),
    /// A text, an id or a JSON document.
    Text(String),
    Bytes(Vec<u8>),
}

impl Value {
    /// The value inside a JSON row of a batch. Bytes are never sent in this way.
    pub(crate) fn into_json(self) -> serde_json::Value {
        match self {
            Self::NullBool | Self::NullInt | Self::NullText | Self::NullBytes | Self::Bytes(_) => {
                serde_json::Value::Null
            }
            Self::Bool(flag) => flag.into(),
            Self::Int(number) => number.into(),
            Self::Text(text) => clean(text).into(),
        }
    }
}

/// Postgres cannot store NUL. Both engines store a replacement character instead, so that a NUL in a log line does not
/// fail a job.
pub(crate) fn clean(text: String) -> String {
    if text.as_bytes().contains(&0) { text.replace('\0', "\u{fffd}") } else { text }
}

/// A type that is stored in one column.
pub(crate) trait Column: Sized {
    /// The typed null of a missing value.
    const NULL: Value;
    /// Converts it to a parameter.
    fn to_value(&self) -> Value;
    /// Reads it from a row.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the column has another type of value.
    fn read(row: &Row, column: &'static str) -> Result<Option<Self>, Error>;
}

macro_rules! plain {
    ($kind:ty, $null:ident, $arm:ident, $raw:ident, $make:expr) => {
        impl Column for $kind {
            const NULL: Value = Value::$null;
            fn to_value(&self) -> Value {
                let make: fn(&Self) -> _ = $make;
                Value::$arm(make(self))
            }
            fn read(row: &Row, column: &'static str) -> Result<Option<Self>, Error> {
                row.$raw(column)
            }
        }
    };
}

plain!(bool, NullBool, Bool, raw_bool, |flag| *flag);
plain!(i64, NullInt, Int, raw_int, |number| *number);
plain!(String, NullText, Text, raw_text, Clone::clone);
plain!(Vec<u8>, NullBytes, Bytes, raw_bytes, Clone::clone);

impl<T: Column> Column for Option<T> {
    const NULL: Value = T::NULL;
    fn to_value(&self) -> Value {
        self.as_ref().map_or(T::NULL, Column::to_value)
    }
    fn read(row: &Row, column: &'static str) -> Result<Option<Self>, Error> {
        Ok(Some(T::read(row, column)?))
    }
}

impl Column for Timestamp {
    const NULL: Value = Value::NullInt;
    fn to_value(&self) -> Value {
        Value::Int(self.as_microsecond())
    }
    fn read(row: &Row, column: &'static str) -> Result<Option<Self>, Error> {
        let parse =
            |micros| Self::from_microsecond(micros).map_err(|_| row.corrupt(column, "not an instant"));
        row.raw_int(column)?.map(parse).transpose()
    }
}

impl Column for Secret {
    const NULL: Value = Value::NullText;
    fn to_value(&self) -> Value {
        Value::Text(self.expose().to_owned())
    }
    fn read(row: &Row, column: &'static str) -> Result<Option<Self>, Error> {
        Ok(row.open_text(column, column)?.map(Self::new))
    }
}

impl Column for Sha256Digest {
    const NULL: Value = Value::NullBytes;
    fn to_value(&self) -> Value {
        Value::Bytes(self.0.to_vec())
    }
    fn read(row: &Row, column: &'static str) -> Result<Option<Self>, Error> {
        let parse = |bytes: Vec<u8>| match <[u8; 32]>::try_from(bytes) {
            Ok(hash) => Ok(Self(hash)),
            Err(_) => Err(row.corrupt(column, "not 32 bytes")),
        };
        row.raw_bytes(column)?.map(parse).transpose()
    }
}

/// Types that are stored as the text that `FromStr` parses.
macro_rules! texts {
    ($what:literal, |$value:ident| $text:expr; $($kind:ty),*) => {$(
        impl Column for $kind {
            const NULL: Value = Value::NullText;
            fn to_value(&self) -> Value {
                let $value = self;
                Value::Text($text)
            }
            fn read(row: &Row, column: &'static str) -> Result<Option<Self>, Error> {
                let parse = |text: String| text.parse().map_err(|_| row.corrupt(column, $what));
                row.raw_text(column)?.map(parse).transpose()
            }
        }
    )*};
}

texts!("not a UUID", |id| id.to_string(); Uuid, UserId, OrganizationId, TemplateId, TemplateVersionId, PresetId,
    WorkspaceId, BuildId, JobId, DaemonId, KeyId, FileId, ResourceId, AgentId, AppId,
    LogSourceId, ScriptId);
texts!("not one of the expected words", |word| word.as_str().to_owned(); job::Type, Transition, BuildReason);

/// Types that are stored as a JSON document.
macro_rules! json_column {
    (@$read:ident $($kind:ty),*) => {$(
        impl $crate::engine::Column for $kind {
            const NULL: $crate::engine::Value = $crate::engine::Value::NullText;
            fn to_value(&self) -> $crate::engine::Value {
                $crate::engine::Value::Text($crate::engine::to_json(self))
            }
            fn read(
                row: &$crate::engine::Row,
                column: &'static str,
            ) -> $crate::Result<Option<Self>> {
                row.$read(column)
            }
        }
    )*};
    ($($kind:ty),* $(,)?) => { $crate::engine::json_column!(@raw_json $($kind),*); };
}
pub(crate) use json_column;

/// Like [`json_column`], for columns that hold secrets. The caller encrypts the value with
/// [`Tx::seal_in`](super::Tx::seal_in).
macro_rules! sealed_json_column {
    ($($kind:ty),* $(,)?) => { $crate::engine::json_column!(@open_json $($kind),*); };
}
pub(crate) use sealed_json_column;

json_column!(Vec<String>, BTreeMap<String, String>, TagSet, serde_json::Value);

/// A JSON document that may hold secrets. Its `Debug` shows nothing.
#[derive(Clone, Default, PartialEq)]
pub struct Document(pub serde_json::Value);

impl std::fmt::Debug for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Document(…)")
    }
}

impl Column for Document {
    const NULL: Value = Value::NullText;
    fn to_value(&self) -> Value {
        self.0.to_value()
    }
    fn read(row: &Row, column: &'static str) -> Result<Option<Self>, Error> {
        Ok(row.open_json(column)?.map(Self))
    }
}

/// Serializes a value that always has a JSON form.
pub(crate) fn to_json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("our documents have text keys and finite numbers")
}

/// A list as a parameter: JSON text that SQL reads with `json_each`.
pub(crate) fn list<T: Column>(items: impl IntoIterator<Item = T>) -> Value {
    let items: Vec<_> = items.into_iter().map(|item| item.to_value().into_json()).collect();
    Value::Text(to_json(&items))
}

/// An optional list parameter.
pub(crate) fn optional_list<T: Column + Clone>(items: Option<&[T]>) -> Value {
    items.map_or(Value::NullText, |items| list(items.iter().cloned()))
}

/// Builds the parameter list of a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        vec![$($crate::engine::Column::to_value(&$value)),*]
    };
}
pub(crate) use values;

/// Defines a struct for a row. A field is stored in the column of the same name, or in the column after `=`.
macro_rules! record {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$doc:meta])* pub $field:ident: $kind:ty $(= $column:literal)?,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $name {
            $($(#[$doc])* pub $field: $kind,)*
        }

        #[allow(dead_code, clippy::allow_attributes, reason = "not every row is both read and written as a whole")]
        impl $name {
            /// The columns, in the order of the fields.
            pub(crate) const COLUMNS: &'static [&'static str] = &[$($crate::engine::column_name!($field $($column)?)),*];

            pub(crate) fn from_row(row: &$crate::engine::Row) -> $crate::Result<Self> {
                Ok(Self { $($field: row.get($crate::engine::column_name!($field $($column)?))?,)* })
            }

            pub(crate) fn values(&self) -> Vec<$crate::engine::Value> {
                vec![$($crate::engine::Column::to_value(&self.$field)),*]
            }
        }

        impl $crate::engine::Record for $name {
            const WIDTH: usize = Self::COLUMNS.len();

            fn read(row: &$crate::engine::Row) -> $crate::Result<Self> {
                Self::from_row(row)
            }
        }
    };
}
pub(crate) use record;

macro_rules! column_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $column:literal) => {
        $column
    };
}
pub(crate) use column_name;

/// Rows as one JSON parameter. SQL reads them with `json_each` and `json_extract`.
pub(crate) fn batch(columns: &[&str], rows: impl IntoIterator<Item = Vec<Value>>) -> Value {
    let object = |values: Vec<Value>| {
        let fields =
            columns.iter().zip(values).map(|(column, value)| ((*column).to_owned(), value.into_json()));
        serde_json::Value::Object(fields.collect())
    };
    let rows: Vec<_> = rows.into_iter().map(object).collect();
    Value::Text(to_json(&rows))
}
