//! The invariants of the data that no constraint of the schema can hold (`coder server check`).

use crate::engine::statements;

statements! { "check"; }
