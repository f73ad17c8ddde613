//! Every statement with a different text for each engine, with the reason. At most ten are allowed.
//!
//! 1. `TABLE_EXISTS`: each engine has its own catalog.
//! 2. `POSTGRES_MIGRATION_LOCK`: SQLite's write transaction already excludes other servers.
//! 3. `KEEP_…`: a shared lock, which SQLite does not have. Its write transaction already excludes all others.

use super::statement::{forked, statements};

/// Held until the migrations are committed, so that replicas that start at the same time migrate one after the other.
pub(crate) const POSTGRES_MIGRATION_LOCK: &str = "select pg_advisory_xact_lock(4781296550)";

statements! { "schema_migrations";
    /// Whether the current schema has a table of this name.
    TABLE_EXISTS = forked(
        "select exists (select 1 from sqlite_master where type = 'table' and name = $1) as found",
        "select exists (select 1 from pg_catalog.pg_tables
            where tablename = $1 and schemaname = current_schema()) as found",
    );
    /// Whether the row exists. While it is kept, it can neither be deleted nor changed by other transactions. The text
    /// does not begin with `select`, so that it starts the transaction.
    KEEP_ORGANIZATION = forked(
        "select exists (select 1 from organizations where id = $1 and not deleted) as found",
        "with kept as (select id from organizations where id = $1 and not deleted for share)
            select exists (select 1 from kept) as found",
    );
    KEEP_USER = forked(
        "select exists (select 1 from users where id = $1 and not deleted) as found",
        "with kept as (select id from users where id = $1 and not deleted for share)
            select exists (select 1 from kept) as found",
    );
    KEEP_TEMPLATE = forked(
        "select exists (select 1 from templates where id = $1 and not deleted) as found",
        "with kept as (select id from templates where id = $1 and not deleted for share)
            select exists (select 1 from kept) as found",
    );
}
