//! Who may do what: constant tables of roles and one pure decision.

mod action;
mod assign;
mod decide;
mod resource;
mod role;
pub mod scope;

pub use action::Action;
pub use assign::{may_assign_organization, may_assign_site};
pub use decide::{Object, Subject, Visibility, decide, visibility};
pub use resource::Resource;
pub use role::{OrgRole, SiteRole};
pub use scope::Scopes;
