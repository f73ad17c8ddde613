//! Turns [`Value`]s into bound parameters of either driver.

use rusqlite::types::{ToSqlOutput, ValueRef};
use sqlx::SqlSafeStr;
use sqlx::postgres::{PgArguments, Postgres};
use sqlx::query::Query;

use super::value::{Value, clean};

pub(super) fn query(text: impl SqlSafeStr, values: Vec<Value>) -> Query<'static, Postgres, PgArguments> {
    let mut query = sqlx::query::<Postgres>(text);
    for value in values {
        query = match value {
            Value::NullBool => query.bind(None::<bool>),
            Value::NullInt => query.bind(None::<i64>),
            Value::NullText => query.bind(None::<String>),
            Value::NullBytes => query.bind(None::<Vec<u8>>),
            Value::Bool(flag) => query.bind(flag),
            Value::Int(number) => query.bind(number),
            Value::Text(text) => query.bind(clean(text)),
            Value::Bytes(bytes) => query.bind(bytes),
        };
    }
    query
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::NullBool | Self::NullInt | Self::NullText | Self::NullBytes => {
                ToSqlOutput::Borrowed(ValueRef::Null)
            }
            Self::Bool(flag) => ToSqlOutput::Borrowed(ValueRef::Integer(i64::from(*flag))),
            Self::Int(number) => ToSqlOutput::Borrowed(ValueRef::Integer(*number)),
            Self::Text(text) if text.as_bytes().contains(&0) => ToSqlOutput::from(clean(text.clone())),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}
