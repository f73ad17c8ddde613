//! `coder external-auth`: tokens of external services for the owner of a workspace.

use anyhow::bail;
use coder_api::agents::AgentExternalAuth;
use coder_api::client::ExternalAuthQuery;

use crate::cmd::agent::session::AgentSession;
use crate::context::Context;

/// The commands.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Print an access token. Without a connected account it prints where to connect one, and fails.
    AccessToken(AccessToken),
}

#[derive(Debug, clap::Args)]
pub(crate) struct AccessToken {
    /// Id of the provider.
    provider: String,
    /// Print a field of what the service sent with the token instead, for example `authed_user.id`.
    #[arg(long, value_name = "FIELD")]
    extra: Option<String>,
    #[command(flatten)]
    session: AgentSession,
}

pub(crate) async fn run(ctx: &Context, command: Command) -> anyhow::Result<()> {
    let Command::AccessToken(args) = command;
    let client = args.session.client()?;
    let auth = client.external_auth_of_owner(ExternalAuthQuery::Id(&args.provider), false).await?;
    if !auth.url.is_empty() {
        ctx.printer.data(&auth.url);
        bail!("no account is connected: open the page above, and try again");
    }
    match &args.extra {
        Some(field) => ctx.printer.data(&extra(&auth, field)?),
        None => ctx.printer.data(auth.access_token.expose()),
    }
    Ok(())
}

/// A field, or a field of a field.
fn extra(auth: &AgentExternalAuth, field: &str) -> anyhow::Result<String> {
    let fields = auth.token_extra.clone().unwrap_or_default();
    let mut value = &serde_json::Value::Object(fields);
    for name in field.split('.') {
        value = value
            .get(name)
            .ok_or_else(|| anyhow::anyhow!("the service sent no field {field:?} with the token"))?;
    }
    Ok(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_path() {
        let auth: AgentExternalAuth =
            serde_json::from_str(r#"{"token_extra":{"a":{"b":"text"},"n":5}}"#).unwrap();
        assert_eq!(extra(&auth, "a.b").unwrap(), "text");
        assert_eq!(extra(&auth, "n").unwrap(), "5");
        assert!(extra(&auth, "a.c").is_err());
        let without: AgentExternalAuth = serde_json::from_str("{}").unwrap();
        assert!(extra(&without, "a").is_err());
    }
}
