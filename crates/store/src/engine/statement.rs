//! A statement is a constant: one text for both engines, or two when it is forked (see `forks.rs`).

/// What a statement is run for, so that idle servers can be proven idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Somebody asked for something.
    Work,
    /// A daemon's sign of life.
    Heartbeat,
    /// Looking for a job.
    Claim,
}

/// One SQL text with a name, in the portable dialect of `docs/store.md`.
#[derive(Clone, Copy, Debug)]
pub struct Statement {
    /// `table.NAME`, for traces and errors.
    pub(crate) name: &'static str,
    /// The table its rows are reported under.
    pub(crate) table: &'static str,
    pub(crate) sqlite: &'static str,
    pub(crate) postgres: &'static str,
    pub(crate) purpose: Purpose,
}

impl Statement {
    pub(crate) const fn new(table: &'static str, name: &'static str, text: Text) -> Self {
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

    /// Whether it surely changes nothing; Postgres needs no transaction for it.
    pub(crate) fn only_reads(&self) -> bool {
        self.postgres.starts_with("select")
    }

    /// Whether the two engines get different texts.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.sqlite != self.postgres
    }
}

/// The right-hand side of a statement's definition.
pub(crate) struct Text {
    sqlite: &'static str,
    postgres: &'static str,
    purpose: Purpose,
}

/// The same text for both engines.
pub(crate) const fn sql(text: &'static str) -> Text {
    Text { sqlite: text, postgres: text, purpose: Purpose::Work }
}

/// A text per engine; only `forks.rs` may use it.
pub(crate) const fn forked(sqlite: &'static str, postgres: &'static str) -> Text {
    Text { sqlite, postgres, purpose: Purpose::Work }
}

impl Text {
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
