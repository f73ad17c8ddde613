//! Which Terraform or OpenTofu runs: the programs on offer, their versions, and the one a template gets.

pub(crate) mod choose;
pub(crate) mod constraint;
mod finder;
pub(crate) mod program;
pub(crate) mod required;
pub(crate) mod version;

pub(crate) use self::finder::Finder;
pub use self::program::{Binary, BinaryError, Product, TerraformSource};
#[cfg(test)]
pub(crate) use self::program::BinaryOrigin;
pub use self::version::Version;
