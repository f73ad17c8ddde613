//! Users, organizations and their credentials. The modules are exported at the root of the crate.

pub mod external_auth_links;
pub mod keys;
pub mod organizations;
pub mod quiet_hours;
pub mod sessions;
pub mod tokens;
pub mod users;
