//! `coder open`: a workspace in VS Code, or one of its apps in the browser.

use anyhow::{Context as _, bail};
use coder_api::client::Client;
use coder_api::resources::{WorkspaceAgent, WorkspaceApp};
use coder_api::workspaces::Workspace;
use url::Url;

use crate::context::Context;
use crate::network::target::{self, Name, Preparation, Wait};
use crate::{browser, env, remote};

/// The commands below `coder open`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Open a workspace in VS Code Desktop.
    Vscode(Vscode),
    /// Open an app of a workspace in the browser; without a name, list the apps.
    App(App),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Vscode {
    /// Workspace, as name, owner/name or name.agent.
    workspace: String,
    /// Directory in the workspace; default the agent's.
    directory: Option<String>,
    /// Give VS Code a session of its own, so that it does not ask for a log-in.
    #[arg(long, env = env::OPEN_VSCODE_GENERATE_TOKEN)]
    generate_token: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct App {
    /// Workspace, as name, owner/name or name.agent.
    workspace: String,
    /// Name of the app, as in its address.
    app: Option<String>,
    /// Place from which the app is served.
    #[arg(long, env = env::OPEN_APP_REGION, default_value = "primary", value_name = "NAME")]
    region: String,
}

pub(crate) async fn run(ctx: &Context, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Vscode(args) => vscode(ctx, args).await,
        Command::App(args) => app(ctx, args).await,
    }
}

async fn vscode(ctx: &Context, args: Vscode) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let name = Name::parse(&args.workspace)?;
    let how = Preparation { disable_autostart: false, wait: Wait::No };
    let (workspace, agent) = target::prepare(ctx, &client, &name, how).await?;
    let folder = folder(&agent, args.directory.as_deref())?;
    let mut url = vscode_url(&client, &workspace, &agent, folder.as_deref())?;
    if args.generate_token {
        let token = client.create_session_key().await.context("make a session for VS Code")?;
        url.query_pairs_mut().append_pair("token", token.expose());
        // A program that is started with it would show the token in the list of processes.
        ctx.printer.note("Open this address; it logs in whoever has it:");
        ctx.printer.data(url.as_str());
        return Ok(());
    }
    open(ctx, &url);
    Ok(())
}

/// An absolute directory; a relative one is below the agent's.
fn folder(agent: &WorkspaceAgent, given: Option<&str>) -> anyhow::Result<Option<String>> {
    let own = agent.expanded_directory.trim_end_matches('/');
    match given {
        None if own.is_empty() => Ok(None),
        None => Ok(Some(own.to_owned())),
        Some(path) if path.starts_with('/') => Ok(Some(path.to_owned())),
        Some("~") if !own.is_empty() => Ok(Some(own.to_owned())),
        Some(path) if !own.is_empty() => {
            let path = path.strip_prefix("~/").unwrap_or(path);
            Ok(Some(format!("{own}/{}", path.trim_start_matches("./"))))
        }
        Some(path) => {
            bail!("{path:?} is not absolute, and the agent has no directory: give an absolute path")
        }
    }
}

fn vscode_url(
    client: &Client,
    workspace: &Workspace,
    agent: &WorkspaceAgent,
    folder: Option<&str>,
) -> anyhow::Result<Url> {
    let mut url = Url::parse("vscode://coder.coder-remote/open")?;
    let mut query = url.query_pairs_mut();
    query.append_pair("owner", &workspace.owner_name).append_pair("workspace", &workspace.name);
    query.append_pair("agent", &agent.name).append_pair("url", client.base().as_str());
    if let Some(folder) = folder {
        query.append_pair("folder", folder);
    }
    drop(query);
    Ok(url)
}

async fn app(ctx: &Context, args: App) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let name = Name::parse(&args.workspace)?;
    let workspace = name.find(&client).await?;
    let agent = name.choose_agent(&workspace)?;
    let mut slugs: Vec<_> = agent.apps.iter().map(|app| app.slug.as_str()).collect();
    slugs.sort_unstable();
    let Some(wanted) = &args.app else {
        if slugs.is_empty() {
            bail!("agent {:?} of workspace {:?} has no apps", agent.name, workspace.name);
        }
        slugs.iter().for_each(|slug| ctx.printer.data(slug));
        return Ok(());
    };
    let app = agent.apps.iter().find(|app| app.slug == *wanted).with_context(|| {
        format!("agent {:?} has no app {wanted:?}: it has {}", agent.name, slugs.join(", "))
    })?;
    let regions = client.regions().await?.regions;
    let region = regions.iter().find(|region| region.name == args.region).with_context(|| {
        let names: Vec<_> = regions.iter().map(|region| region.name.as_str()).collect();
        format!("there is no region {:?}: there are {}", args.region, names.join(", "))
    })?;
    let url = app_url(&workspace, &agent, app, &region.path_app_url, &region.wildcard_hostname)?;
    open(ctx, &url);
    Ok(())
}

/// Where an app is.
fn app_url(
    workspace: &Workspace,
    agent: &WorkspaceAgent,
    app: &WorkspaceApp,
    base: &str,
    wildcard: &str,
) -> anyhow::Result<Url> {
    if app.external {
        let url = Url::parse(&app.url)
            .with_context(|| format!("the address of app {:?} is not a URL", app.slug))?;
        // The template's text must not run a program of this machine.
        if !matches!(url.scheme(), "http" | "https") {
            bail!("the address of app {:?} is not a web page: {url}", app.slug);
        }
        return Ok(url);
    }
    let mut url = Url::parse(base).context("the server's address of apps is not a URL")?;
    if app.subdomain && app.command.is_empty() {
        let host =
            wildcard.strip_prefix('*').filter(|_| !app.subdomain_name.is_empty()).with_context(|| {
                format!(
                    "app {:?} needs a host name of its own, and the server has no wildcard host name",
                    app.slug
                )
            })?;
        let text = format!("{}://{}{host}/", url.scheme(), app.subdomain_name);
        return Url::parse(&text).context("the address of the app is not a URL");
    }
    let place = format!("/@{}/{}.{}", workspace.owner_name, workspace.name, agent.name);
    if app.command.is_empty() {
        url.set_path(&format!("{place}/apps/{}/", app.slug));
    } else {
        url.set_path(&format!("{place}/terminal"));
        url.query_pairs_mut().append_pair("app", &app.slug);
    }
    Ok(url)
}

/// Opens an address. Without a desktop, or with `--no-open`, the address itself is the result.
fn open(ctx: &Context, url: &Url) {
    if !ctx.global.no_open && browser::open(url.as_str()) {
        ctx.printer.note(&format!("Opened {url}"));
    } else {
        ctx.printer.data(url.as_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(directory: &str) -> WorkspaceAgent {
        serde_json::from_value(serde_json::json!({
            "id": uuid(), "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
            "name": "main", "resource_id": uuid(), "expanded_directory": directory,
        }))
        .unwrap()
    }

    fn uuid() -> &'static str {
        "5d0a3a52-7a1c-4c0f-9a83-2f9d8d1e6b10"
    }

    #[test]
    fn directories_are_below_the_agents() {
        let home = agent("/home/coder/");
        let folder = |given| folder(&home, given).unwrap().unwrap();
        assert_eq!(folder(None), "/home/coder");
        assert_eq!(folder(Some("src")), "/home/coder/src");
        assert_eq!(folder(Some("./src")), "/home/coder/src");
        assert_eq!(folder(Some("~/src")), "/home/coder/src");
        assert_eq!(folder(Some("/tmp")), "/tmp");
        assert_eq!(super::folder(&agent(""), None).unwrap(), None);
        assert!(super::folder(&agent(""), Some("src")).is_err());
    }
}
