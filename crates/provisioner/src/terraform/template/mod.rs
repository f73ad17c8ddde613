//! The source of a template: what it declares and contains.

pub(crate) mod bundle;
pub(crate) mod features;
pub(crate) mod literal;
pub(crate) mod modules;
pub(crate) mod parse;
