//! A row of either driver with typed getters. A value that cannot be read is [`Error::Corrupt`].

use std::ops::Range;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use sqlx::postgres::{PgRow, Postgres};
use sqlx::{Column as _, Decode, Row as _, Type, ValueRef as _};

use super::sqlite::SqliteRow;
use super::value::Column;
use crate::encryption::keys::{Owner, StateKeys};
use crate::error::Error;

enum Inner {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// Why a column cannot be read as the requested type.
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

/// A row of a result, or a range of its columns.
pub(crate) struct Row {
    inner: Arc<Inner>,
    table: &'static str,
    keys: StateKeys,
    /// The range of columns; none for all.
    columns: Option<Range<usize>>,
}

/// A type that can be read from a row or from a part of a row.
pub(crate) trait Record: Sized {
    /// The number of its columns.
    const WIDTH: usize;

    /// Reads it from the row.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    fn read(row: &Row) -> Result<Self, Error>;
}

/// Reads records from a row that has the columns of several tables, one table after the other. Several tables may have
/// a column of the same name.
pub(crate) struct Parts<'a> {
    row: &'a Row,
    at: usize,
}

impl Parts<'_> {
    /// The next record.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn next<T: Record>(&mut self) -> Result<T, Error> {
        T::read(&self.columns(T::WIDTH))
    }

    /// The next record; none when its first column is null, because the outer join found no row.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn next_joined<T: Record>(&mut self) -> Result<Option<T>, Error> {
        let part = self.columns(T::WIDTH);
        if part.is_null(0) { Ok(None) } else { T::read(&part).map(Some) }
    }

    fn columns(&mut self, count: usize) -> Row {
        let columns = self.at..self.at + count;
        self.at = columns.end;
        let Row { inner, table, keys, .. } = self.row;
        Row { inner: Arc::clone(inner), table, keys: keys.clone(), columns: Some(columns) }
    }
}

impl Row {
    pub(super) fn sqlite(row: SqliteRow, table: &'static str, keys: &StateKeys) -> Self {
        Self { inner: Arc::new(Inner::Sqlite(row)), table, keys: keys.clone(), columns: None }
    }

    pub(super) fn postgres(row: PgRow, table: &'static str, keys: &StateKeys) -> Self {
        Self { inner: Arc::new(Inner::Postgres(row)), table, keys: keys.clone(), columns: None }
    }

    /// Decrypts a text of the column `column`. In this result the column is called `called`.
    ///
    /// # Errors
    /// [`Error::Corrupt`], and [`Error::RowKeyMissing`] when it is encrypted with a key that is not configured.
    pub(crate) fn open_text(
        &self,
        column: &'static str,
        called: &'static str,
    ) -> Result<Option<String>, Error> {
        let Some(stored) = self.raw_text(called)? else { return Ok(None) };
        if !StateKeys::is_special(stored.as_bytes()) {
            return Ok(Some(stored));
        }
        let id = self.id();
        self.keys.open_text(Owner::Cell { table: self.table, column, id: &id }, stored).map(Some)
    }

    /// Decrypts bytes of a column that holds secrets.
    ///
    /// # Errors
    /// Those of [`Self::open_text`].
    pub(crate) fn open_bytes(&self, column: &'static str) -> Result<Option<Vec<u8>>, Error> {
        let Some(stored) = self.raw_bytes(column)? else { return Ok(None) };
        if !StateKeys::is_special(&stored) {
            return Ok(Some(stored));
        }
        let id = self.id();
        self.keys.open(Owner::Cell { table: self.table, column, id: &id }, stored).map(Some)
    }

    /// Decrypts a document of a column that holds secrets.
    pub(crate) fn open_json<T: DeserializeOwned>(&self, column: &'static str) -> Result<Option<T>, Error> {
        self.open_text(column, column)?.map(|text| self.parse(column, &text)).transpose()
    }

    /// The identity to which encrypted values of this row are bound: the row's id, or its user. Rows without an id
    /// select `sealed_id`.
    fn id(&self) -> String {
        let text = |column| match &*self.inner {
            Inner::Sqlite(row) => row.get::<String>(column, self.columns.as_ref()).ok().flatten(),
            Inner::Postgres(row) => {
                postgres_value::<String>(row, column, self.columns.as_ref()).ok().flatten()
            }
        };
        ["sealed_id", "id", "user_id", "owner_id"].into_iter().find_map(text).unwrap_or_default()
    }

    /// Reads it in parts.
    pub(crate) const fn parts(&self) -> Parts<'_> {
        Parts { row: self, at: 0 }
    }

    /// Whether a column of this part is null or missing.
    fn is_null(&self, index: usize) -> bool {
        let index = index + self.columns.as_ref().map_or(0, |columns| columns.start);
        match &*self.inner {
            Inner::Sqlite(row) => row.is_null(index),
            Inner::Postgres(row) => row.try_get_raw(index).is_ok_and(|value| value.is_null()),
        }
    }

    /// The value of a column that must not be null (or is an `Option`).
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn get<T: Column>(&self, column: &'static str) -> Result<T, Error> {
        T::read(self, column)?.ok_or_else(|| self.corrupt(column, "null"))
    }

    /// The error for an invalid value in `column` of this row.
    pub(crate) fn corrupt(&self, column: &'static str, detail: impl Into<String>) -> Error {
        let id = match &*self.inner {
            Inner::Sqlite(row) => row.get::<String>("id", self.columns.as_ref()).ok().flatten(),
            Inner::Postgres(row) => postgres_value::<String>(row, "id", self.columns.as_ref()).ok().flatten(),
        };
        let id = id.unwrap_or_else(|| "?".to_owned());
        Error::Corrupt { table: self.table, column, id, detail: detail.into() }
    }

    pub(crate) fn raw_json<T: DeserializeOwned>(&self, column: &'static str) -> Result<Option<T>, Error> {
        self.raw_text(column)?.map(|text| self.parse(column, &text)).transpose()
    }

    fn parse<T: DeserializeOwned>(&self, column: &'static str, text: &str) -> Result<T, Error> {
        // The message of the parser may quote the value, so only the position is kept.
        let bad = |error: serde_json::Error| {
            self.corrupt(
                column,
                format!("not the expected document (line {}, column {})", error.line(), error.column()),
            )
        };
        serde_json::from_str(text).map_err(bad)
    }
}

fn postgres_value<T>(
    row: &PgRow,
    column: &'static str,
    columns: Option<&Range<usize>>,
) -> Result<Option<T>, Unreadable>
where
    T: for<'r> Decode<'r, Postgres> + Type<Postgres>,
{
    let Some(columns) = columns else { return Ok(row.try_get(column)?) };
    let names = row.columns().get(columns.clone()).ok_or(Unreadable::NoColumn)?;
    let index = names.iter().position(|known| known.name() == column).ok_or(Unreadable::NoColumn)?;
    Ok(row.try_get(columns.start + index)?)
}

macro_rules! raw {
    ($($name:ident: $kind:ty),*) => {
        impl Row {
            $(pub(super) fn $name(&self, column: &'static str) -> Result<Option<$kind>, Error> {
                let value = match &*self.inner {
                    Inner::Sqlite(row) => row.get::<$kind>(column, self.columns.as_ref()),
                    Inner::Postgres(row) => postgres_value::<$kind>(row, column, self.columns.as_ref()),
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
