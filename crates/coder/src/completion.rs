//! Completion of names from the server: workspaces, templates, keys, organizations, users, daemons, and the parameters
//! of a template. The shell waits for it, so it has a short timeout and prints no errors.

use std::ffi::OsStr;
use std::time::Duration;

use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use coder_api::client::{Client, DaemonFilter};

use crate::context::Context;
use crate::{args, env, remote, runtime};

/// How long the shell waits for a server.
const TIMEOUT: Duration = Duration::from_secs(2);

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
        let organization = remote::organization(&ctx, &client, None).await?;
        let found = client.daemons(organization.id, &DaemonFilter::default()).await?;
        Ok(found.into_iter().map(|one| (one.name, one.version)).collect())
    })
}

fn keys(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, async |ctx, client| {
        let organization = remote::organization(&ctx, &client, None).await?;
        let found = client.provisioner_keys(organization.id).await?;
        Ok(found.into_iter().map(|one| (one.name, one.tags.to_string())).collect())
    })
}

/// `name=` for each parameter of the template that the command line names.
fn parameters(current: &OsStr) -> Vec<CompletionCandidate> {
    let words: Vec<_> = std::env::args().collect();
    let Some(template) = template_of(&words) else { return Vec::new() };
    ask(current, async move |_, client| {
        let found = client.templates(&format!("exact_name:\"{template}\"")).await?;
        let Some(template) = found.into_iter().next() else { return Ok(Vec::new()) };
        let parameters = client.rich_parameters(template.active_version_id).await?;
        Ok(parameters.into_iter().map(|one| (format!("{}=", one.name), one.description_plaintext)).collect())
    })
}

/// The value of `-t` or `--template`.
fn template_of(words: &[String]) -> Option<String> {
    let joined = words.iter().find_map(|word| word.strip_prefix("--template="));
    let next =
        words.windows(2).find(|pair| matches!(pair[0].as_str(), "-t" | "--template")).map(|pair| &*pair[1]);
    joined.or(next).filter(|name| !name.is_empty()).map(str::to_owned)
}

/// Names that begin with the typed text; none when the server does not respond in time.
fn ask(
    current: &OsStr,
    names: impl AsyncFnOnce(Context, Client) -> anyhow::Result<Names>,
) -> Vec<CompletionCandidate> {
    let ctx = Context::new(args::Global::of_environment(env::get(env::URL), env::get(env::SESSION_TOKEN)));
    let found = || -> anyhow::Result<Names> {
        let client = remote::connect(&ctx)?;
        let runtime = runtime::small()?;
        runtime.block_on(async { tokio::time::timeout(TIMEOUT, names(ctx, client)).await })?
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

    #[test]
    fn the_template_of_a_command_line() {
        let template = |words: &str| template_of(&words.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(template("coder create dev -t docker --parameter").as_deref(), Some("docker"));
        assert_eq!(template("coder create dev --template=docker --parameter").as_deref(), Some("docker"));
        assert_eq!(template("coder start dev --parameter"), None);
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
