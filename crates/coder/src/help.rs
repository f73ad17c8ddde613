//! The parts of the help beside the flags: groups of commands, examples, and one line for the flags that every command has.

use clap::builder::styling::Style;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command};

/// The commands by purpose. A test checks that no command is missing.
const GROUPS: &[(&str, &[&str])] = &[
    ("First steps", &["quickstart", "login", "logout", "whoami"]),
    ("Workspaces", &["create", "list", "show", "start", "stop", "restart", "delete", "logs", "state"]),
    ("Schedules and settings", &["schedule", "update", "autoupdate", "rename", "favorite", "unfavorite"]),
    (
        "Connections",
        &["ssh", "config-ssh", "port-forward", "open", "ping", "speedtest", "netcheck", "publickey"],
    ),
    ("Inside a workspace", &["external-auth", "dotfiles", "stat"]),
    ("Templates", &["templates"]),
    ("Provisioners", &["provisioner", "provider"]),
    ("Administration", &["server", "operator", "users", "reset-password", "organizations", "tokens"]),
    ("Other", &["version", "completion", "man", "exp", "help"]),
];

/// Examples for the most used commands.
pub(crate) const EXAMPLES: &[(&str, &[&str])] = &[
    ("quickstart", &["coder quickstart", "coder quickstart --data-dir ~/coder-demo"]),
    ("login", &["coder login https://coder.example.com", "coder login"]),
    ("templates init", &["coder templates init", "coder templates init --id docker my-template"]),
    (
        "templates push",
        &[
            "coder templates push",
            "coder templates push my-template -d ./my-template -y",
            "coder templates push my-template --provisioner-tag environment=on_prem",
        ],
    ),
    (
        "create",
        &[
            "coder create my-workspace --template docker",
            "coder create dev -t docker --parameter size=small -y",
        ],
    ),
    ("list", &["coder list", "coder list --all -o json", "coder list -c workspace,status,last_built"]),
    ("start", &["coder start my-workspace", "coder start my-workspace --parameter size=large"]),
    ("stop", &["coder stop my-workspace -y"]),
    ("delete", &["coder delete my-workspace"]),
    ("update", &["coder update my-workspace"]),
    ("schedule show", &["coder schedule show", "coder schedule show my-workspace -o json"]),
    (
        "schedule start",
        &[
            "coder schedule start my-workspace 9:30AM Mon-Fri Europe/Dublin",
            "coder schedule start my-workspace manual",
        ],
    ),
    ("schedule stop", &["coder schedule stop my-workspace 2h30m", "coder schedule stop my-workspace manual"]),
    ("schedule extend", &["coder schedule extend my-workspace 90m"]),
    ("autoupdate", &["coder autoupdate my-workspace always"]),
    ("rename", &["coder rename my-workspace other-name"]),
    ("logs", &["coder logs my-workspace -f", "coder logs my-workspace -n -1"]),
    (
        "ssh",
        &["coder ssh my-workspace", "coder ssh my-workspace -- make test", "coder ssh my-workspace.main"],
    ),
    (
        "config-ssh",
        &["coder config-ssh", "coder config-ssh --dry-run", "coder config-ssh -o ForwardAgent=yes -y"],
    ),
    (
        "port-forward",
        &[
            "coder port-forward my-workspace --tcp 8080",
            "coder port-forward my-workspace --tcp 9000:3000,9001:3001 --udp 5353:53",
            "coder port-forward my-workspace --tcp 8000-8010",
        ],
    ),
    ("open", &["coder open vscode my-workspace", "coder open app my-workspace dashboard"]),
    (
        "provisioner keys create",
        &[
            "coder provisioner keys create my-key",
            "coder provisioner keys create my-key --tag environment=on_prem",
        ],
    ),
    (
        "provisioner start",
        &[
            "CODER_PROVISIONER_DAEMON_KEY=… coder provisioner start",
            "coder provisioner start --tag environment=on_prem --slots 4",
        ],
    ),
    ("server", &["coder server", "coder server --http-address 0.0.0.0:80 --provisioner-daemons 0"]),
    ("users create", &["coder users create --username alice --email alice@example.com"]),
    ("tokens create", &["coder tokens create --name ci --lifetime 720h"]),
    ("reset-password", &["coder reset-password alice"]),
];

/// The last line of the help of every subcommand.
const GLOBAL: &str = "Options of every command, such as --url, --token and --verbose: coder --help";

/// Adds groups, examples and the line for global flags.
pub(crate) fn decorate(mut root: Command) -> Command {
    let template = template(&root);
    root = root.help_template(template);
    let hidden: Vec<Arg> =
        root.get_arguments().filter(|arg| arg.is_global_set()).map(|arg| arg.clone().hide(true)).collect();
    root.mut_subcommands(|command| {
        // The same arguments, hidden in the help of this command and of its subcommands.
        let command = command.args(hidden.clone());
        below("", command)
    })
}

fn below(parent: &str, command: Command) -> Command {
    let path = if parent.is_empty() {
        command.get_name().to_owned()
    } else {
        format!("{parent} {}", command.get_name())
    };
    let examples = EXAMPLES.iter().find(|(name, _)| *name == path).map(|(_, lines)| *lines);
    let mut text = String::new();
    if let Some(lines) = examples {
        text.push_str(&heading("Examples:"));
        for line in lines {
            text.push_str(&format!("\n  {line}"));
        }
        text.push_str("\n\n");
    }
    text.push_str(GLOBAL);
    command.after_help(text).mut_subcommands(|command| below(&path, command))
}

fn heading(text: &str) -> String {
    let style = Style::new().bold().underline();
    format!("{}{text}{}", style.render(), style.render_reset())
}

fn template(root: &Command) -> String {
    let mut text = "{about}\n\n{usage-heading} {usage}\n".to_owned();
    for (title, names) in GROUPS {
        text.push_str(&format!("\n{}\n", heading(&format!("{title}:"))));
        for name in *names {
            let about = root.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let about = about.or_else(|| (*name == "help").then(|| "Print the help of a command".to_owned()));
            // Commands that this build does not have are omitted.
            if let Some(about) = about {
                text.push_str(&format!("  {name:<16}{about}\n"));
            }
        }
    }
    text.push_str(&format!(
        "\n{}\n{{options}}\n\n`coder COMMAND --help` has the flags of a command, and examples.",
        heading("Options of every command:")
    ));
    text
}

/// A hint for an unknown word in the place of a command: often a name that belongs after the command.
pub(crate) fn misplaced_name(root: &Command, args: &[String]) -> Option<String> {
    let mut command = root;
    let mut path = vec![root.get_name().to_owned()];
    let mut words = args.iter().filter(|word| !word.starts_with('-'));
    loop {
        let word = words.next()?;
        if let Some(below) = command.find_subcommand(word) {
            command = below;
            path.push(below.get_name().to_owned());
            continue;
        }
        // A later word may be the intended command.
        let meant = words.find_map(|later| command.find_subcommand(later))?;
        return Some(format!("names come after the command: {} {} {word}", path.join(" "), meant.get_name()));
    }
}

/// A hint for a command that the slim build does not have.
pub(crate) fn missing_in_slim(args: &[String]) -> Option<String> {
    let words: Vec<_> = args.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    let is_missing = matches!(
        words[..],
        ["server" | "quickstart" | "reset-password" | "provider" | "operator", ..]
            | ["provisioner" | "provisioners" | "provisionerd", "start", ..]
            | ["templates" | "template", "bundle", ..]
    );
    (cfg!(not(feature = "server")) && is_missing).then(|| {
        "this is the slim build, without server and daemon: the server's install.sh installs the whole program \
         (curl -fsSL URL/install.sh | sh)"
            .to_owned()
    })
}

/// A hint for a refused value that comes from a variable, which the error does not name.
pub(crate) fn refused_variable(mut root: Command, error: &clap::Error, args: &[String]) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (arg, value) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
    if args.iter().any(|word| word.contains(value)) {
        return None;
    }
    // Only arguments of a built command have a text.
    root.build();
    let name = variable_with(&root, arg, value)?;
    Some(format!("the value is that of the variable {name}: change or unset it"))
}

/// The variable of an argument that is shown like this, if it has the value.
fn variable_with(command: &Command, shown: &str, value: &str) -> Option<String> {
    let has_value = |name: &str| std::env::var(name).is_ok_and(|set| set.contains(value));
    let own = command.get_arguments().filter(|arg| arg.to_string() == shown);
    let mut names = own.filter_map(|arg| arg.get_env()?.to_str());
    names
        .find(|name| has_value(name))
        .map(str::to_owned)
        .or_else(|| command.get_subcommands().find_map(|command| variable_with(command, shown, value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    #[test]
    fn every_command_is_in_one_group() {
        let root = cli::command();
        let visible = root.get_subcommands().filter(|command| !command.is_hide_set());
        let grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        for command in visible {
            let count = grouped.iter().filter(|name| **name == command.get_name()).count();
            assert_eq!(count, 1, "{}", command.get_name());
        }
        let known = |name: &&str| *name == "help" || root.find_subcommand(name).is_some();
        assert_eq!(grouped.iter().filter(|name| !known(name)).count(), 0);
        for line in template(&root).lines().filter(|line| !line.contains('\u{1b}')) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn every_example_is_a_command_line_that_works() {
        for (path, lines) in EXAMPLES {
            for line in *lines {
                let words = line.split(' ').skip_while(|word| *word != "coder");
                let words: Vec<_> = words.collect();
                assert!(words.join(" ").starts_with(&format!("coder {path}")), "{path}: {line}");
                for command in [cli::command(), cli::parser()] {
                    if let Err(error) = command.try_get_matches_from(&words) {
                        panic!("{line}: {error}");
                    }
                }
                assert!(line.chars().count() <= 76, "{line}");
            }
        }
        assert!(EXAMPLES.len() >= 10);
    }

    #[test]
    fn a_name_before_its_command_is_noticed() {
        let root = cli::command();
        let hint =
            |words: &str| misplaced_name(&root, &words.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(
            hint("templates my-template push").as_deref(),
            Some("names come after the command: coder templates push my-template")
        );
        assert_eq!(hint("my-ws start").as_deref(), Some("names come after the command: coder start my-ws"));
        assert_eq!(hint("nonsense"), None);
        assert_eq!(hint("templates push my-template"), None);
    }
}
