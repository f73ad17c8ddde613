//! Template commands other than push: pull, edit, promote, archive, presets.

use crate::end_to_end::{json, write};
use crate::processes::Server;

const FIRST_VERSION: &str = r#"
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_parameter" "size" {
  name    = "size"
  default = "small"
}
data "coder_workspace_preset" "big" {
  name       = "Big"
  parameters = { (data.coder_parameter.size.name) = "large" }
}
"#;

#[test]
fn a_template_is_pulled_edited_promoted_and_archived() {
    coder_requirements::require!(Terraform);
    let server = Server::start(&["--provisioner-daemons=1"]);
    let home = server.first_user();
    let source = write(&home, "source", FIRST_VERSION);
    let push = |version: &str| {
        home.run(&["templates", "push", "plain", "-d", &source, "--name", version, "-y"]).success();
    };
    push("v1");
    let main = std::path::Path::new(&source).join("main.tf");
    std::fs::write(&main, format!("{FIRST_VERSION}# second\n")).unwrap();
    push("v2");

    home.run(&["templates", "pull", "plain"]).success();
    let pulled = |path: &str| std::fs::read_to_string(home.path().join(path).join("main.tf")).unwrap();
    assert!(pulled("plain").ends_with("# second\n"), "the active version");
    home.run(&["templates", "pull", "plain"]).refused("pass --yes");
    home.run(&["templates", "pull", "plain", "old", "--version", "v1"]).success();
    assert_eq!(pulled("old"), FIRST_VERSION);
    home.run(&["templates", "pull", "plain", "--version", "v3"])
        .refused("template plain has no version \"v3\"");
    home.run(&["templates", "pull", "pluin"]).refused("did you mean \"plain\"?");
    assert!(home.run(&["templates", "pull", "plain", "--tar"]).success().out.contains("# second"));

    let promote = ["templates", "versions", "promote", "--template", "plain", "--template-version", "v1"];
    home.run(&promote).success();
    let active = home.run(&["templates", "versions", "list", "plain", "-c", "name,active"]).success().out;
    assert!(active.contains("v1    active"), "{active}");
    let versions = |args: &[&str]| home.run(&[&["templates", "versions"], args].concat());
    versions(&["archive", "plain", "v2"]).refused("pass --yes");
    versions(&["archive", "plain", "v2", "-y"]).success();
    assert!(!versions(&["list", "plain"]).success().out.contains("v2"));
    versions(&["unarchive", "plain", "v2", "-y"]).success();
    assert!(versions(&["list", "plain"]).success().out.contains("v2"));
    let archived = home.run(&["templates", "archive", "plain", "--all", "-y"]).success().err;
    assert!(archived.contains("Archived 1 version of template plain."), "{archived}");

    home.run(&["templates", "edit", "plain", "-y"]).refused("nothing to change");
    let edit = ["templates", "edit", "plain", "--display-name", "Plain", "--default-ttl", "2h", "-y"];
    home.run(&edit).success();
    let template = &json(&home, &["templates", "list"])[0]["Template"];
    assert_eq!(
        (template["display_name"].as_str(), template["default_ttl_ms"].as_i64()),
        (Some("Plain"), Some(7_200_000))
    );
    home.run(&["templates", "edit", "plain", "--description", "text", "-y"]).success();
    let template = &json(&home, &["templates", "list"])[0]["Template"];
    assert_eq!(template["default_ttl_ms"], 7_200_000, "settings that are not given stay the same");

    let presets = home.run(&["templates", "presets", "list", "plain"]).success().out;
    assert!(
        presets.starts_with("NAME") && presets.contains("Big") && presets.contains("size=large"),
        "{presets}"
    );
    assert_eq!(json(&home, &["templates", "presets", "list", "plain"])[0]["TemplatePreset"]["Name"], "Big");
    let slip = home.run(&["create", "w", "-t", "plain", "--preset", "none", "--parameter", "sise=1", "-y"]);
    slip.refused("the template has no parameter \"sise\": did you mean \"size\"?");
}

#[test]
fn a_workspace_gets_the_parameter_values_of_another_one() {
    coder_requirements::require!(Terraform);
    let server = Server::start(&["--provisioner-daemons=1"]);
    let home = server.first_user();
    let size = "resource \"terraform_data\" \"x\" {\n  input = data.coder_parameter.size.value\n}\n";
    let source = write(&home, "source", &format!("{FIRST_VERSION}{size}"));
    home.run(&["templates", "push", "plain", "-d", &source, "-y"]).success();
    let create = |name: &str, args: &[&str]| {
        home.run(&[&["create", name, "-t", "plain", "--preset", "none", "-y"], args].concat()).success();
        home.run(&["state", "pull", name]).success().out
    };
    assert!(create("first", &["--parameter", "size=medium"]).contains("\"medium\""));
    assert!(create("second", &["--copy-parameters-from", "first"]).contains("\"medium\""));
    let own = create("third", &["--copy-parameters-from", "first", "--parameter", "size=tiny"]);
    assert!(own.contains("\"tiny\"") && !own.contains("\"medium\""), "{own}");
    let absent = ["create", "fourth", "-t", "plain", "--copy-parameters-from", "absent", "-y"];
    home.run(&absent).refused("there is no workspace \"absent\"");
}

#[test]
fn private_templates_are_for_their_administrators() {
    coder_requirements::require!(Terraform);
    let server = Server::start(&["--provisioner-daemons=1"]);
    let home = server.first_user();
    let source = write(&home, "source", FIRST_VERSION);
    let user = ["users", "create", "-u", "ann", "-e", "ann@example.com", "-p", "Not-Guessed-Today-42"];
    home.run(&user).success();
    let token = home.run(&["tokens", "create", "--user", "ann"]).success().out;
    let seen = || home.run(&["templates", "list", "--token", token.trim(), "-c", "name"]).success().out;
    home.run(&["templates", "create", "hidden", "-d", &source, "--private", "-y"]).success();
    home.run(&["templates", "create", "open", "-d", &source, "-y"]).success();
    assert!(seen().contains("open") && !seen().contains("hidden"), "{}", seen());
    home.run(&["templates", "edit", "open", "--private", "-y"]).success();
    assert_eq!(seen(), "");
}
