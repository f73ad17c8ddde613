//! Connects commands to the server: the session from flags, variables or files, and the objects of given names.

use anyhow::{Context as _, bail};
use coder_api::builds::WorkspaceBuild;
use coder_api::client::{Client, Error, Options};
use coder_api::error::ErrorBody;
use coder_api::organizations::Organization;
use coder_api::paths;
use coder_api::templates::Template;
use coder_api::users::User;
use coder_api::versions::TemplateVersion;
use coder_api::workspaces::Workspace;
use coder_domain::secret::Secret;
use url::Url;

use crate::context::Context;
use crate::{suggest, versions};

/// The server with the saved or given session; an error without one.
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
        None => {
            let near =
                suggest::did_you_mean(&wanted, own.iter().map(|organization| organization.name.as_str()));
            bail!("you are in no organization {wanted:?}: {near}yours are: {}", list(&own))
        }
    }
}

/// Any organization by name or id, even one that the caller is not in.
pub(crate) async fn any_organization(client: &Client, name: &str) -> anyhow::Result<Organization> {
    match client.organization(name).await {
        Err(error) if error.is_not_found() => {
            let all = client.organizations().await.unwrap_or_default();
            let names = all.iter().map(|organization| organization.name.as_str());
            let instead = suggest::instead(name, names, "coder organizations list");
            bail!("there is no organization {name:?} that you may see: {instead}")
        }
        other => Ok(other?),
    }
}

fn list(organizations: &[Organization]) -> String {
    organizations.iter().map(|organization| organization.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// A workspace by name, or owner/name.
pub(crate) async fn workspace(client: &Client, text: &str) -> anyhow::Result<Workspace> {
    let (owner, name) = split_owner(text);
    match client.workspace_by_name(owner, name).await {
        Err(error) if error.is_not_found() => {
            let query = format!("owner:{owner}");
            // The list only serves for the hint.
            let all = client.workspaces(&query).await.map(|found| found.workspaces).unwrap_or_default();
            let names = all.iter().map(|workspace| workspace.name.as_str());
            bail!("there is no workspace {text:?}: {}", suggest::instead(name, names, "coder list"))
        }
        other => Ok(other?),
    }
}

/// A user by name or id, or `me`.
pub(crate) async fn user(client: &Client, name: &str) -> anyhow::Result<User> {
    known_user(client, name, client.user(name).await).await
}

/// Names a user that does not exist. Other errors are unchanged.
pub(crate) async fn known_user<T>(
    client: &Client,
    name: &str,
    result: Result<T, Error>,
) -> anyhow::Result<T> {
    match result {
        Err(error) if is_unknown_user(&error) => {
            let all = client.users("").await.unwrap_or_default();
            let names = all.iter().map(|user| user.username.as_str());
            bail!("there is no user {name:?}: {}", suggest::instead(name, names, "coder users list"))
        }
        other => Ok(other?),
    }
}

/// Names a user who does not belong to an organization. Other errors are unchanged.
pub(crate) async fn known_member<T>(
    client: &Client,
    organization: &Organization,
    name: &str,
    result: Result<T, Error>,
) -> anyhow::Result<T> {
    match result {
        Err(error) if is_unknown_user(&error) => {
            let all = client.members(organization.id).await.unwrap_or_default();
            let names = all.iter().map(|member| member.username.as_str());
            let instead = suggest::instead(name, names, "coder organizations members list");
            bail!("{name:?} is not a member of organization {}: {instead}", organization.name)
        }
        other => Ok(other?),
    }
}

/// Servers answer 400 for a user that does not exist (http-api 2.1).
fn is_unknown_user(error: &Error) -> bool {
    let says_so = |body: &ErrorBody| body.message.starts_with("Username or ID not found");
    error.is_not_found() || error.body().is_some_and(says_so)
}

/// Names a provisioner key that does not exist. Other errors are unchanged.
pub(crate) async fn known_key<T>(
    client: &Client,
    organization: &Organization,
    name: &str,
    result: Result<T, Error>,
) -> anyhow::Result<T> {
    match result {
        Err(error) if error.is_not_found() => {
            let all = client.provisioner_keys(organization.id).await.unwrap_or_default();
            let names = all.iter().map(|key| key.name.as_str());
            let instead = suggest::instead(name, names, "coder provisioner keys list");
            bail!("there is no provisioner key {name:?} in organization {}: {instead}", organization.name)
        }
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
    if let Some(template) = found(client.template_by_name(organization.id, name).await)? {
        return Ok(template);
    }
    bail!(
        "there is no template {name:?} in organization {}: {}",
        organization.name,
        near_templates(client, name).await
    )
}

/// The templates of these names.
pub(crate) async fn templates(
    client: &Client,
    organization: &Organization,
    names: &[String],
) -> anyhow::Result<Vec<Template>> {
    let mut templates = Vec::with_capacity(names.len());
    for name in names {
        templates.push(template(client, organization, name).await?);
    }
    Ok(templates)
}

/// The hint for the name of a template that does not exist.
pub(crate) async fn near_templates(client: &Client, name: &str) -> String {
    let all = client.templates("").await.unwrap_or_default();
    suggest::instead(name, all.iter().map(|template| template.name.as_str()), "coder templates list")
}

/// A version of a template.
pub(crate) async fn version(
    client: &Client,
    template: &Template,
    name: &str,
) -> anyhow::Result<TemplateVersion> {
    if let Some(version) = found(client.version_by_name(template.id, name).await)? {
        return Ok(version);
    }
    let all = client.template_versions(template.id, true).await.unwrap_or_default();
    let names = all.iter().map(|version| version.name.as_str());
    let list = format!("coder templates versions list {}", template.name);
    bail!("template {} has no version {name:?}: {}", template.name, suggest::instead(name, names, &list))
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
