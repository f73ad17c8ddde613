//! Who may do what: constant tables of roles and one pure decision.

mod action;
mod decide;
mod resource;
mod role;

pub use action::Action;
pub use decide::{Object, Subject, Visibility, decide, visibility};
pub use resource::Resource;
pub use role::{OrgRole, SiteRole};
