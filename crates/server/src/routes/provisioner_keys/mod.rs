//! Provisioner keys: the scoped credentials of external daemons.

mod create;
mod daemons;
mod delete;
mod get;
mod list;
mod rotate;
mod update;
mod view;

pub use create::create;
pub use daemons::daemons;
pub use delete::delete;
pub use get::get;
pub use list::list;
pub use rotate::rotate;
pub use update::update;
pub use view::has_reserved_id;
