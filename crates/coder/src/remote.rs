//! The way to the server for every command: the session from flags, variables or files, and names turned into objects.

use anyhow::{Context as _, bail};
use coder_api::builds::WorkspaceBuild;
use coder_api::client::{Client, Error, Options};
use coder_api::organizations::Organization;
use coder_api::paths;
use coder_api::templates::Template;
use coder_api::workspaces::Workspace;
use coder_domain::secret::Secret;
use url::Url;

use crate::context::Context;
use crate::versions;

/// The server with the saved or given session; an error when nobody is logged in.
pub(crate) fn connect(ctx: &Context) -> anyhow::Result<Client> {
    let url = ctx.url()?;
    let token = ctx.token()?;
    let token =
        token.context("you are not logged in: run `coder login <url>`, or set CODER_SESSION_TOKEN")?;
    open(ctx, &url, Some(token))
}

/// A server with any session, or none.
pub(crate) fn open(ctx: &Context, url: &Url, token: Option<Secret>) -> anyhow::Result<Client> {
    let headers = ctx.headers()?.into_iter().map(|(name, value)| (name, Secret::new(value))).collect();
    let agent = format!(
        "coder-cli/{} ({}/{}; coder)",
        versions::compatible(),
        std::env::consts::OS,
        std::env::consts::ARCH
    );
    let options = Options { user_agent: agent, headers, ..Options::default() };
    let client = Client::new(url.as_str(), token, options)?;
    ctx.remember(&client);
    Ok(client)
}

/// The organization to work in: the only one, or the one asked for by flag, variable or file.
pub(crate) async fn organization(
    ctx: &Context,
    client: &Client,
    wanted: Option<&str>,
) -> anyhow::Result<Organization> {
    let mut own = client.my_organizations().await?;
    let saved = ctx.directory.organization()?;
    let Some(wanted) = wanted.map(str::to_owned).or(saved) else {
        if own.len() > 1 {
            bail!("you are in several organizations, choose one with --org: {}", list(&own));
        }
        return own.pop().context("you are in no organization: ask an administrator to add you to one");
    };
    let is_it = |organization: &Organization| {
        organization.name.eq_ignore_ascii_case(&wanted)
            || organization.id.to_string() == wanted
            || (organization.is_default && wanted == paths::DEFAULT_ORGANIZATION)
    };
    match own.iter().position(is_it) {
        Some(index) => Ok(own.swap_remove(index)),
        None => bail!("you are in no organization {wanted:?}, choose from: {}", list(&own)),
    }
}

fn list(organizations: &[Organization]) -> String {
    organizations.iter().map(|organization| organization.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// A workspace by name, or owner/name.
pub(crate) async fn workspace(client: &Client, text: &str) -> anyhow::Result<Workspace> {
    let (owner, name) = split_owner(text);
    match client.workspace_by_name(owner, name).await {
        Err(error) if error.is_not_found() => bail!("there is no workspace {text:?}: see `coder list`"),
        other => Ok(other?),
    }
}

/// Splits `owner/name`; without an owner it is the caller.
pub(crate) fn split_owner(text: &str) -> (&str, &str) {
    text.split_once('/').unwrap_or((paths::ME, text))
}

/// None for what does not exist.
pub(crate) fn found<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// A template of an organization.
pub(crate) async fn template(
    client: &Client,
    organization: &Organization,
    name: &str,
) -> anyhow::Result<Template> {
    found(client.template_by_name(organization.id, name).await)?.with_context(|| {
        format!(
            "there is no template {name:?} in organization {}: see `coder templates list`",
            organization.name
        )
    })
}

/// A build of a workspace by its number.
pub(crate) async fn build(
    client: &Client,
    workspace: &Workspace,
    number: i64,
) -> anyhow::Result<WorkspaceBuild> {
    let (owner, name) = (&workspace.owner_name, &workspace.name);
    found(client.build_by_number(owner, name, number).await)?.with_context(|| {
        format!(
            "workspace {name:?} has no build {number}: its last one is {}",
            workspace.latest_build.build_number
        )
    })
}
