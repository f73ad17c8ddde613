//! `coder login`: the first user of a fresh server, or a session on one that has users (http-api 2.3).

use anyhow::{Context as _, bail};
use coder_api::client::Client;
use coder_api::paths;
use coder_api::users::CreateFirstUserRequest;
use coder_domain::names;
use coder_domain::secret::Secret;

use crate::context::{Context, server_url};
use crate::env;
use crate::output::Look;
use crate::{prompt, remote};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// URL of the server; default the one used before.
    #[arg(value_name = "URL")]
    server: Option<String>,
    /// User name of the first user.
    #[arg(long, env = env::FIRST_USER_USERNAME, value_name = "NAME")]
    first_user_username: Option<String>,
    /// E-mail address of the first user.
    #[arg(long, env = env::FIRST_USER_EMAIL, value_name = "ADDRESS")]
    first_user_email: Option<String>,
    /// Full name of the first user.
    #[arg(long, env = env::FIRST_USER_FULL_NAME, value_name = "NAME")]
    first_user_full_name: Option<String>,
    /// Password of the first user. The variable is safer: other users can see the command line.
    #[arg(long, env = env::FIRST_USER_PASSWORD, hide_env_values = true, value_name = "PASSWORD")]
    first_user_password: Option<String>,
    /// Accepted for compatibility: there are no trial licenses, so nothing is asked.
    #[arg(long, env = env::FIRST_USER_TRIAL)]
    first_user_trial: bool,
    /// Save the given token itself instead of a new session made with it.
    #[arg(long)]
    use_token_as_session: bool,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let url = match &args.server {
        Some(text) => server_url(text)?,
        None => ctx.url().context("name the server: coder login <url>")?,
    };
    let client = remote::open(ctx, &url, None)?;
    let has_users = client.has_first_user().await?;
    let token =
        if has_users { existing(ctx, &args, &client).await? } else { first(ctx, &args, &client).await? };
    let me = client.with_token(Some(token.clone())).user(paths::ME).await?;
    ctx.directory.save(url.as_str().trim_end_matches('/'), &token)?;
    let bold = |text: &str| ctx.printer.paint(Look::Bold, text);
    ctx.printer.note(&format!("You are logged in as {}.", bold(&me.username)));
    if !has_users {
        ctx.printer.note(&format!(
            "Next, make a template: {}",
            ctx.printer.paint(Look::Code, "coder templates init")
        ));
    }
    Ok(())
}

async fn first(ctx: &Context, args: &Args, client: &Client) -> anyhow::Result<Secret> {
    let ctx_printer = &ctx.printer;
    let complete = args.first_user_username.is_some()
        && args.first_user_email.is_some()
        && args.first_user_password.is_some();
    if !complete {
        ctx_printer.note("This server has no users yet. The first one becomes its owner.");
    }
    let checked = |given: &Option<String>,
                   question: &str,
                   default: Option<&str>,
                   flag: &str,
                   check: fn(&str) -> Result<(), String>| {
        if let Some(text) = given {
            return check(text).map(|()| text.clone()).map_err(|reason| anyhow::anyhow!("--{flag} {reason}"));
        }
        prompt::text(ctx_printer, question, default, &format!("pass --{flag}"), check)
    };
    let username = checked(&args.first_user_username, "User name:", None, "first-user-username", |text| {
        names::name(text).map_err(|error| error.to_string())
    })?;
    let name = match (&args.first_user_full_name, complete) {
        (Some(name), _) => name.clone(),
        (None, true) => String::new(),
        (None, false) => {
            prompt::text(ctx_printer, "Full name:", Some(""), "pass --first-user-full-name", |text| {
                names::real_name(text).map_err(|error| error.to_string())
            })?
        }
    };
    let email = checked(&args.first_user_email, "E-mail address:", None, "first-user-email", |text| {
        if names::email(text) { Ok(()) } else { Err("must be an e-mail address".to_owned()) }
    })?;
    let password = match &args.first_user_password {
        Some(password) => Secret::new(password),
        None => new_password(ctx)?,
    };
    let request = CreateFirstUserRequest {
        email: email.clone(),
        username,
        name,
        password: password.clone(),
        trial: args.first_user_trial,
    };
    client.create_first_user(&request).await?;
    Ok(client.login(&email, password).await?)
}

fn new_password(ctx: &Context) -> anyhow::Result<Secret> {
    const INSTEAD: &str = "set CODER_FIRST_USER_PASSWORD";
    loop {
        let password = prompt::hidden(&ctx.printer, "Password:", INSTEAD)?;
        if !prompt::is_interactive() || prompt::hidden(&ctx.printer, "The same again:", INSTEAD)? == password
        {
            return Ok(password);
        }
        ctx.printer.note("The passwords differ.");
    }
}

async fn existing(ctx: &Context, args: &Args, client: &Client) -> anyhow::Result<Secret> {
    if let Some(token) = &ctx.global.token {
        let token = Secret::new(token.trim());
        if args.use_token_as_session {
            return Ok(token);
        }
        return Ok(client.with_token(Some(token)).create_session_key().await?);
    }
    let page = client.base().join(paths::CLI_AUTH).context("the server's URL cannot carry a path")?;
    ctx.printer.note(&format!("Open this page in your browser and copy the token it shows:\n\n    {page}\n"));
    if prompt::is_interactive() {
        open_browser(page.as_str());
        ctx.printer.note("Or press Enter to log in with e-mail address and password here.");
    }
    let token = prompt::hidden(&ctx.printer, "Token:", "pass --token, or set CODER_SESSION_TOKEN")?;
    if token.expose().trim().is_empty() {
        if !prompt::is_interactive() {
            bail!("no token was given: pass --token, or set CODER_SESSION_TOKEN");
        }
        let email = prompt::text(&ctx.printer, "E-mail address:", None, "pass --token", |text| {
            if names::email(text) { Ok(()) } else { Err("must be an e-mail address".to_owned()) }
        })?;
        let password = prompt::hidden(&ctx.printer, "Password:", "pass --token")?;
        return Ok(client.login(&email, password).await?);
    }
    let token = Secret::new(token.expose().trim());
    client.with_token(Some(token.clone())).user(paths::ME).await.context("that token is not valid")?;
    Ok(token)
}

/// Tries to show a page; where there is no browser the printed address remains.
fn open_browser(page: &str) {
    use std::process::{Command, Stdio};
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(opener);
    command.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    drop(command.spawn());
}
