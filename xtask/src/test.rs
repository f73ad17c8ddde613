//! The test command of the README: every test of the workspace, with the tools it needs.

use anyhow::{Context as _, Result};
use coder_requirements::{RECORD_VARIABLE, Requirement, Skips, in_ci, is_there};
use coder_store::testing::URL_VARIABLE;

use crate::run::{cargo, root, run as command};
use crate::{helm, postgres, tools};

/// How many names of skipped tests are printed for each requirement.
const MAX_NAMES: usize = 4;

/// Runs `cargo test` over the workspace with one Postgres for all of it, then lists what was skipped. `arguments`, if any,
/// choose what runs.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let go = is_there(Requirement::Go);
    if go {
        helm::build()?;
    }
    tools::check()?;
    if go {
        // A download in the middle of a test would count as the test's time.
        let mut download = std::process::Command::new("go");
        command(download.args(["mod", "download"]).current_dir(root().join("interop")))?;
    }
    let postgres = postgres::for_tests()?;
    let directory = tempfile::tempdir().context("a directory for the record of skipped tests")?;
    let record = directory.path().join("skipped");
    let mut tests = cargo(&["test", "--no-fail-fast", "--quiet"]);
    if arguments.is_empty() {
        tests.arg("--workspace");
    }
    if let Some(postgres) = &postgres {
        tests.env(URL_VARIABLE, postgres.url());
    }
    let outcome = command(tests.args(arguments).env(RECORD_VARIABLE, &record));
    let skips = coder_requirements::read(&record).context("reading the record of skipped tests")?;
    print!("{}", summary(&skips, in_ci()));
    outcome
}

/// What was skipped, by what was missing; one line says so when nothing was.
fn summary(skips: &Skips, in_ci: bool) -> String {
    let count: usize = skips.values().map(Vec::len).sum();
    let mut text = format!("== skipped tests: {count}\n");
    for (name, tests) in skips {
        let requirement = Requirement::ALL.into_iter().find(|known| known.name() == name);
        let advice = requirement.map_or("", Requirement::how_to_get);
        text += &format!("{:6} for want of {name}: {advice}\n", tests.len());
        if let Some(reason) = requirement.and_then(Requirement::missing_in_ci).filter(|_| in_ci) {
            text += &format!("       allowed here because {reason}\n");
        }
        for test in tests.iter().take(MAX_NAMES) {
            text += &format!("       {test}\n");
        }
        if tests.len() > MAX_NAMES {
            text += &format!("       and {} more\n", tests.len() - MAX_NAMES);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tests_are_counted_and_named() {
        assert_eq!(summary(&Skips::new(), true), "== skipped tests: 0\n");
        let tests: Vec<_> = (1..=6).map(|number| format!("module::test_{number}")).collect();
        let text = summary(&[("tofu".to_owned(), tests)].into(), true);
        assert!(text.starts_with("== skipped tests: 6\n     6 for want of tofu: install OpenTofu"), "{text}");
        assert!(text.contains("allowed here because"), "{text}");
        assert!(
            text.contains("test_4\n") && !text.contains("test_5") && text.contains("and 2 more"),
            "{text}"
        );
    }
}
