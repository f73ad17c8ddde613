//! Completion of names from the server: workspaces, templates, keys, organizations, users, daemons, and the parameters
//! of a template. The shell waits for it, so it has a short timeout and prints no errors.

use std::ffi::OsStr;
use std::time::Duration;

use clap::{Arg, Command, FromArgMatches as _};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use coder_api::client::{Client, DaemonFilter};
use coder_domain::ids::TemplateVersionId;

use crate::cli::{self, Cli};
use crate::context::Context;
use crate::{env, remote, runtime};

/// How long the shell waits for a server.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);

/// Attaches completers to the arguments that take such names.
pub(crate) fn attach(command: Command) -> Command {
    below("", command)
}

fn below(path: &str, command: Command) -> Command {
    let command = command.mut_args(|arg| match completer(path, &arg) {
        Some(completer) => arg.add(completer),
        None => arg,
    });
    command.mut_subcommands(|command| {
        let path = format!("{path} {}", command.get_name());
        below(path.trim_start(), command)
    })
}

fn completer(path: &str, arg: &Arg) -> Option<ArgValueCompleter> {
    let is_new = |commands: &[&str]| commands.contains(&path);
    Some(match arg.get_id().as_str() {
        "workspace" if !is_new(&["create"]) => ArgValueCompleter::new(workspaces),
        "template" | "templates" => ArgValueCompleter::new(templates),
        "org" | "organization" => ArgValueCompleter::new(organizations),
        "user" => ArgValueCompleter::new(users),
        "daemon" => ArgValueCompleter::new(daemons),
        "parameters" | "defaults" | "ephemeral" => ArgValueCompleter::new(parameters),
        "name" if path.starts_with("provisioner keys") && !is_new(&["provisioner keys create"]) => {
            ArgValueCompleter::new(keys)
        }
        _ => return None,
    })
}

type Names = Vec<(String, String)>;

fn workspaces(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, async |_, client| {
        let found = client.workspaces("owner:me").await?;
        Ok(found.workspaces.into_iter().map(|one| (one.name, one.template_name)).collect())
    })
}

fn templates(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, async |_, client| {
        let found = client.templates("").await?;
        Ok(found.into_iter().map(|one| (one.name, one.description)).collect())
    })
}

fn organizations(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, async |_, client| {
        let found = client.my_organizations().await?;
        Ok(found.into_iter().map(|one| (one.name, one.display_name)).collect())
    })
}

fn users(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, async |_, client| {
        let found = client.users("").await?;
        Ok(found.into_iter().map(|one| (one.username, one.email)).collect())
    })
}

fn daemons(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, async |ctx, client| {
        let organization = remote::organization(&ctx, &client, wanted_organization().as_deref()).await?;
        let found = client.daemons(organization.id, &DaemonFilter::default()).await?;
        Ok(found.into_iter().map(|one| (one.name, one.version)).collect())
    })
}

fn keys(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, async |ctx, client| {
        let organization = remote::organization(&ctx, &client, wanted_organization().as_deref()).await?;
        let found = client.provisioner_keys(organization.id).await?;
        Ok(found.into_iter().map(|one| (one.name, one.tags.to_string())).collect())
    })
}

/// `name=` for each parameter of the template, or of the workspace, that the command line names.
fn parameters(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, async |_, client| {
        let Some(version) = version(&client, &words()).await? else { return Ok(Vec::new()) };
        let parameters = client.rich_parameters(version).await?;
        Ok(parameters.into_iter().map(|one| (format!("{}=", one.name), one.description_plaintext)).collect())
    })
}

async fn version(client: &Client, words: &[String]) -> anyhow::Result<Option<TemplateVersionId>> {
    if let Some(template) = value_of(words, &["-t", "--template"]) {
        let found = client.templates(&format!("exact_name:\"{template}\"")).await?;
        return Ok(found.first().map(|template| template.active_version_id));
    }
    let Some(name) = workspace_of(words) else { return Ok(None) };
    let workspace = remote::workspace(client, name).await?;
    Ok(Some(workspace.latest_build.template_version_id))
}

/// The command line so far, which the shell passes after `--`.
fn words() -> Vec<String> {
    std::env::args().skip_while(|word| word != "--").skip(1).collect()
}

/// The value of a flag, as `--flag value` or `--flag=value`.
fn value_of(words: &[String], flags: &[&str]) -> Option<String> {
    let joined = words.iter().find_map(|word| {
        let (flag, value) = word.split_once('=')?;
        flags.contains(&flag).then_some(value)
    });
    let next = words.windows(2).find(|pair| flags.contains(&pair[0].as_str())).map(|pair| &*pair[1]);
    joined.or(next).filter(|value| !value.is_empty()).map(str::to_owned)
}

/// The workspace of a command that builds one again.
fn workspace_of(words: &[String]) -> Option<&str> {
    let mut words = words.iter().skip_while(|word| !matches!(word.as_str(), "start" | "restart" | "update"));
    words.next()?;
    words.map(String::as_str).find(|word| !word.starts_with('-') && !word.contains('='))
}

/// The organization of the command line or the environment.
fn wanted_organization() -> Option<String> {
    value_of(&words(), &["-O", "--org"]).or_else(|| env::get(env::ORGANIZATION))
}

/// The server and the session of the command line and the environment. The rest of the command line is incomplete.
fn context(words: &[String]) -> anyhow::Result<Context> {
    let mut line = vec!["coder".to_owned()];
    for flag in ["--url", "--token", "--global-config", "--header", "--header-command"] {
        line.extend(value_of(words, &[flag]).map(|value| format!("{flag}={value}")));
    }
    line.push("version".to_owned());
    let matches = cli::parser().try_get_matches_from(line)?;
    Ok(Context::new(Cli::from_arg_matches(&matches)?.global))
}

/// Names that begin with the typed text; none when the server does not respond in time.
fn ask(
    current: &OsStr,
    names: impl AsyncFnOnce(Context, Client) -> anyhow::Result<Names>,
) -> Vec<CompletionCandidate> {
    let found = || -> anyhow::Result<Names> {
        let ctx = context(&words())?;
        let client = remote::connect(&ctx)?;
        let runtime = runtime::small()?;
        runtime.block_on(async { tokio::time::timeout(SERVER_TIMEOUT, names(ctx, client)).await })?
    };
    let current = current.to_string_lossy();
    let found = found().unwrap_or_default().into_iter();
    let fitting = found.filter(|(name, _)| name.starts_with(&*current));
    fitting
        .map(|(name, about)| {
            let about = about.lines().next().unwrap_or_default().to_owned();
            CompletionCandidate::new(name).help((!about.is_empty()).then(|| about.into()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_template_of_a_command_line() {
        let template = |text: &str| value_of(&line(text), &["-t", "--template"]);
        assert_eq!(template("coder create dev -t docker --parameter").as_deref(), Some("docker"));
        assert_eq!(template("coder create dev --template=docker --parameter").as_deref(), Some("docker"));
        assert_eq!(template("coder start dev --parameter"), None);
    }

    #[test]
    fn the_workspace_of_a_command_line() {
        let workspace = |text: &str| workspace_of(&line(text)).map(str::to_owned);
        assert_eq!(workspace("coder start dev --parameter").as_deref(), Some("dev"));
        assert_eq!(workspace("coder restart -y --parameter size=1 dev --parameter").as_deref(), Some("dev"));
        assert_eq!(workspace("coder create dev --parameter"), None);
        assert_eq!(workspace("coder start --parameter"), None);
    }

    #[test]
    fn flags_of_every_command_count() {
        let context =
            context(&line("coder --url http://127.0.0.1:1 --token=t start --global-config /c de")).unwrap();
        assert_eq!(context.url().unwrap().as_str(), "http://127.0.0.1:1/");
        assert_eq!(context.token().unwrap().unwrap().expose(), "t");
        assert_eq!(context.directory.path().unwrap().to_str(), Some("/c"));
        assert!(super::context(&line("coder --url")).is_ok());
    }

    #[test]
    fn names_of_the_server_are_completed_where_they_are_taken() {
        let root = attach(crate::command());
        let has = |path: &[&str], id: &str| {
            let command = path.iter().fold(&root, |command, name| command.find_subcommand(name).unwrap());
            let arg = command.get_arguments().find(|arg| arg.get_id() == id).unwrap();
            arg.get::<ArgValueCompleter>().is_some()
        };
        assert!(has(&["start"], "workspace") && !has(&["create"], "workspace"));
        assert!(has(&["create"], "template") && has(&["create"], "parameters"));
        assert!(has(&["templates", "push"], "template") && has(&["templates", "delete"], "templates"));
        assert!(has(&["provisioner", "keys", "delete"], "name"));
        assert!(!has(&["provisioner", "keys", "create"], "name"));
        assert!(has(&["provisioner", "drain"], "daemon") && has(&["users", "show"], "user"));
    }
}
