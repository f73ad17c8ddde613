//! Authentication of users: passwords, sessions, tokens and CSRF. Daemons are authenticated in `provisioning::session`.

pub mod cookies;
pub mod csrf;
pub mod password;
pub mod session;
pub mod signed_token;
pub mod token;
