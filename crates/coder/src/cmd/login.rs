//! `coder login`: creates the first user of a new server, or a session on a server that has users (http-api 2.3).

use anyhow::{Context as _, bail};
use coder_api::client::Client;
use coder_api::paths;
use coder_api::users::CreateFirstUserRequest;
use coder_domain::secret::Secret;
use coder_domain::{names, password};

use crate::context::{Context, server_url};
use crate::terminal::output::{Style, strip_control};
use crate::terminal::prompt;
use crate::{browser, env, remote};

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
        None => {
            let url =
                ctx.known_url()?.context("no server was used before: name one with coder login <url>")?;
            ctx.printer.note(&format!("Logging in to {}", url.as_str().trim_end_matches('/')));
            url
        }
    };
    let client = remote::open(ctx, &url, None)?;
    let has_users = client.has_first_user().await?;
    let token =
        if has_users { existing(ctx, &args, &client).await? } else { first(ctx, &args, &client).await? };
    let me = client.with_token(Some(token.clone())).user(paths::ME).await?;
    ctx.directory.save(url.as_str().trim_end_matches('/'), &token)?;
    let bold = |text: &str| ctx.printer.paint(Style::Bold, text);
    ctx.printer.note(&format!("You are logged in as {}.", bold(&me.username)));
    if env::get(env::SESSION_TOKEN).is_some() {
        ctx.printer.warn(
            "CODER_SESSION_TOKEN is set and is stronger than this session: unset it, or other commands use its token",
        );
    }
    if !has_users {
        ctx.printer.note(&format!(
            "Next, make a template: {}",
            ctx.printer.paint(Style::Code, "coder templates init")
        ));
    }
    Ok(())
}

fn check_name(text: &str) -> Result<(), String> {
    names::name(text).map_err(|error| error.to_string())
}

fn check_email(text: &str) -> Result<(), String> {
    if names::email(text) { Ok(()) } else { Err("must be an e-mail address".to_owned()) }
}

async fn first(ctx: &Context, args: &Args, client: &Client) -> anyhow::Result<Secret> {
    let printer = &ctx.printer;
    let complete = args.first_user_username.is_some()
        && args.first_user_email.is_some()
        && args.first_user_password.is_some();
    if !complete {
        printer.note("This server has no users yet. The first one becomes its owner.");
    }
    if let Some(password) = &args.first_user_password {
        // Checked before any question, so that no answer is lost.
        password::validate(password).map_err(|error| anyhow::anyhow!("--first-user-password: {error}"))?;
    }
    let checked = |given: &Option<String>,
                   question: &str,
                   flag: &str,
                   check: fn(&str) -> Result<(), String>| {
        if let Some(text) = given {
            return check(text).map(|()| text.clone()).map_err(|reason| anyhow::anyhow!("--{flag} {reason}"));
        }
        prompt::text(printer, question, None, &format!("pass --{flag}"), check)
    };
    let username = checked(&args.first_user_username, "User name:", "first-user-username", check_name)?;
    let name = match (&args.first_user_full_name, complete) {
        (Some(name), _) => name.clone(),
        (None, true) => String::new(),
        (None, false) => {
            prompt::text(printer, "Full name:", Some(""), "pass --first-user-full-name", |text| {
                names::real_name(text).map_err(|error| error.to_string())
            })?
        }
    };
    let email = checked(&args.first_user_email, "E-mail address:", "first-user-email", check_email)?;
    let mut request = CreateFirstUserRequest {
        email: email.clone(),
        username,
        name,
        password: Secret::new(""),
        trial: args.first_user_trial,
    };
    loop {
        let password = match &args.first_user_password {
            Some(password) => Secret::new(password),
            None => prompt::new_password(printer, "Password:", "set CODER_FIRST_USER_PASSWORD")?,
        };
        request.password = password.clone();
        match client.create_first_user(&request).await {
            Ok(_) => return Ok(client.login(&email, password).await?),
            // Its rules may be stricter than ours.
            Err(error) if args.first_user_password.is_none() && prompt::is_interactive() => {
                let Some(reason) = about_password(&error) else { return Err(error.into()) };
                printer.note(&printer.paint(Style::Bad, &reason));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Why a server refuses a password.
fn about_password(error: &coder_api::client::Error) -> Option<String> {
    let field = error.body()?.validations.iter().find(|validation| validation.field == "password")?;
    Some(strip_control(&field.detail).into_owned())
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
        // Where there is no browser the printed address remains.
        if !ctx.global.no_open {
            browser::try_open(page.as_str());
        }
        ctx.printer.note("Or press Enter to log in with e-mail address and password here.");
    }
    let token = prompt::hidden(&ctx.printer, "Token:", "pass --token, or set CODER_SESSION_TOKEN")?;
    if token.expose().trim().is_empty() {
        if !prompt::is_interactive() {
            bail!("no token was given: pass --token, or set CODER_SESSION_TOKEN");
        }
        return with_password(ctx, client).await;
    }
    let token = Secret::new(token.expose().trim());
    match client.with_token(Some(token.clone())).user(paths::ME).await {
        Err(error) if is_unauthorized(&error) => {
            bail!("that token is not valid: get one from {page}, and copy it whole")
        }
        checked => checked.map(|_| token).map_err(Into::into),
    }
}

/// Asks for e-mail address and password until the server accepts them.
async fn with_password(ctx: &Context, client: &Client) -> anyhow::Result<Secret> {
    let mut email = None;
    loop {
        let answer =
            prompt::text(&ctx.printer, "E-mail address:", email.as_deref(), "pass --token", check_email)?;
        let password = prompt::hidden(&ctx.printer, "Password:", "pass --token")?;
        match client.login(&answer, password).await {
            Err(error) if is_unauthorized(&error) => {
                let reason = error.body().map_or_else(|| error.to_string(), |body| body.message.clone());
                let reason = strip_control(reason.trim_end_matches('.')).into_owned();
                ctx.printer.note(&ctx.printer.paint(Style::Bad, &reason));
                email = Some(answer);
            }
            result => return Ok(result?),
        }
    }
}

fn is_unauthorized(error: &coder_api::client::Error) -> bool {
    error.status().is_some_and(|status| status == 401)
}
