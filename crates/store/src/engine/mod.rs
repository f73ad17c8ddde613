//! The only module that uses the drivers. Other modules use [`Tx`], [`Statement`], [`Value`] and [`Row`].

mod access;
mod bind;
mod counters;
mod database;
mod failure;
pub(crate) mod forks;
mod merge;
mod pool;
pub(crate) mod postgres;
mod row;
mod sqlite;
mod statement;
mod tx;
mod value;

pub(crate) use access::Access;
pub(crate) use counters::Counters;
pub use counters::StatementCounts;
pub(crate) use database::Database;
pub(crate) use failure::Failure;
pub(crate) use row::{Record, Row};
pub use statement::{Purpose, Statement};
pub(crate) use statement::{sql, statements};
pub use tx::Tx;
pub use value::Document;
pub(crate) use value::{
    Column, Value, batch, clean, column_name, json_column, list, optional_list, record, sealed_json_column,
    to_json, values,
};
