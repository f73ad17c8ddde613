//! The HTML pages: home, sign-in, a session token for the command line, external authentication, and the web terminal.

mod assets;
mod cli_auth;
mod error;
mod external_auth;
mod form;
mod home;
mod local;
mod login;
mod render;
mod terminal;
mod visitor;

pub use assets::asset;
pub use cli_auth::{make as make_cli_token, show as cli_auth};
pub use error::{as_page, wants_page};
pub use external_auth::{
    callback as external_auth_callback, show as external_auth, submit as submit_external_auth,
};
pub use home::home;
pub use login::{show as login, submit as submit_login};
pub use terminal::terminal;
