//! The generated pages are current; `UPDATE_REFERENCE=1` rewrites them.

use std::path::Path;

fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == text,
        "docs/reference/{name} is not current: run the tests once with UPDATE_REFERENCE=1"
    );
}

#[test]
fn commands() {
    check("cli.md", &coder::reference::commands());
}

#[test]
fn environment() {
    check("environment.md", &coder::reference::environment());
}

#[test]
fn exit_codes() {
    check("exit-codes.md", &coder::reference::exit_codes());
}

/// A flag that can be set by a variable must name one of the documented ones.
#[test]
fn every_flags_variable_is_documented() {
    fn look(command: &clap::Command, missing: &mut Vec<String>) {
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            if let Some(name) = arg.get_env() {
                let name = name.to_string_lossy();
                if coder::env::ALL.iter().all(|variable| variable.name != name) {
                    missing.push(name.into_owned());
                }
            }
        }
        command.get_subcommands().for_each(|sub| look(sub, missing));
    }
    let mut missing = Vec::new();
    look(&coder::command(), &mut missing);
    assert_eq!(missing, Vec::<String>::new());
}
