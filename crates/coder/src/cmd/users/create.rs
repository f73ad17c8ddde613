//! Creates a user: `coder users create`.

use coder_api::users::{CreateUserRequest, LoginType};
use coder_domain::key::random_text;
use coder_domain::names;
use coder_domain::secret::Secret;

use crate::context::Context;
use crate::terminal::output::Style;
use crate::terminal::prompt;
use crate::{args, remote};

/// The length of a generated password.
const PASSWORD_CHARACTERS: usize = 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// User name.
    #[arg(short, long, value_name = "NAME")]
    username: Option<String>,
    /// E-mail address.
    #[arg(short, long, value_name = "ADDRESS")]
    email: Option<String>,
    /// Full name.
    #[arg(short = 'n', long, value_name = "NAME")]
    full_name: Option<String>,
    /// Password. Leave it out on shared machines: other users can see the command line.
    #[arg(short, long, value_name = "PASSWORD")]
    password: Option<String>,
    /// How the account logs in: `password`, or `none` for accounts that only use tokens.
    #[arg(long, default_value = "password", hide_possible_values = true, value_name = "TYPE")]
    login_type: LoginWord,
    /// Older form of --login-type none.
    #[arg(long, hide = true)]
    disable_login: bool,
    #[command(flatten)]
    organization: args::Organization,
}

/// `--login-type`
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LoginWord {
    Password,
    None,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let login_type = match args.login_type {
        LoginWord::Password if !args.disable_login => LoginType::Password,
        _ => LoginType::None,
    };
    let username = match args.username {
        Some(name) => name,
        None => prompt::text(&ctx.printer, "User name:", None, "pass --username", |text| {
            names::user(text).map_err(|error| error.to_string())
        })?,
    };
    let email = match args.email {
        Some(email) => email,
        None => prompt::text(&ctx.printer, "E-mail address:", None, "pass --email", |text| {
            if names::email(text) { Ok(()) } else { Err("must be an e-mail address".to_owned()) }
        })?,
    };
    let has_password = login_type == LoginType::Password;
    let password = match (has_password, args.password) {
        (true, Some(given)) => Secret::new(given),
        (true, None) => new_password(),
        (false, None) => Secret::new(""),
        (false, Some(_)) => anyhow::bail!("--password needs the login type \"password\""),
    };
    let request = CreateUserRequest {
        email,
        username,
        name: args.full_name.unwrap_or_default(),
        password: password.clone(),
        login_type,
        user_status: None,
        organization_ids: vec![organization.id],
        organization_id: None,
        disable_login: false,
    };
    let user = client.create_user(&request).await?;
    let bold = |text: &str| ctx.printer.paint(Style::Bold, text);
    ctx.printer.note(&format!("The account {} is made. Its owner needs to know:\n", bold(&user.username)));
    let url = ctx.url()?;
    let url = url.as_str().trim_end_matches('/');
    if has_password {
        ctx.printer.data(&format!("Log in with  coder login {url}"));
        ctx.printer.data(&format!("E-mail       {}", user.email));
        ctx.printer.data(&format!("Password     {}", password.expose()));
    } else {
        ctx.printer.data(&format!("It only uses tokens: coder tokens create --user {}", user.username));
    }
    Ok(())
}

fn new_password() -> Secret {
    Secret::new(random_text(PASSWORD_CHARACTERS, |bytes| {
        getrandom::fill(bytes).expect("the kernel's random source answers on every system we run on");
    }))
}
