//! Skips as another process sees them: this program runs itself with the test [`asks_for`] chosen.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::{Command, Output};

use coder_requirements::{RECORD_VARIABLE, Requirement, has, read};

const REQUIREMENT_VARIABLE: &str = "CODER_TEST_ASK_FOR";

/// The tests below run it in a process of its own; otherwise it does nothing.
#[test]
fn asks_for() {
    let Ok(name) = std::env::var(REQUIREMENT_VARIABLE) else { return };
    let requirement = Requirement::ALL.into_iter().find(|known| known.name() == name).unwrap();
    assert!(!has(requirement), "the tests below take it away");
}

/// As [`asks_for`], by the macro.
#[test]
fn requires() {
    if std::env::var_os(REQUIREMENT_VARIABLE).is_none() {
        return;
    }
    let program = coder_requirements::require!(program Tofu);
    panic!("the tests below hide {}", program.display());
}

/// Runs a test that asks for a requirement on a machine that has nothing.
fn ask(requirement: Requirement, ci: Option<&str>, record: &Path) -> Output {
    run("asks_for", requirement, ci, record)
}

fn run(test: &str, requirement: Requirement, ci: Option<&str>, record: &Path) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]).env_clear().env("PATH", "").env(REQUIREMENT_VARIABLE, requirement.name());
    command.env(RECORD_VARIABLE, record);
    if let Some(value) = ci {
        command.env("CI", value);
    }
    command.output().unwrap()
}

#[test]
fn a_skip_is_recorded_with_the_name_of_the_test() {
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("record");
    assert!(read(&record).unwrap().is_empty());
    for ci in [None, Some("false")] {
        let output = ask(Requirement::Terraform, ci, &record);
        assert!(output.status.success(), "{output:?}");
    }
    let skips = read(&record).unwrap();
    assert_eq!(
        skips.into_iter().collect::<Vec<_>>(),
        [("terraform".to_owned(), vec!["asks_for".to_owned()])]
    );
    let output = run("requires", Requirement::Tofu, None, &record);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(read(&record).unwrap()["tofu"], ["requires"]);
}

#[test]
fn with_ci_a_test_fails_unless_the_list_allows_the_skip() {
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("record");
    let tools = [Requirement::Terraform, Requirement::Go, Requirement::Postgres, Requirement::Git];
    for requirement in tools {
        let output = ask(requirement, Some("true"), &record);
        assert!(!output.status.success(), "{}", requirement.name());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(requirement.how_to_get()), "{text}");
    }
    assert!(read(&record).unwrap().is_empty(), "a failed test is not a skipped one");
    assert!(ask(Requirement::Tofu, Some("true"), &record).status.success());
    assert_eq!(read(&record).unwrap().len(), 1);
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = Requirement::ALL.iter().map(|requirement| requirement.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Requirement::ALL.len());
}
