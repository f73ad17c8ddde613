//! Who may do what: constant tables of roles and one pure decision.

mod action;
mod assign;
mod decide;
mod resource;
mod role;
pub mod scope;

pub use action::Action;
pub use assign::{
    may_assign_organization, may_assign_organization_name, may_assign_site, may_assign_site_name,
    may_take_over,
};
pub use decide::{Object, Subject, Visibility, decide, visibility};
pub use resource::Resource;
pub use role::{OrgRole, SiteRole};
pub use scope::Scopes;
