//! The terminal: text, tables, trees, questions and progress.

pub(crate) mod menu;
pub(crate) mod output;
pub(crate) mod prompt;
pub(crate) mod raw;
pub(crate) mod resource_tree;
pub(crate) mod spinner;
pub(crate) mod stdin;
pub(crate) mod table;
