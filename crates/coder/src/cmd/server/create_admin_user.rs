//! `coder server create-admin-user`: creates another owner directly in the database. Servers may run meanwhile.

use coder_domain::clock::{Clock as _, SystemClock};
use coder_domain::names;
use coder_domain::secret::Secret;
use coder_server::recovery::{self, NewAdministrator};

use super::database;
use super::flags::Database;
use crate::context::Context;
use crate::env;
use crate::terminal::prompt;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// User name.
    #[arg(long, env = env::USERNAME, value_name = "NAME")]
    username: Option<String>,
    /// E-mail address.
    #[arg(long, env = env::EMAIL, value_name = "ADDRESS")]
    email: Option<String>,
    /// Password. The variable is safer: other users can see the command line.
    #[arg(long, env = env::PASSWORD, hide_env_values = true, value_name = "PASSWORD")]
    password: Option<String>,
}

pub(super) async fn run(ctx: &Context, flags: &Database, args: &Args) -> anyhow::Result<()> {
    let printer = &ctx.printer;
    // The database is opened before any question, so that an error comes first.
    let store = database::open_existing(flags).await?;
    let made = async {
        let username = match &args.username {
            Some(name) => name.clone(),
            None => prompt::text(printer, "User name:", None, "pass --username", |text| {
                names::user(text).map_err(|error| error.to_string())
            })?,
        };
        let email = match &args.email {
            Some(email) => email.clone(),
            None => prompt::text(printer, "E-mail address:", None, "pass --email", |text| {
                if names::email(text) { Ok(()) } else { Err("must be an e-mail address".to_owned()) }
            })?,
        };
        let password = match &args.password {
            Some(password) => Secret::new(password),
            None => prompt::new_password(printer, "Password:", "set CODER_PASSWORD")?,
        };
        let new = NewAdministrator { username, email, password };
        anyhow::Ok(recovery::create_administrator(&store, new, SystemClock.now()).await?)
    };
    let made = made.await;
    store.close().await;
    let user = made?;
    printer.note("The user is made, with the role Owner and as an administrator of every organization.");
    printer.data(&format!("ID        {}", user.id));
    printer.data(&format!("Username  {}", user.username));
    printer.data(&format!("E-mail    {}", user.email));
    Ok(())
}
