//! Template imports and dry runs.

use coder_wire::messages::provisioner::ParameterFormType;
use coder_wire::messages::provisionerd::completed_job::Type;

use crate::fake_server::{Answer, Server};
use crate::fixture::{HELLO, PLAIN, Running, dry_run, import, run_one, start, tar};

#[tokio::test(flavor = "multi_thread")]
async fn an_import_reports_what_the_template_asks_for_and_makes() {
    coder_requirements::require!(Terraform);
    let archive = tar(&[("main.tf", HELLO), ("README.md", "# Hello"), ("files/deep/x.txt", "x")]);
    let (server, _running) = run_one(import(archive, &[("greeting", "hey")])).await;
    let (record, result) = server.completed().await;
    let Type::TemplateImport(result) = result else { panic!("not an import") };

    let parsed = record.updates.iter().find(|update| !update.template_variables.is_empty()).unwrap();
    assert_eq!(parsed.template_variables[0].name, "greeting");
    assert_eq!(parsed.template_variables[0].default_value, "hello");
    assert_eq!(parsed.user_variable_values[0].value, "hey");
    assert_eq!(parsed.readme, "# Hello");
    assert_eq!(parsed.workspace_tags["region"], "data.coder_parameter.region.value");
    assert_eq!(parsed.workspace_tags["fixed"], "\"yes\"");

    assert_eq!(result.start_resources.len(), 1);
    let machine = &result.start_resources[0];
    assert_eq!((machine.r#type.as_str(), machine.name.as_str()), ("terraform_data", "machine"));
    assert_eq!(machine.agents[0].name, "main");
    assert_eq!(machine.agents[0].apps[0].slug, "code");
    assert_eq!(machine.agents[0].scripts[0].script, "echo hey", "the value given by the user counts");
    assert!(result.stop_resources.is_empty(), "the machine has no instance while the workspace is stopped");
    assert_eq!(result.rich_parameters[0].name, "region");
    assert_eq!(result.rich_parameters[0].options.len(), 2);
    assert_eq!(result.rich_parameters[0].form_type(), ParameterFormType::Radio);
    assert!(serde_json::from_slice::<serde_json::Value>(&result.plan).unwrap()["planned_values"].is_object());

    let stages = record.stages();
    let expected = [
        "Setting up",
        "Initializing Terraform Directory",
        "Parsing template parameters",
        "Detecting persistent resources",
        "Detecting ephemeral resources",
        "Cleaning Up",
    ];
    assert_eq!(stages, expected);
    assert!(record.updates.iter().all(|update| update.job_id == record.completed[0].job_id));
}

/// A module that passes on what its caller may omit, like region modules of the public registry.
const REGION: &str = r#"
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
variable "default" { default = "" }
data "coder_parameter" "region" {
  name    = "region"
  default = var.default == "" ? null : var.default
  dynamic "option" {
    for_each = toset(["eu", "us"])
    content {
      name  = option.value
      value = option.value
    }
  }
}
data "coder_parameter" "empty" {
  name    = "empty"
  default = var.default
}
data "coder_parameter" "must" {
  name = "must"
}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn only_a_parameter_without_a_default_is_required() {
    coder_requirements::require!(Terraform);
    let archive = tar(&[
        ("main.tf", "module \"region\" {\n  count  = 1\n  source = \"./region\"\n}\n"),
        ("region/main.tf", REGION),
    ]);
    let (server, _running) = run_one(import(archive, &[])).await;
    let (_, result) = server.completed().await;
    let Type::TemplateImport(result) = result else { panic!("not an import") };
    let mut required: Vec<_> =
        result.rich_parameters.iter().map(|one| (one.name.as_str(), one.required)).collect();
    required.sort_unstable();
    assert_eq!(required, [("empty", false), ("must", true), ("region", false)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_uses_the_values_it_was_given() {
    coder_requirements::require!(Terraform);
    let (server, running) = run_one(dry_run(tar(&[("main.tf", HELLO)]), "us")).await;
    let (_, result) = server.completed().await;
    let Type::TemplateDryRun(result) = result else { panic!("not a dry run") };
    assert_eq!(result.resources[0].agents[0].scripts[0].script, "echo hi");
    running.status.wait_for(|status| !status.is_busy()).await.unwrap();
    assert_eq!(running.sessions(), 0, "nothing of the job stays on the disk");
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_do_not_fit_a_parameter_fail_with_its_words() {
    coder_requirements::require!(Terraform);
    let (server, _running) = run_one(dry_run(tar(&[("main.tf", HELLO)]), "mars")).await;
    let (_, failed) = server.failed().await;
    assert!(
        failed.error.starts_with("run dry-run provision job: terraform plan: exit status 1: "),
        "{}",
        failed.error
    );
    assert!(failed.error.contains("mars"), "{}", failed.error);
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_of_any_type_arrive_and_never_show_in_a_process_list() {
    let real = coder_requirements::require!(program Terraform);
    let template = r#"
variable "secret" {
  type      = string
  sensitive = true
}
variable "list" { type = list(string) }
variable "texts" {
  type    = list(string)
  default = ["$${not}", "%%{one}"]
}
variable "count_of" { type = number }
resource "terraform_data" "a" {
  count = var.count_of
  input = join("-", concat(var.list, var.texts))
  triggers_replace = sha256(var.secret)
}
"#;
    let server = Server::new();
    let running = Running::with_stand_in(
        &server,
        &real,
        "echo \"$@\" >> \"$(dirname \"$0\")/calls\"\nexec \"$REAL\" \"$@\"",
    );
    let values = [("secret", "hunter2 \"${x}\""), ("list", "[\"a\", \"b\"]"), ("count_of", "2")];
    server.give(import(tar(&[("main.tf", template)]), &values));
    let (record, result) = server.completed().await;
    let Type::TemplateImport(result) = result else { panic!("not an import") };
    assert_eq!(result.start_resources.len(), 2);
    let plan = String::from_utf8(result.plan.to_vec()).unwrap();
    assert!(plan.contains("\"a-b-${not}-%{one}\""), "{plan}");
    let parsed = record.updates.iter().find(|update| !update.template_variables.is_empty()).unwrap();
    let texts = parsed.template_variables.iter().find(|variable| variable.name == "texts").unwrap();
    assert_eq!(texts.default_value, r#"["${not}","%{one}"]"#);
    let calls = std::fs::read_to_string(running.dir.path().join("calls")).unwrap();
    assert!(!calls.contains("hunter2"), "{calls}");
    assert!(!record.has_line("hunter2"));
    assert_eq!(calls.matches("version").count(), 1, "the version is asked once: {calls}");
    assert_eq!(calls.matches("graph").count(), 1, "the graph is made once: {calls}");
    assert_eq!(calls.matches("show").count(), 2, "each plan is shown once: {calls}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_variables_carry_their_error_code() {
    coder_requirements::require!(Terraform);
    let template = "variable \"needed\" {\n  type = string\n}\n";
    let (server, _running) = run_one(import(tar(&[("main.tf", template)]), &[])).await;
    let (_, failed) = server.failed().await;
    assert_eq!(failed.error_code, "REQUIRED_TEMPLATE_VARIABLES");
    assert!(failed.error.contains("required template variables"), "{}", failed.error);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_too_large_for_a_message_are_a_clean_failure() {
    let real = coder_requirements::require!(program Terraform);
    // Module files are uploaded separately; the rest is still too large and must fail.
    let script = r#"
"$REAL" "$@" || exit $?
case "$1" in
init)
  mkdir -p .terraform/modules/m
  head -c 4300000 /dev/zero > .terraform/modules/m/data
  echo '{"Modules":[{"Key":"m","Source":"git::x","Dir":".terraform/modules/m"}]}' > .terraform/modules/modules.json
  ;;
esac"#;
    let server = Server::new();
    let _running = Running::with_stand_in(&server, &real, script);
    server.give(import(tar(&[("main.tf", PLAIN)]), &[]));
    let record = server.wait_for("the end of the job", crate::fake_server::Record::is_over).await;
    assert_eq!(record.uploads.len(), 1);
    let Some(Type::TemplateImport(result)) = &record.completed[0].r#type else { panic!("not an import") };
    assert!(result.module_files.is_empty());
    assert_eq!(result.module_files_hash.len(), 32);

    let server = Server::new();
    let _running = Running::with_stand_in(&server, &real, script);
    // Three million characters, which the plan's JSON contains twice.
    let part = "x".repeat(3000);
    let template = format!(
        "resource \"terraform_data\" \"a\" {{\n  input = join(\"\", [for i in range(1000) : \"{part}\"])\n}}\n"
    );
    server.give(import(tar(&[("main.tf", &template)]), &[]));
    let (_, failed) = server.failed().await;
    assert!(failed.error.contains("make the template smaller"), "{}", failed.error);
}

#[tokio::test(flavor = "multi_thread")]
async fn modules_kept_with_a_version_are_unpacked_before_init() {
    coder_requirements::require!(Terraform);
    let manifest = r#"{"Modules":[{"Key":"","Source":"","Dir":"."},{"Key":"m","Source":"registry.invalid/x/y/z","Version":"1.0.0","Dir":".terraform/modules/m"}]}"#;
    let files =
        tar(&[(".terraform/modules/m/main.tf", PLAIN), (".terraform/modules/modules.json", manifest)]);
    let template = "module \"m\" {\n  source  = \"registry.invalid/x/y/z\"\n  version = \"1.0.0\"\n}\n";
    let mut job = start(tar(&[("main.tf", template)]));
    let id = uuid::Uuid::new_v4().to_string();
    crate::fixture::edit_build(&mut job, |build| {
        build.metadata.as_mut().unwrap().template_version_modules_file = id;
    });
    let server = Server::new();
    server.set_module_files(files);
    let running = Running::start(&server);
    server.give(job.clone());
    let (_, result) = server.completed().await;
    let Type::WorkspaceBuild(result) = result else { panic!("not a build") };
    assert_eq!(result.resources[0].module_path, "module.m");
    assert_eq!(result.modules[0].key, "m");
    // They are cached for later builds of the version; missing and changed ones are downloaded.
    let over = |count: usize| {
        move |record: &crate::fake_server::Record| record.completed.len() + record.failed.len() == count
    };
    for _ in 0..3 {
        server.give(job.clone());
    }
    let record = server.wait_for("more builds", over(4)).await;
    assert_eq!((record.completed.len(), record.downloads), (4, 1), "{:?}", record.failed);
    let content = running.dir.path().join("cache/files/content");
    let kept: Vec<_> = std::fs::read_dir(content).unwrap().map(|entry| entry.unwrap().path()).collect();
    std::fs::write(&kept[0], "forged").unwrap();
    server.give(job.clone());
    let record = server.wait_for("one more build", over(5)).await;
    assert_eq!((record.completed.len(), record.downloads), (5, 2), "{:?}", record.failed);

    let server = Server::new();
    let _running = Running::start(&server);
    server.give(job);
    let (_, failed) = server.failed().await;
    assert!(failed.error.contains("no such file"), "{}", failed.error);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_closed_without_an_answer_is_made_again() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    let mut closed = 0;
    server.script(move |update| {
        let parsing = !update.template_variables.is_empty();
        if parsing && closed < 3 {
            closed += 1;
            return Some(Answer::Close);
        }
        None
    });
    let _running = Running::start(&server);
    let template = format!("variable \"v\" {{\n  default = \"1\"\n}}\n{PLAIN}");
    server.give(import(tar(&[("main.tf", &template)]), &[]));
    let (record, _) = server.completed().await;
    assert_eq!(record.updates.iter().filter(|update| !update.template_variables.is_empty()).count(), 1);
    assert_eq!(server.connects(), 1);
}
