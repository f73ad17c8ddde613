//! The example templates are well formed, and Terraform accepts those whose providers are installed.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

#[test]
fn every_example_has_a_template_and_a_page() {
    let mut names: Vec<_> = std::fs::read_dir(root())
        .unwrap()
        .map(Result::unwrap)
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["docker", "hello", "kubernetes", "quickstart", "workspace-tags"]);
    for name in names {
        let template = std::fs::read_to_string(root().join(&name).join("main.tf")).unwrap();
        assert!(template.contains("source = \"coder/coder\""), "{name}");
        let page = std::fs::read_to_string(root().join(&name).join("README.md")).unwrap();
        assert!(page.starts_with(&format!("# {name}\n")), "{name}");
    }
}

#[test]
fn every_example_is_formatted() {
    coder_requirements::require!(Terraform);
    let mut command = Command::new("terraform");
    command.args(["fmt", "-check", "-diff", "-recursive"]).arg(root()).env("CHECKPOINT_DISABLE", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
