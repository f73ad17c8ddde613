//! Manages provisioner keys: `coder provisioner keys create|list|update|rotate|delete`.

use std::collections::BTreeMap;
use std::time::Duration;

use coder_api::keys::{
    CreateProvisionerKeyRequest, ProvisionerKey, RotateProvisionerKeyRequest, UpdateProvisionerKeyRequest,
};
use coder_domain::tags;

use crate::context::Context;
use crate::terminal::output::Style;
use crate::terminal::prompt;
use crate::terminal::table::{self, Column, Listed};
use crate::{args, duration, env, remote};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Create a key and print its token, which is shown only once.
    Create(CreateArgs),
    /// List keys.
    #[command(alias = "ls")]
    List(args::List<ProvisionerKey>),
    /// Change until when and from where a key may be used, also for connected daemons.
    Update(UpdateArgs),
    /// Give a key a new token and print it, only once; the old one stays valid for a while.
    Rotate(RotateArgs),
    /// Delete a key.
    #[command(alias = "rm")]
    Delete(DeleteArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// Name of the key.
    name: String,
    /// Tag of the daemons that join with the key, as key=value; may be repeated.
    #[arg(short, long = "tag", env = env::PROVISIONERD_TAGS, value_delimiter = ',', value_name = "KEY=VALUE")]
    tags: Vec<String>,
    /// Time after which the key is no longer valid; default never.
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    expires_in: Option<Duration>,
    /// Network from which the key may be used, such as 10.0.0.0/8; may be repeated; default from everywhere.
    #[arg(long = "allow-address", value_delimiter = ',', value_name = "CIDR")]
    allow_addresses: Vec<String>,
    #[command(flatten)]
    organization: args::Organization,
}

/// Arguments of `update`. Settings that are not given stay the same.
#[derive(Debug, clap::Args)]
#[command(
    group(clap::ArgGroup::new("change").required(true).multiple(true)),
    override_usage = "coder provisioner keys update <NAME> [OPTIONS]"
)]
pub(crate) struct UpdateArgs {
    /// Name of the key.
    name: String,
    /// Time from now after which the key is no longer valid.
    #[arg(long, value_parser = duration::parse, value_name = "DURATION", group = "change")]
    expires_in: Option<Duration>,
    /// The key does not expire any more.
    #[arg(long, group = "change", conflicts_with = "expires_in")]
    never_expires: bool,
    /// Network from which the key may be used, such as 10.0.0.0/8; replaces the present ones; may be repeated.
    #[arg(long = "allow-address", value_delimiter = ',', value_name = "CIDR", group = "change")]
    allow_addresses: Vec<String>,
    /// The key may be used from everywhere.
    #[arg(long, group = "change", conflicts_with = "allow_addresses")]
    allow_everywhere: bool,
    #[command(flatten)]
    organization: args::Organization,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RotateArgs {
    /// Name of the key.
    name: String,
    /// How long the old token stays valid, so that daemons can be given the new one.
    #[arg(long, value_parser = duration::parse, default_value = "1h", value_name = "DURATION")]
    overlap: Duration,
    #[command(flatten)]
    organization: args::Organization,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    /// Name of the key.
    name: String,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    organization: args::Organization,
}

impl Listed for ProvisionerKey {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("id", false, |key| key.id.to_string()),
        Column::optional(Column::time("created at", true, |key| Some(key.created_at), "")),
        Column::text("name", true, |key| key.name.clone()),
        Column::tags(|key| &key.tags),
        Column::time("expires at", true, |key| key.expires_at, "never"),
        Column::optional(Column::time("last used at", true, |key| key.last_used_at, "")),
        Column::optional(Column::text("last used address", true, |key| key.last_used_address.clone())),
        Column::text("allow addresses", false, |key| key.allow_addresses.join(",")),
        Column::time("previous valid until", false, |key| key.previous_valid_until, ""),
    ];
}

pub(crate) async fn run(ctx: &Context, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Create(args) => create(ctx, args).await,
        Command::List(args) => {
            let client = remote::connect(ctx)?;
            let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
            let keys = client.provisioner_keys(organization.id).await?;
            let empty = "There are no provisioner keys. Make one with: coder provisioner keys create <name>";
            table::print(&ctx.printer, &args.table, &keys, empty)
        }
        Command::Update(args) => update(ctx, args).await,
        Command::Rotate(args) => rotate(ctx, args).await,
        Command::Delete(args) => delete(ctx, args).await,
    }
}

/// Reads `key=value` tags. The last of several values of a key counts.
pub(crate) fn tags(list: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let pairs = list.iter().map(|text| tags::parse_pair(text.trim()));
    Ok(pairs.collect::<Result<_, _>>()?)
}

async fn create(ctx: &Context, args: CreateArgs) -> anyhow::Result<()> {
    let tags = tags(&args.tags)?;
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let request = CreateProvisionerKeyRequest {
        name: args.name.clone(),
        tags,
        expires_in_seconds: args.expires_in.map(seconds),
        allow_addresses: args.allow_addresses,
    };
    let token = client.create_limited_provisioner_key(organization.id, &request).await?;
    // The token is alone on the last line, so that scripts take it with `tail -n 1`.
    let name = ctx.printer.paint(Style::Bold, &args.name.to_lowercase());
    ctx.printer.data(&format!(
        "Provisioner key {name} is made. Keep its token in a safe place, it will not be shown again:"
    ));
    ctx.printer.data("");
    ctx.printer.data(token.expose());
    Ok(())
}

/// Whole seconds, rounded up, so that a short duration does not become zero.
fn seconds(duration: Duration) -> i64 {
    let rounded = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i64::try_from(rounded).unwrap_or(i64::MAX)
}

async fn update(ctx: &Context, args: UpdateArgs) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let limited = args.allow_everywhere || !args.allow_addresses.is_empty();
    let request = UpdateProvisionerKeyRequest {
        expires_in_seconds: args.expires_in.map(seconds),
        never_expires: args.never_expires,
        allow_addresses: limited.then_some(args.allow_addresses),
    };
    let key = client.update_provisioner_key(organization.id, &args.name, &request).await;
    let key = remote::known_key(&client, &organization, &args.name, key).await?;
    let from =
        if key.allow_addresses.is_empty() { "everywhere".to_owned() } else { key.allow_addresses.join(", ") };
    ctx.printer.note(&format!(
        "Provisioner key {:?} expires: {}; it may be used from {from}.",
        key.name,
        table::time_or(key.expires_at, "never")
    ));
    Ok(())
}

async fn rotate(ctx: &Context, args: RotateArgs) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let request = RotateProvisionerKeyRequest { overlap_seconds: seconds(args.overlap) };
    let rotated = client.rotate_provisioner_key(organization.id, &args.name, request).await;
    let rotated = remote::known_key(&client, &organization, &args.name, rotated).await?;
    // As with `create`, the token is alone on the last line.
    let name = ctx.printer.paint(Style::Bold, &args.name.to_lowercase());
    ctx.printer.data(&format!(
        "Provisioner key {name} has a new token; the old one is valid until {}. Keep the new one in a safe place, it will \
         not be shown again:",
        table::time(rotated.previous_valid_until)
    ));
    ctx.printer.data("");
    ctx.printer.data(rotated.key.expose());
    Ok(())
}

async fn delete(ctx: &Context, args: DeleteArgs) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    if !args.yes {
        let question = format!(
            "Delete provisioner key {:?}? Its daemons end their jobs and cannot join again.",
            args.name
        );
        prompt::confirm(&ctx.printer, &question, "pass --yes")?;
    }
    let deleted = client.delete_provisioner_key(organization.id, &args.name).await;
    remote::known_key(&client, &organization, &args.name, deleted).await?;
    ctx.printer.note(&format!("Provisioner key {:?} is deleted.", args.name));
    Ok(())
}
