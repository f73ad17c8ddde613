//! One file per command: its arguments, then `run`.

pub(crate) mod completion;
pub(crate) mod create;
pub(crate) mod delete;
#[cfg(feature = "server")]
pub(crate) mod exp;
pub(crate) mod list;
pub(crate) mod login;
pub(crate) mod logout;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod organizations;
#[cfg(feature = "server")]
pub(crate) mod provider;
pub(crate) mod provisioner;
#[cfg(feature = "server")]
pub(crate) mod quickstart;
#[cfg(feature = "server")]
pub(crate) mod reset_password;
pub(crate) mod restart;
#[cfg(feature = "server")]
pub(crate) mod server;
pub(crate) mod show;
pub(crate) mod start;
pub(crate) mod state;
pub(crate) mod stop;
pub(crate) mod templates;
pub(crate) mod tokens;
pub(crate) mod users;
pub(crate) mod version;
pub(crate) mod whoami;

mod build;
