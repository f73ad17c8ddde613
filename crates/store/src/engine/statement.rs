//! A statement is a constant with one text for both engines, or one text per engine (see `forks.rs`).

/// The purpose of a statement. Statements are counted by purpose, to prove that an idle server is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A request or a task.
    Work,
    /// A daemon's heartbeat, and other looks at a regular interval.
    Heartbeat,
    /// A search for a job.
    Claim,
}

/// One SQL text with a name, in the portable dialect of `docs/store.md`.
#[derive(Clone, Copy, Debug)]
pub struct Statement {
    /// `table.NAME`, for logs and errors.
    pub(crate) name: &'static str,
    /// The table that errors name.
    pub(crate) table: &'static str,
    pub(crate) sqlite: &'static str,
    pub(crate) postgres: &'static str,
    pub(crate) purpose: Purpose,
}

impl Statement {
    pub(crate) const fn new(table: &'static str, name: &'static str, text: StatementText) -> Self {
        Self { name, table, sqlite: text.sqlite, postgres: text.postgres, purpose: text.purpose }
    }

    /// The statement's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The text for SQLite.
    #[must_use]
    pub const fn sqlite(&self) -> &'static str {
        self.sqlite
    }

    /// The text for Postgres.
    #[must_use]
    pub const fn postgres(&self) -> &'static str {
        self.postgres
    }

    /// Whether it certainly changes nothing, so that Postgres needs no transaction for it.
    pub(crate) fn only_reads(&self) -> bool {
        self.postgres.starts_with("select")
    }

    /// Whether the two engines get different texts.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.sqlite != self.postgres
    }
}

/// The text of a statement in its definition.
pub(crate) struct StatementText {
    sqlite: &'static str,
    postgres: &'static str,
    purpose: Purpose,
}

/// The same text for both engines.
pub(crate) const fn sql(text: &'static str) -> StatementText {
    StatementText { sqlite: text, postgres: text, purpose: Purpose::Work }
}

/// One text per engine. Only `forks.rs` may use it.
pub(crate) const fn forked(sqlite: &'static str, postgres: &'static str) -> StatementText {
    StatementText { sqlite, postgres, purpose: Purpose::Work }
}

impl StatementText {
    pub(crate) const fn purpose(mut self, purpose: Purpose) -> Self {
        self.purpose = purpose;
        self
    }
}

/// Defines constants of type [`Statement`] and `STATEMENTS`, the list of them.
macro_rules! statements {
    ($table:literal; $($(#[$doc:meta])* $name:ident = $text:expr;)*) => {
        $($(#[$doc])* pub(crate) const $name: $crate::engine::Statement = $crate::engine::Statement::new(
            $table, concat!($table, ".", stringify!($name)), $text);)*

        /// Every statement of this file.
        pub(crate) const STATEMENTS: &[$crate::engine::Statement] = &[$($name),*];
    };
}
pub(crate) use statements;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_select_certainly_changes_nothing() {
        for (text, reads) in [
            ("select id from users", true),
            ("with kept as (select id from users for share) select id from kept", false),
            ("update users set name = $1", false),
            ("insert into users (id) values ($1)", false),
            ("delete from users", false),
        ] {
            assert_eq!(Statement::new("users", "users.X", sql(text)).only_reads(), reads, "{text}");
        }
    }
}
