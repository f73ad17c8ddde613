//! The pages of `docs/reference/`, generated from the command line.
//!
//! A test compares them with the files; `UPDATE_REFERENCE=1` rewrites these.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, Id};

use crate::exit::Exit;
use crate::{cli, env};

/// The page of all commands.
#[must_use]
pub fn commands() -> String {
    let mut page = "# Commands\n\nGenerated from the program; change `crates/coder/src/cli.rs` and `crates/coder/src/cmd/`.\n".to_owned();
    let mut root = cli::command();
    root.build();
    page.push_str("\n## Global options\n\n");
    table(&mut page, root.get_arguments());
    let everywhere: Vec<_> = root.get_arguments().map(Arg::get_id).collect();
    for command in root.get_subcommands() {
        section(&mut page, "coder", command, 2, &everywhere);
    }
    page
}

/// The page of all variables.
#[must_use]
pub fn environment() -> String {
    let mut page = "# Environment variables\n\nGenerated from `crates/coder/src/env.rs`.\n\n| Variable | Meaning |\n| --- | --- |\n".to_owned();
    for variable in env::ALL {
        line(&mut page, &[&format!("`{}`", variable.name), variable.about.trim()]);
    }
    page
}

/// The page of all exit codes.
#[must_use]
pub fn exit_codes() -> String {
    let mut page =
        "# Exit codes\n\nGenerated from `crates/coder/src/exit.rs`.\n\n| Code | Meaning |\n| --- | --- |\n"
            .to_owned();
    for exit in Exit::ALL {
        line(&mut page, &[&exit.code().to_string(), exit.about()]);
    }
    page.push_str(
        "\nA signal that ends the program without its doing gives 128 and the number of the signal, as shells report it: 137 \
         for SIGKILL, 143 for SIGTERM.\n",
    );
    page
}

fn section(page: &mut String, parent: &str, command: &Command, level: usize, everywhere: &[&Id]) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let name = format!("{parent} {}", command.get_name());
    // Writing to a String cannot fail.
    let _ = write!(page, "\n{} `{name}`\n\n", "#".repeat(level));
    if let Some(about) = command.get_about() {
        let _ = writeln!(page, "{}\n", sentence(&about.to_string()));
    }
    let aliases: Vec<_> = command.get_all_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        let _ = writeln!(page, "Also: {}\n", aliases.join(", "));
    }
    let positional: Vec<_> = command.get_positionals().collect();
    let own = command.get_arguments().filter(|arg| !arg.is_positional());
    let own: Vec<_> = own
        .filter(|arg| !everywhere.contains(&arg.get_id()) && !arg.is_hide_set() && arg.get_id() != "help")
        .collect();
    if !positional.is_empty() || !own.is_empty() {
        table(page, positional.into_iter().chain(own));
    }
    for sub in command.get_subcommands() {
        section(page, &name, sub, level + 1, everywhere);
    }
}

fn table<'a>(page: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    page.push_str("| Option | Variable | Default | Meaning |\n| --- | --- | --- | --- |\n");
    for arg in arguments.filter(|arg| !arg.is_hide_set() && arg.get_id() != "help") {
        let variable = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
        let default = if arg.is_hide_default_value_set() { String::new() } else { defaults(arg) };
        let about = arg.get_help().map(ToString::to_string).unwrap_or_default();
        line(page, &[&option(arg), &variable, &default, &sentence(&about)]);
    }
}

fn option(arg: &Arg) -> String {
    let value = arg.get_value_names().and_then(<[_]>::first).map_or(String::new(), |name| format!(" {name}"));
    let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let is_switch = value == " BOOL";
    let value = if takes_value && !is_switch { value } else { String::new() };
    match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("`-{short}, --{long}{value}`"),
        (None, Some(long)) => format!("`--{long}{value}`"),
        (Some(short), None) => format!("`-{short}{value}`"),
        (None, None) => {
            let name = arg.get_value_names().and_then(<[_]>::first);
            format!("`{}`", name.map_or(arg.get_id().as_str(), |name| name.as_str()).to_uppercase())
        }
    }
}

fn defaults(arg: &Arg) -> String {
    let values: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let text = values.join(",");
    if text.is_empty() { text } else { format!("`{text}`") }
}

/// clap drops the full stop of one-line texts.
fn sentence(text: &str) -> String {
    if text.is_empty() || text.ends_with(['.', '?', '!']) { text.to_owned() } else { format!("{text}.") }
}

fn line(page: &mut String, cells: &[&str]) {
    let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}
