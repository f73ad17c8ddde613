//! Which Terraform or OpenTofu runs: the available programs, their versions, and the choice for a template.

pub(crate) mod choose;
pub(crate) mod constraint;
mod finder;
pub(crate) mod program;
pub(crate) mod required;
pub(crate) mod version;

pub(crate) use self::finder::Finder;
#[cfg(test)]
pub(crate) use self::program::BinaryOrigin;
pub use self::program::{Binary, BinaryError, Product, TerraformSource};
pub use self::version::Version;
