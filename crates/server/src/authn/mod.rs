//! Proving who somebody is: passwords, sessions and tokens. Daemon credentials are checked in `provisioning`.

pub mod cookies;
pub mod csrf;
pub mod password;
pub mod session;
pub mod token;
