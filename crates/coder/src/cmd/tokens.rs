//! Creates, lists, shows and deletes API tokens: `coder tokens create|list|view|remove`.

use std::time::Duration;

use coder_api::paths;
use coder_api::tokens::{ApiKeyWithOwner, CreateTokenRequest};

use crate::context::Context;
use crate::terminal::table::{self, Column, Format, Listed};
use crate::{duration, env, remote};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Create a token and print it, which is shown only once.
    Create(CreateArgs),
    /// List tokens.
    #[command(alias = "ls")]
    List(ListArgs),
    /// Show one token.
    #[command(alias = "show")]
    View(ViewArgs),
    /// Delete a token.
    #[command(alias = "delete", alias = "rm")]
    Remove(RemoveArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// How long the token is valid, for example 720h; default the longest allowed.
    #[arg(long, env = env::TOKEN_LIFETIME, value_parser = duration::parse, value_name = "DURATION")]
    lifetime: Option<Duration>,
    /// Name of the token.
    #[arg(short, long, env = env::TOKEN_NAME, default_value = "")]
    name: String,
    /// What the token may do; may be repeated. Default: everything that you may.
    #[arg(long)]
    scope: Vec<String>,
    /// The user of the token, by name or id; other users for owners only.
    #[arg(short, long, env = env::TOKEN_USER, default_value = paths::ME)]
    user: String,
    /// Object that the token is limited to, as type:id; may be repeated.
    #[arg(long = "allow", value_name = "TYPE:ID")]
    allow: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Tokens of all users; owners only.
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    table: table::TableOptions<ApiKeyWithOwner>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ViewArgs {
    /// Name or id of the token.
    #[arg(value_name = "TOKEN")]
    wanted: String,
    #[command(flatten)]
    table: table::TableOptions<ApiKeyWithOwner>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    /// Name or id of the token.
    #[arg(value_name = "TOKEN")]
    wanted: String,
}

impl Listed for ApiKeyWithOwner {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("id", true, |row| row.key.id.clone()),
        Column::text("name", true, |row| row.key.token_name.clone()),
        Column::text("scopes", true, |row| row.key.scopes.join(",")),
        Column::optional(Column::text("allow list", true, |row| row.key.allow_list.join(","))),
        Column::time("last used", true, |row| row.key.last_used, "never"),
        Column::time("expires at", true, |row| Some(row.key.expires_at), ""),
        Column::optional(Column::time("created at", true, |row| Some(row.key.created_at), "")),
        Column::text("owner", false, |row| row.username.clone()),
    ];
}

pub(crate) async fn run(ctx: &Context, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Create(args) => create(ctx, args).await,
        Command::List(args) => list(ctx, args).await,
        Command::View(args) => {
            let client = remote::connect(ctx)?;
            let key = client.token_by_name(&args.wanted).await?;
            let row = ApiKeyWithOwner { key, username: String::new() };
            if args.table.format == Format::Json {
                ctx.printer.json(&[row.key])?;
                return Ok(());
            }
            let options = with_owner(args.table, true);
            table::print(&ctx.printer, &options, &[row], "")
        }
        Command::Remove(args) => {
            let client = remote::connect(ctx)?;
            let key = client.token_by_name(&args.wanted).await?;
            client.delete_key(&key.id).await?;
            ctx.printer.note(&format!("Token {:?} is deleted.", args.wanted));
            Ok(())
        }
    }
}

async fn create(ctx: &Context, args: CreateArgs) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let limits = client.token_config(&args.user).await?;
    let longest = Duration::from_nanos(u64::try_from(limits.max_token_lifetime).unwrap_or_default());
    let lifetime = args.lifetime.unwrap_or(longest);
    anyhow::ensure!(
        longest.is_zero() || lifetime <= longest,
        "the lifetime must be at most {}",
        duration::format(longest)
    );
    let mut request = CreateTokenRequest::new(args.name, lifetime);
    request.scopes = args.scope;
    request.allow_list = args.allow;
    let token = client.create_token_for(&args.user, &request).await?;
    ctx.printer.data(token.expose());
    Ok(())
}

/// The default columns and the owner, unless columns were chosen.
fn with_owner(
    mut options: table::TableOptions<ApiKeyWithOwner>,
    is_shown: bool,
) -> table::TableOptions<ApiKeyWithOwner> {
    if is_shown && options.columns.is_empty() {
        options.columns = ApiKeyWithOwner::COLUMNS.iter().map(|column| column.name.to_owned()).collect();
    }
    options
}

async fn list(ctx: &Context, args: ListArgs) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let mut keys = client.tokens(args.all).await?;
    let options = with_owner(args.table, args.all);
    if options.format != Format::Json {
        keys.sort_by(|one, other| one.key.id.cmp(&other.key.id));
    }
    let empty = "There are no tokens. Make one with: coder tokens create";
    table::print(&ctx.printer, &options, &keys, empty)
}
