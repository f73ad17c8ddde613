//! Provisioner jobs as administrators see them. Canceling goes through versions, dry runs and builds.

mod explain;
mod get;
mod list;
mod view;

pub use explain::explain;
pub use get::get;
pub use list::list;
