//! Parameters that depend on each other.

use coder_domain::parameter::Definition;
use coder_source::{Inputs, Owner, Parameter};

use crate::{map, template};

const DEPENDENT: &str = r#"
variable "sizes" { default = { eu = ["s", "l"], us = ["s"] } }
locals { sizes = var.sizes[data.coder_parameter.region.value] }
data "coder_parameter" "region" {
  name    = "region"
  default = "eu"
}
data "coder_parameter" "size" {
  name    = "size"
  default = local.sizes[length(local.sizes) - 1]
  mutable = true
  dynamic "option" {
    for_each = local.sizes
    iterator = each_size
    content {
      name  = upper(each_size.value)
      value = "${each_size.key}-${each_size.value}"
    }
  }
  option {
    name  = "Other"
    value = "other"
  }
}
data "coder_parameter" "threads" {
  count = data.coder_parameter.region.value == "us" ? 2 : 0
  name  = "threads-${count.index}"
  type  = "number"
  validation {
    min   = count.index
    error = "too few"
  }
}
"#;

fn named(parameters: &[Parameter], name: &str) -> Option<Definition> {
    parameters.iter().find(|parameter| parameter.name == name).map(|found| found.definition.clone().unwrap())
}

#[test]
fn only_a_default_that_is_not_written_makes_a_parameter_required() {
    let template = template(&[(
        "main.tf",
        r#"
variable "region" { default = "" }
data "coder_parameter" "none" { name = "none" }
data "coder_parameter" "literal" {
  name    = "literal"
  default = null
}
data "coder_parameter" "null" {
  name    = "null"
  default = var.region == "" ? null : var.region
}
data "coder_parameter" "empty" {
  name    = "empty"
  default = var.region
}
"#,
    )]);
    let found = template.parameters(&Inputs::default()).unwrap();
    let required = ["none", "literal", "null", "empty"].map(|name| named(&found, name).unwrap().required);
    assert_eq!(required, [true, true, false, false]);
}

#[test]
fn existence_defaults_options_and_bounds_follow_values() {
    let template = template(&[("main.tf", DEPENDENT)]);
    assert!(template.has_dependent_parameters());
    let with = |values: &[(&str, &str)]| {
        template.parameters(&Inputs { parameters: map(values), ..Inputs::default() }).unwrap()
    };
    let found = with(&[]);
    let size = named(&found, "size").unwrap();
    assert_eq!((size.default_value.as_str(), size.required, size.mutable), ("l", false, true));
    assert_eq!(size.options, ["0-s", "1-l", "other"]);
    assert_eq!(named(&found, "threads-0"), None);

    let found = with(&[("region", "us")]);
    let size = named(&found, "size").unwrap();
    assert_eq!(
        (size.default_value.as_str(), size.options),
        ("s", vec!["0-s".to_owned(), "other".to_owned()])
    );
    let threads = named(&found, "threads-1").unwrap();
    assert_eq!((threads.kind.as_str(), threads.required), ("number", true));
    assert_eq!((threads.validation_min, threads.validation_max), (Some(1), None));
    assert_eq!(threads.validation_error, "too few");
}

#[test]
fn values_that_only_terraform_knows_stay_unknown() {
    let some = r#"data "coder_parameter" "a" {
      name    = "a"
      default = null_resource.x.id
    }"#;
    let found = template(&[("main.tf", some)]).parameters(&Inputs::default()).unwrap();
    assert_eq!(found, [Parameter { name: "a".to_owned(), definition: None }]);
    let count = r#"data "coder_parameter" "a" {
      count = length(null_resource.x)
      name  = "a"
    }"#;
    assert_eq!(template(&[("main.tf", count)]).parameters(&Inputs::default()), None);
}

#[test]
fn json_and_override_files_have_options_too() {
    let json = r#"{"data":{"coder_parameter":{"a":{"name":"a","default":"${data.coder_parameter.b.value}",
        "option":[{"name":"A","value":"x${1 + 1}"},{"name":"B","value":"b"}]},"b":{"name":"b","default":"b"}}}}"#;
    let found = template(&[("main.tf.json", json)]).parameters(&Inputs::default()).unwrap();
    let a = named(&found, "a").unwrap();
    assert_eq!((a.default_value.as_str(), a.options), ("b", vec!["x2".to_owned(), "b".to_owned()]));
    let over = r#"data "coder_parameter" "size" {
      option {
        name  = "Only"
        value = "only"
      }
    }"#;
    let found = template(&[("main.tf", DEPENDENT), ("override.tf", over)]);
    let found = found.parameters(&Inputs::default()).unwrap();
    assert_eq!(named(&found, "size").unwrap().options, ["only"]);
}

#[test]
fn modules_may_come_with_values() {
    for (attributes, expected) in [
        ("count = data.coder_parameter.ide.value == \"jetbrains\" ? 1 : 0", true),
        ("for_each = local.ides", true),
        ("agent_id = coder_agent.main.id", false),
    ] {
        let main = format!(
            "locals {{ ides = toset([data.coder_parameter.ide.value]) }}\n\
             data \"coder_parameter\" \"ide\" {{ name = \"ide\" }}\nmodule \"m\" {{\nsource = \"./m\"\n{attributes}\n}}\n"
        );
        let found = template(&[("main.tf", main.as_str())]);
        assert_eq!(found.has_dependent_modules(), expected, "{attributes}");
        assert_eq!(found.has_dependent_parameters(), expected, "{attributes}");
    }
    let json = r#"{"module":{"m":{"source":"./m","count":"${data.coder_parameter.a.value}"}}}"#;
    assert!(template(&[("main.tf.json", json)]).has_dependent_modules());
}

#[test]
fn owners_have_parameters_of_their_own() {
    let some = r#"
locals { is_admin = contains(data.coder_workspace_owner.me.rbac_roles[*].name, "owner") }
data "coder_parameter" "root" {
  count   = local.is_admin ? 1 : 0
  name    = "root"
  default = data.coder_workspace_owner.me.email
}
"#;
    let template = template(&[("main.tf", some)]);
    assert!(template.has_dependent_parameters() && template.may_refer_to_owner());
    let of = |owner: Option<Owner>| template.parameters(&Inputs { owner, ..Inputs::default() });
    assert_eq!(of(None), None, "without an owner nothing is known");
    assert_eq!(of(Some(Owner::for_import(vec!["Everyone".to_owned()]))), Some(vec![]));
    let admin = Owner {
        email: "a@b.co".to_owned(),
        rbac_roles: vec![("owner".to_owned(), String::new())],
        ..Owner::default()
    };
    let found = of(Some(admin)).unwrap();
    assert_eq!(named(&found, "root").unwrap().default_value, "a@b.co");
}

#[test]
fn independent_parameters_are_known() {
    let alone = r#"
locals { where = "here" }
data "coder_parameter" "a" {
  name    = "a"
  default = local.where
}
data "coder_workspace_tags" "t" { 
  tags = { a = data.coder_parameter.a.value } 
}
"#;
    let found = template(&[("main.tf", alone)]);
    assert!(!found.has_dependent_parameters() && !found.may_refer_to_owner());
}

#[test]
fn definitions_have_what_blocks_say() {
    let some = r#"
data "coder_parameter" "p" {
  name      = "p"
  type      = "number"
  default   = 3
  mutable   = "true"
  ephemeral = true
  validation {
    regex     = "^a"
    error     = "no"
    monotonic = "increasing"
    min       = -1
    max       = "9"
  }
  option {
    value = 3
  }
  option {
    name = "no value"
  }
}
data "coder_parameter" "q" {
  name    = "q"
  mutable = null
  dynamic "validation" {
    for_each = { low = 2 }
    content {
      min   = validation.value
      error = validation.key
    }
  }
  dynamic "option" {
    for_each = toset(["b", "a"])
    content {
      value = "${option.key}${option.value}"
    }
  }
  dynamic "option" {
    for_each = []
    content {
      value = "none"
    }
  }
}
"#;
    let found = template(&[("main.tf", some)]).parameters(&Inputs::default()).unwrap();
    let p = Definition {
        name: "p".to_owned(),
        kind: "number".to_owned(),
        mutable: true,
        ephemeral: true,
        default_value: "3".to_owned(),
        options: vec!["3".to_owned(), String::new()],
        validation_regex: "^a".to_owned(),
        validation_error: "no".to_owned(),
        validation_monotonic: "increasing".to_owned(),
        validation_min: Some(-1),
        validation_max: Some(9),
        ..Definition::default()
    };
    assert_eq!(named(&found, "p"), Some(p));
    let q = Definition {
        name: "q".to_owned(),
        kind: "string".to_owned(),
        required: true,
        options: vec!["aa".to_owned(), "bb".to_owned()],
        validation_error: "low".to_owned(),
        validation_min: Some(2),
        ..Definition::default()
    };
    assert_eq!(named(&found, "q"), Some(q));
}

/// The definition of one parameter with these lines; none when only Terraform can know it.
fn definition(lines: &str) -> Option<Definition> {
    let main = format!("data \"coder_parameter\" \"p\" {{\n  name = \"p\"\n{lines}\n}}\n");
    let found = template(&[("main.tf", &main)]).parameters(&Inputs::default()).unwrap();
    assert_eq!(found.len(), 1);
    found.into_iter().next().unwrap().definition
}

#[test]
fn a_definition_with_an_invalid_part_is_left_to_terraform() {
    assert!(definition("mutable = true").is_some());
    for lines in [
        "mutable = 5",
        "default = null_resource.x.id",
        "default = [1]",
        "default = uuid()",
        "validation {\n min = 1.5\n}",
        "validation {\n max = 4294967296\n}",
        "validation {\n regex = [1]\n}",
        "option {\n value = null_resource.x.id\n}",
        "dynamic \"option\" {\n for_each = null_resource.x\n content {\n value = 1\n }\n}",
        "option = 5",
    ] {
        assert_eq!(definition(lines), None, "{lines}");
    }
    // Two validations are one too many: none counts.
    let two = definition("validation {\n min = 1\n}\nvalidation {\n min = 2\n}").unwrap();
    assert_eq!(two.validation_min, None);
    // A block without a content has no options.
    let without = definition("dynamic \"option\" {\n for_each = [1]\n}\ndynamic {\n}").unwrap();
    assert_eq!(without.options, [] as [String; 0]);
}

#[test]
fn options_in_json_are_one_or_many() {
    let options = |options: &str| {
        let json = format!(r#"{{"data":{{"coder_parameter":{{"a":{{"name":"a",{options}}}}}}}}}"#);
        let found = template(&[("main.tf.json", &json)]).parameters(&Inputs::default()).unwrap();
        found[0].definition.clone().map(|definition| definition.options)
    };
    assert_eq!(options(r#""option":{"value":"one"}"#), Some(vec!["one".to_owned()]));
    assert_eq!(
        options(r#""option":[{"value":"one"},{"name":"x"}]"#),
        Some(vec!["one".to_owned(), String::new()])
    );
    assert_eq!(options(r#""option":null"#), Some(vec![]));
    assert_eq!(options(r#""dynamic":{"option":{"for_each":[1],"content":{"value":"x"}}}"#), None);
}

#[test]
fn what_may_depend_on_values_or_the_owner_is_found_in_every_part() {
    let parameter = |lines: &str| format!("data \"coder_parameter\" \"p\" {{\n  name = \"p\"\n{lines}\n}}\n");
    let reference = "data.coder_parameter.q.value";
    let owner = "data.coder_workspace_owner.me.name";
    for (main, depends, owned) in [
        (parameter(""), false, false),
        (parameter("default = local.x") + "locals {\n  y = 1\n}\n", false, false),
        (parameter(&format!("default = {reference}")), true, false),
        (parameter(&format!("default = {owner}")), true, true),
        (parameter(&format!("option {{\n value = {reference}\n}}")), true, false),
        (parameter(&format!("option {{\n value = {owner}\n}}")), true, true),
        (
            parameter(&format!(
                "dynamic \"option\" {{\n for_each = {reference}\n content {{\n value = 1\n }}\n}}"
            )),
            true,
            false,
        ),
        (
            parameter(&format!(
                "dynamic \"option\" {{\n for_each = {owner}\n content {{\n value = 1\n }}\n}}"
            )),
            true,
            true,
        ),
        (parameter("default = local.x") + &format!("locals {{\n  x = {reference}\n}}\n"), true, false),
        (parameter("default = local.x") + &format!("locals {{\n  x = {owner}\n}}\n"), true, true),
        // A local that no parameter refers to.
        (parameter("default = 1") + &format!("locals {{\n  x = {reference}\n}}\n"), false, false),
        (parameter("default = 1") + &format!("locals {{\n  x = {owner}\n}}\n"), false, true),
        (crate::module(&parameter(""), &format!("a = {owner}")), false, true),
        (crate::module(&parameter(""), &format!("a = {reference}")), false, false),
    ] {
        let found = template(&[("main.tf", &main)]);
        assert_eq!(found.invalid_files(), [] as [String; 0], "{main}");
        assert_eq!(
            (found.has_dependent_parameters(), found.may_refer_to_owner()),
            (depends, owned),
            "{main}"
        );
        assert!(!found.has_dependent_modules(), "{main}");
    }
    for (attribute, expected) in [(reference, true), (owner, true), ("local.x", true), ("local_x", false)] {
        let main = format!(
            "module \"m\" {{\n  source = \"./m\"\n  v = {attribute}\n}}\nlocals {{\n  x = {reference}\n}}\n"
        );
        let found = template(&[("main.tf", &main)]);
        assert_eq!(
            (found.has_dependent_modules(), found.has_dependent_parameters()),
            (expected, expected),
            "{attribute}"
        );
    }
}
