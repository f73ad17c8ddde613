//! Provisioner daemons: the endpoint they join at, and the list of them.

mod drain;
pub mod filters;
mod list;
mod serve;
pub mod skew;
pub mod view;

pub use drain::{drain, undrain};
pub use list::list;
pub use serve::serve;
