//! A row of either driver with typed getters; what cannot be read is [`Error::Corrupt`].

use serde::de::DeserializeOwned;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::sqlite::SqliteRow;
use super::value::Column;
use crate::error::Error;

enum Inner {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// Why a column has no value of the kind asked for.
pub(super) enum Unreadable {
    NoColumn,
    Kind,
}

impl From<sqlx::Error> for Unreadable {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::ColumnNotFound(_) => Self::NoColumn,
            _ => Self::Kind,
        }
    }
}

/// One row of a result.
pub(crate) struct Row {
    inner: Inner,
    table: &'static str,
}

impl Row {
    pub(super) const fn sqlite(row: SqliteRow, table: &'static str) -> Self {
        Self { inner: Inner::Sqlite(row), table }
    }

    pub(super) const fn postgres(row: PgRow, table: &'static str) -> Self {
        Self { inner: Inner::Postgres(row), table }
    }

    /// The value of a column that must not be null (or is an `Option`).
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn get<T: Column>(&self, column: &'static str) -> Result<T, Error> {
        T::read(self, column)?.ok_or_else(|| self.corrupt(column, "null"))
    }

    /// The error for a bad value in `column` of this row.
    pub(crate) fn corrupt(&self, column: &'static str, detail: impl Into<String>) -> Error {
        let id = match &self.inner {
            Inner::Sqlite(row) => row.get::<String>("id").ok().flatten(),
            Inner::Postgres(row) => row.try_get::<String, _>("id").ok(),
        };
        let id = id.unwrap_or_else(|| "?".to_owned());
        Error::Corrupt { table: self.table, column, id, detail: detail.into() }
    }

    pub(crate) fn raw_json<T: DeserializeOwned>(&self, column: &'static str) -> Result<Option<T>, Error> {
        let Some(text) = self.raw_text(column)? else { return Ok(None) };
        // The parser's own message may quote the value, so only its position is kept.
        let bad = |error: serde_json::Error| {
            self.corrupt(
                column,
                format!("not the expected document (line {}, column {})", error.line(), error.column()),
            )
        };
        serde_json::from_str(&text).map(Some).map_err(bad)
    }
}

macro_rules! raw {
    ($($name:ident: $kind:ty),*) => {
        impl Row {
            $(pub(super) fn $name(&self, column: &'static str) -> Result<Option<$kind>, Error> {
                let value = match &self.inner {
                    Inner::Sqlite(row) => row.get::<$kind>(column),
                    Inner::Postgres(row) => row.try_get::<Option<$kind>, _>(column).map_err(Unreadable::from),
                };
                value.map_err(|error| match error {
                    Unreadable::NoColumn => self.corrupt(column, "no such column in the result"),
                    Unreadable::Kind => self.corrupt(column, concat!("not readable as ", stringify!($kind))),
                })
            })*
        }
    };
}

raw!(raw_bool: bool, raw_int: i64, raw_text: String, raw_bytes: Vec<u8>);
