//! Daemons with several versions of Terraform, and with OpenTofu.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use coder_provisioner::TerraformSource;
use coder_requirements::Requirement;
use coder_wire::extension::Extensions;
use coder_wire::messages::provisioner::WorkspaceTransition;
use coder_wire::messages::provisionerd as pb;
use pb::completed_job::Type;

use crate::fake_server::Server;
use crate::fixture::{HELLO, PLAIN, Running, build, dry_run, import, start, tar, terraform};

/// The path of OpenTofu; without it the test is skipped.
#[track_caller]
fn tofu() -> Option<PathBuf> {
    coder_requirements::program(Requirement::Tofu)
}

/// Programs that report a given version, and otherwise exec the machine's Terraform; they remove what it would
/// reject.
fn pretend(dir: &Path, real: &Path, versions: &[&str]) {
    use std::os::unix::fs::PermissionsExt as _;
    for version in versions {
        let path = dir.join(version).join("terraform");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text = format!(
            "#!/bin/sh\necho \"$1\" >> '{}/calls'\ncase \"$1\" in version) echo '{{\"terraform_version\":\"{version}\"}}';; *) sed -i /required_version/d ./*.tf; exec '{}' \"$@\";; esac\n",
            path.parent().unwrap().display(),
            real.display(),
        );
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_gets_the_newest_version_that_it_accepts() {
    let real = coder_requirements::require!(program Terraform);
    let (server, dir) = (Server::new(), tempfile::tempdir().unwrap());
    pretend(dir.path(), &real, &["1.5.7", "1.9.8", "1.10.5", "1.12.0-rc1"]);
    let _running = Running::with(&server, |config, _| {
        config.terraform = TerraformSource::Paths(vec![dir.path().to_owned()]);
        config.slots = 4;
    });
    let block =
        |constraint: &str| format!("terraform {{\n  required_version = \"{constraint}\"\n}}\n{PLAIN}");
    let cases = [(">= 1.0", "1.10.5"), ("~> 1.5.0", "1.5.7"), ("< 1.10", "1.9.8"), (">= 1.12", "1.12.0-rc1")];
    for (constraint, _) in cases.iter().chain(&cases[..1]) {
        server.give(start(tar(&[("main.tf", &block(constraint))])));
    }
    let over = |record: &crate::fake_server::Record| record.completed.len() + record.failed.len() == 5;
    let record = server.wait_for("all builds", over).await;
    assert!(record.failed.is_empty(), "{:?}", record.failed);
    for (_, version) in cases {
        let used =
            record.lines().filter(|line| line.output.starts_with(&format!("Using Terraform {version} (")));
        assert_eq!(used.count(), 1 + usize::from(version == cases[0].1), "{version}");
        let calls = std::fs::read_to_string(dir.path().join(version).join("calls")).unwrap();
        assert_eq!(calls.lines().filter(|call| *call == "version").count(), 1, "{version}");
    }
    server.give(start(tar(&[("main.tf", PLAIN), ("more.tf", &block("~> 1.6.0").replace(PLAIN, ""))])));
    let record =
        server.wait_for("the failure", |record| record.completed.len() + record.failed.len() == 6).await;
    let error = &record.failed.last().unwrap().error;
    for wanted in ["\"~> 1.6.0\" (more.tf:2)", "Terraform 1.5.7", "Terraform 1.10.5", "--terraform-path"] {
        assert!(error.contains(wanted), "{error}");
    }
}

/// Import, dry run, start, stop and delete, as with Terraform.
#[tokio::test(flavor = "multi_thread")]
async fn opentofu_does_what_terraform_does() {
    let tofu = coder_requirements::require!(program Tofu);
    let server = Server::new();
    let _running = Running::with(&server, |config, _| {
        config.terraform = TerraformSource::File(tofu.clone());
    });
    // A constraint for Terraform's versions does not matter.
    let text = HELLO.replace("terraform {", "terraform {\n  required_version = \">= 1.0\"");
    let archive = tar(&[("main.tf", &text)]);
    let over = |count: usize| {
        move |record: &crate::fake_server::Record| record.completed.len() + record.failed.len() == count
    };
    server.give(import(archive.clone(), &[]));
    let record = server.wait_for("the import", over(1)).await;
    assert!(record.failed.is_empty(), "{:?}", record.failed);
    assert!(record.has_line("Using OpenTofu "));
    let Some(Type::TemplateImport(imported)) = &record.completed[0].r#type else { panic!("no import") };
    let names = |resources: &[coder_wire::messages::provisioner::Resource]| {
        resources.iter().map(|resource| format!("{}.{}", resource.r#type, resource.name)).collect::<Vec<_>>()
    };
    assert_eq!(names(&imported.start_resources), ["terraform_data.machine"]);
    assert_eq!(imported.start_resources[0].agents.len(), 1);
    assert_eq!(imported.start_resources[0].agents[0].apps.len(), 1);
    assert!(names(&imported.stop_resources).is_empty());
    assert_eq!(imported.rich_parameters.len(), 1);

    server.give(dry_run(archive.clone(), "us"));
    let record = server.wait_for("the dry run", over(2)).await;
    assert!(record.failed.is_empty(), "{:?}", record.failed);

    let mut state = Bytes::new();
    let turns = [
        (WorkspaceTransition::Start, 1),
        (WorkspaceTransition::Stop, 0),
        (WorkspaceTransition::Start, 1),
        (WorkspaceTransition::Destroy, 0),
    ];
    for (count, (transition, resources)) in (3..).zip(turns) {
        server.give(build(archive.clone(), transition, state.clone()));
        let record = server.wait_for("a build", over(count)).await;
        assert!(record.failed.is_empty(), "{transition:?}: {:?}", record.failed);
        let Some(Type::WorkspaceBuild(built)) = &record.completed[count - 1].r#type else {
            panic!("no build")
        };
        assert_eq!(built.resources.len(), resources, "{transition:?}");
        state = built.state.clone();
    }
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
    assert_eq!(state["resources"].as_array().unwrap().len(), 0, "{state}");
    let record = server.record();
    assert!(!record.lines().any(|line| line.output.starts_with('{')), "every event is shown in words");
}

#[tokio::test(flavor = "multi_thread")]
async fn terraform_comes_before_opentofu_unless_the_template_is_opentofus() {
    let (Some(real), Some(tofu)) = (terraform(), tofu()) else { return };
    let server = Server::new();
    server.extended().grant(Extensions::ALL);
    let _running = Running::with(&server, |config, _| {
        config.terraform = TerraformSource::Paths(vec![tofu.clone(), real.clone()]);
    });
    let more = "terraform {\n  required_version = \">= 1.6\"\n}\n";
    for (count, (files, wanted)) in (1..).zip([
        (vec![("main.tf", PLAIN)], "Using Terraform "),
        (vec![("main.tf", PLAIN), ("more.tofu", more)], "Using OpenTofu "),
    ]) {
        server.give(start(tar(&files)));
        let record = server.wait_for("a build", |record| record.completed.len() == count).await;
        assert!(record.has_line(wanted), "{wanted}");
        // The server receives what the log says.
        let [.., told] = &record.programs[..] else { panic!("no report") };
        let product = if told.product == "opentofu" { "OpenTofu" } else { "Terraform" };
        assert!(record.has_line(&format!("Using {product} {} (", told.version)), "{told:?}");
        assert!(wanted.contains(product) && record.programs.len() == count);
    }
}

/// All of a template's files are OpenTofu's own, or have a counterpart for Terraform.
#[tokio::test(flavor = "multi_thread")]
async fn templates_of_opentofus_own_files_import_and_build() {
    let (Some(real), Some(tofu)) = (terraform(), tofu()) else { return };
    let server = Server::new();
    let _running = Running::with(&server, |config, _| {
        config.terraform = TerraformSource::Paths(vec![real.clone(), tofu.clone()]);
    });
    let broken = "resource \"terraform_data\" \"machine\" {\n  input = nothing.of.the.kind\n}\n";
    let only = tar(&[("main.tofu", HELLO)]);
    let mixed = tar(&[("main.tf", broken), ("main.tofu", HELLO)]);
    for (count, archive) in (1..).zip([only, mixed]) {
        server.give(import(archive.clone(), &[]));
        let over = |record: &crate::fake_server::Record| {
            record.completed.len() + record.failed.len() == 2 * count - 1
        };
        let record = server.wait_for("the import", over).await;
        assert!(record.failed.is_empty(), "{:?}", record.failed);
        let Some(Type::TemplateImport(imported)) = &record.completed[2 * count - 2].r#type else {
            panic!("no import")
        };
        assert_eq!(imported.start_resources[0].agents.len(), 1);
        assert_eq!(imported.rich_parameters[0].name, "region");
        let update = record.updates.iter().rfind(|update| !update.template_variables.is_empty()).unwrap();
        assert_eq!(update.template_variables[0].name, "greeting");
        assert!(update.workspace_tags.contains_key("fixed"), "{:?}", update.workspace_tags);
        server.give(start(archive));
        let over =
            |record: &crate::fake_server::Record| record.completed.len() + record.failed.len() == 2 * count;
        let record = server.wait_for("the build", over).await;
        assert!(record.failed.is_empty(), "{:?}", record.failed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_opentofu_its_files_are_the_named_cause_unless_terraform_has_its_own() {
    let real = coder_requirements::require!(program Terraform);
    let server = Server::new();
    let _running = Running::with(&server, |config, _| {
        config.terraform = TerraformSource::File(real.clone());
    });
    server.give(import(tar(&[("main.tofu", HELLO)]), &[]));
    let record = server.wait_for("the failure", |record| !record.failed.is_empty()).await;
    let error = &record.failed[0].error;
    for wanted in
        ["the template requires OpenTofu, because only it reads main.tofu", "Terraform ", "--terraform-path"]
    {
        assert!(error.contains(wanted), "{error}");
    }
    let broken = "resource \"terraform_data\" \"machine\" {\n  input = nothing.of.the.kind\n}\n";
    server.give(import(tar(&[("main.tf", HELLO), ("main.tofu", broken)]), &[]));
    let record =
        server.wait_for("the import", |record| record.completed.len() + record.failed.len() == 2).await;
    assert_eq!(record.completed.len(), 1, "{:?}", record.failed);
}
