//! Turns [`Value`]s into bound parameters; the same text serves both drivers.

use sqlx::postgres::{PgArguments, Postgres};
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments};

use super::value::{Value, clean};

macro_rules! bind {
    ($name:ident, $db:ty, $arguments:ty) => {
        pub(super) fn $name(text: &'static str, values: Vec<Value>) -> Query<'static, $db, $arguments> {
            let mut query = sqlx::query::<$db>(text);
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
    };
}

bind!(sqlite, Sqlite, SqliteArguments);
bind!(postgres, Postgres, PgArguments);
