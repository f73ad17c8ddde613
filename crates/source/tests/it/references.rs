//! What references lead to, and how many instances a block may have.

use std::fmt::Write as _;

use coder_source::{Flow, Inputs, Owner, Reason};

use crate::{map, module, tags, template, value};

#[track_caller]
fn unknown(lines: &str, expression: &str, part: &str) {
    match value(lines, expression) {
        Err(Reason::Unknown(why)) => assert!(why.contains(part), "{expression}: {why}"),
        other => panic!("{expression}: {other:?}"),
    }
}

#[track_caller]
fn failed(lines: &str, expression: &str, part: &str) {
    match value(lines, expression) {
        Err(Reason::Failed(why)) => assert!(why.contains(part), "{expression}: {why}"),
        other => panic!("{expression}: {other:?}"),
    }
}

const FULL: &str = r#"
data "coder_parameter" "full" {
  name         = "size"
  type         = "number"
  default      = 5
  display_name = "Size"
  description  = "How much"
  ephemeral    = true
  form_type    = "slider"
  icon         = "/i.svg"
  mutable      = false
  order        = 3
  styling      = "{}"
}
data "coder_parameter" "least" {
  name = "least"
}
"#;

#[test]
fn attributes_of_a_parameter_have_values() {
    for (attribute, expected) in [
        ("name", "\"size\""),
        ("type", "\"number\""),
        ("default", "\"5\""),
        ("optional", "true"),
        ("value", "\"5\""),
        ("display_name", "\"Size\""),
        ("description", "\"How much\""),
        ("ephemeral", "true"),
        ("form_type", "\"slider\""),
        ("icon", "\"/i.svg\""),
        ("mutable", "false"),
        ("order", "3"),
        ("styling", "\"{}\""),
    ] {
        let found = value(FULL, &format!("jsonencode(data.coder_parameter.full.{attribute})"));
        assert_eq!(found.as_deref(), Ok(expected), "{attribute}");
    }
    for (attribute, expected) in [
        ("name", "\"least\""),
        ("type", "\"string\""),
        ("default", "null"),
        ("optional", "false"),
        ("icon", "null"),
    ] {
        let found = value(FULL, &format!("jsonencode(data.coder_parameter.least.{attribute})"));
        assert_eq!(found.as_deref(), Ok(expected), "{attribute}");
    }
    for attribute in ["id", "option", "validation"] {
        let reference = format!("data.coder_parameter.full.{attribute}");
        unknown(FULL, &reference, &reference);
    }
    unknown(FULL, "data.coder_parameter.least.value", "neither a value nor a default");
    assert_eq!(value(FULL, "data[\"coder_parameter\"].full[\"name\"]").as_deref(), Ok("size"));
}

#[test]
fn attributes_of_a_parameter_that_fail_do_not_fail_the_others() {
    let lines = "data \"coder_parameter\" \"p\" {\n  name = \"p\"\n  default = \"x\"\n  icon = 1 + \"x\"\n  order = uuid()\n  \
                 description = null_resource.x.id\n}\ndata \"coder_parameter\" \"q\" {\n  name = null_resource.x.id\n  default = [1]\n}\n";
    assert_eq!(value(lines, "data.coder_parameter.p.value").as_deref(), Ok("x"));
    unknown(lines, "data.coder_parameter.p.icon", "data.coder_parameter.p: ");
    unknown(lines, "data.coder_parameter.p.order", "data.coder_parameter.p: ");
    unknown(lines, "data.coder_parameter.p.description", "null_resource.x.id");
    unknown(lines, "data.coder_parameter.q.value", "null_resource.x.id");
}

#[test]
fn attributes_of_the_owner_have_values_but_secrets() {
    let owner = Owner {
        id: "1".to_owned(),
        name: "ann".to_owned(),
        full_name: "Ann Lee".to_owned(),
        email: "ann@example.com".to_owned(),
        login_type: "oidc".to_owned(),
        groups: vec!["gpu".to_owned(), "all".to_owned()],
        rbac_roles: vec![("owner".to_owned(), String::new()), ("member".to_owned(), "org".to_owned())],
    };
    let inputs = Inputs { owner: Some(owner), ..Inputs::default() };
    let of = |attribute: &str| {
        let lines = format!("x = jsonencode(data.coder_workspace_owner.me.{attribute})");
        tags("", &lines, &inputs).map(|tags| tags["x"].clone())
    };
    for (attribute, expected) in [
        ("id", "\"1\""),
        ("name", "\"ann\""),
        ("full_name", "\"Ann Lee\""),
        ("email", "\"ann@example.com\""),
        ("login_type", "\"oidc\""),
        ("groups", "[\"gpu\",\"all\"]"),
        ("rbac_roles", "[{\"name\":\"owner\",\"org_id\":\"\"},{\"name\":\"member\",\"org_id\":\"org\"}]"),
    ] {
        assert_eq!(of(attribute).as_deref(), Ok(expected), "{attribute}");
    }
    for attribute in ["ssh_public_key", "ssh_private_key", "session_token", "oidc_access_token"] {
        let errors = of(attribute).unwrap_err();
        let reference = format!("data.coder_workspace_owner.me.{attribute}");
        assert!(matches!(&errors[0].reason, Reason::Unknown(why) if why.contains(&reference)), "{errors:?}");
    }
    unknown("", "data.coder_workspace_owner.me.name", "data.coder_workspace_owner.me.name");
}

#[test]
fn names_that_mean_nothing_are_errors() {
    for (expression, part) in [
        ("count.index", "count.index has no meaning here"),
        ("each.key", "each.key has no meaning here"),
        ("self.id", "self.id has no meaning here"),
        ("word", "word is not a reference"),
        ("path.module.x", "no attribute"),
        ("terraform.workspace.x", "no attribute"),
    ] {
        failed("", expression, part);
    }
    unknown("", "path.cwd", "path.cwd");
    unknown("", "terraform.applying", "terraform.applying");
    unknown("", "module.a.b.c.d", "module.a.b.c");
    let lines = "variable \"a\" {\n  default = \"x\"\n}\nvariable \"b\" {\n  default = var.a\n}\n";
    failed(lines, "var.b", "var.a cannot be used here: a constant is required");
}

#[test]
fn a_block_has_at_most_a_thousand_instances() {
    for (attribute, most) in
        [("count = N", "1000"), ("for_each = toset([for n in range(N) : tostring(n)])", "1000")]
    {
        for (count, fits) in [("1", true), (most, true), ("1001", false)] {
            let attribute = attribute.replace('N', count);
            let lines = format!(
                "data \"coder_parameter\" \"p\" {{\n  {attribute}\n  name = \"p\"\n  default = \"x\"\n}}\n"
            );
            let found = value(&lines, "length(data.coder_parameter.p)");
            match fits {
                true => assert_eq!(found.as_deref(), Ok(count)),
                false => assert!(
                    matches!(&found, Err(Reason::Unavailable(why)) if why.contains("more than 1000 instances")),
                    "{found:?}"
                ),
            }
        }
    }
    for count in ["-1", "0.5", "\"x\"", "[]"] {
        let lines = format!(
            "data \"coder_parameter\" \"p\" {{\n  count = {count}\n  name = \"p\"\n  default = \"x\"\n}}\n"
        );
        assert!(matches!(value(&lines, "length(data.coder_parameter.p)"), Err(Reason::Failed(_))), "{count}");
    }
}

#[test]
fn instances_know_their_key_and_their_value() {
    let lines = "data \"coder_parameter\" \"e\" {\n  for_each = { a = 1, b = { c = 2 } }\n  name = each.key\n  \
                 default = jsonencode(each.value)\n}\n\
                 data \"coder_parameter\" \"c\" {\n  count = 3\n  name = \"n${count.index}\"\n  default = count.index * 2\n}\n\
                 data \"coder_parameter\" \"none\" {\n  for_each = {}\n  name = each.key\n}\n\
                 data \"coder_parameter\" \"zero\" {\n  count = 0\n  name = \"x\"\n}\n";
    for (expression, expected) in [
        ("{ for k, p in data.coder_parameter.e : k => p.value }", r#"{"a":"1","b":"{\"c\":2}"}"#),
        ("[for p in data.coder_parameter.c : \"${p.name}=${p.value}\"]", r#"["n0=0","n1=2","n2=4"]"#),
        ("[for p in data.coder_parameter.none : p.name]", "[]"),
        ("data.coder_parameter.none", "{}"),
        ("data.coder_parameter.zero", "[]"),
    ] {
        assert_eq!(
            value(lines, &format!("jsonencode({expression})")).as_deref(),
            Ok(expected),
            "{expression}"
        );
    }
}

#[test]
fn a_local_that_is_too_deep_for_one_reference_is_not_for_another() {
    let mut lines = "locals {\n  a0 = \"x\"\n".to_owned();
    for n in 1..300 {
        writeln!(lines, "  a{n} = local.a{}", n - 1).unwrap();
    }
    lines.push_str("}\n");
    let errors = tags(&lines, "a = local.a299\nb = local.a270", &Inputs::default()).unwrap_err();
    assert!(errors.iter().all(|error| error.reason == Reason::Exhausted), "{errors:?}");
    let deepest = (0..300).rev().find(|n| value(&lines, &format!("local.a{n}")).is_ok()).unwrap();
    assert!(deepest > 30, "{deepest}");
    let both = format!("a = local.a299\nb = local.a{deepest}");
    let errors = tags(&lines, &both, &Inputs::default()).unwrap_err();
    assert_eq!(errors.iter().map(|error| error.tag.as_str()).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn errors_name_the_line_of_the_block() {
    let main = format!("\n\n{}", module("# one\n# two", "a = null"));
    let errors = template(&[("main.tf", &main)]).workspace_tags(&Inputs::default()).unwrap_err();
    assert_eq!(errors[0].place, "main.tf:5");
    assert_eq!(errors[0].to_string(), "main.tf:5: a tag must be a non-null string, this one is null");
    let json = r#"{"data":{"coder_workspace_tags":{"t":{"tags":{"a":null}}}}}"#;
    let errors = template(&[("a.tf.json", json)]).workspace_tags(&Inputs::default()).unwrap_err();
    assert_eq!((errors[0].tag.as_str(), errors[0].place.as_str()), ("a", "a.tf.json"));
}

#[test]
fn a_key_without_a_value_is_named_by_its_source() {
    let long = "x".repeat(200);
    let errors = tags("", &format!("(null_resource.{long}) = 1"), &Inputs::default()).unwrap_err();
    assert_eq!(errors[0].tag.chars().count(), 120);
    assert!(errors[0].tag.starts_with("(null_resource.xxx"), "{errors:?}");
}

#[test]
fn values_of_json_files_have_every_type() {
    let values = r#"{ "//": "a comment", "t": "${x}", "n": 12345678901234567890, "f": 1.5, "b": true, "z": null,
        "l": [1, "a", { "k": [] }], "o": { "a": { "b": "%{c}" } } }"#;
    let names = ["t", "n", "f", "b", "z", "l", "o"];
    let lines: String =
        names.iter().map(|name| format!("variable \"{name}\" {{\n  type = any\n}}\n")).collect();
    let asked: String = names.iter().map(|name| format!("{name} = jsonencode(var.{name})\n")).collect();
    let main = module(&lines, &asked);
    let expected = [
        ("t", "\"${x}\""),
        ("n", "12345678901234567890"),
        ("f", "1.5"),
        ("b", "true"),
        ("z", "null"),
        ("l", r#"[1,"a",{"k":[]}]"#),
        ("o", r#"{"a":{"b":"%{c}"}}"#),
    ];
    for file in ["terraform.tfvars.json", "x.auto.tfvars.json"] {
        let found = template(&[("main.tf", main.as_str()), (file, values)]);
        assert_eq!(found.invalid_files(), [] as [String; 0]);
        assert_eq!(found.workspace_tags(&Inputs::default()), Ok(map(&expected)));
    }
}

#[test]
fn configuration_in_json_has_every_type_too() {
    let main = r#"{
        "//": { "x": 1 },
        "locals": { "//": "c", "t": "a${1 + 1}", "bad": "${", "n": 1.50, "b": false, "z": null, "l": ["${true}", [2]], "o": { "k${1}": "%{ if true }v%{ endif }" } },
        "variable": [{ "v": { "default": "x" } }, { "w": [{ "default": "y" }] }],
        "output": { "o": {} },
        "data": [{ "coder_workspace_tags": { "t": { "tags": { "a": "${jsonencode(local.l)}${jsonencode(local.o)}", "b": "${jsonencode([local.n, local.b, local.z])}", "c": "${local.t}${var.v}${var.w}", "d": "${local.bad}" } } } }]
    }"#;
    let found = template(&[("main.tf.json", main)]);
    assert_eq!(found.invalid_files(), [] as [String; 0]);
    let expected = [("a", r#"[true,[2]]{"k1":"v"}"#), ("b", "[1.5,false,null]"), ("c", "a2xy"), ("d", "${")];
    assert_eq!(found.workspace_tags(&Inputs::default()), Ok(map(&expected)));
}

#[test]
fn files_that_cannot_be_read_are_named_with_the_reason() {
    let bytes = |name: &str, content: &[u8]| (name.to_owned(), content.to_vec());
    let found = coder_source::Template::from_files([
        bytes("a.tf", b"\xff"),
        bytes("b.tf", "\u{feff}locals {}\n".as_bytes()),
        bytes("c.tf.json", "\u{feff}{}".as_bytes()),
        bytes("d.tf.json", b"{"),
        bytes("terraform.tfvars", b"a = {\n"),
        bytes("x.auto.tfvars.json", b"[1,]"),
        bytes("z.auto.tfvars", b"\xff"),
    ]);
    let found = found.unwrap();
    let [a, d, values, json, z] = found.invalid_files() else { panic!("{:?}", found.invalid_files()) };
    assert_eq!(a, "a.tf: not UTF-8 text");
    assert!(d.starts_with("d.tf.json: EOF"), "{d}");
    assert!(values.starts_with("terraform.tfvars: line "), "{values}");
    assert!(json.starts_with("x.auto.tfvars.json: "), "{json}");
    assert_eq!(z, "z.auto.tfvars: not UTF-8 text");
}

#[test]
fn values_of_the_classic_flow_are_texts() {
    let lines = "variable \"n\" {\n  default = 1.50\n}\nvariable \"b\" {\n  default = true\n}\nvariable \"m\" {\n  default = { a = [1] }\n}\n\
                 variable \"z\" {\n  default = null\n}\nvariable \"given\" {\n  type = number\n}\nvariable \"none\" {}\n";
    let asked = "n = jsonencode(var.n)\nb = jsonencode(var.b)\nm = jsonencode(var.m)\nz = jsonencode(var.z)\n\
                 given = jsonencode(var.given)\nnone = jsonencode(var.none)";
    let inputs = Inputs { flow: Flow::Classic, variables: map(&[("given", "1.50")]), ..Inputs::default() };
    let expected = [
        ("n", "\"1.5\""),
        ("b", "\"true\""),
        ("m", "\"{\\\"a\\\":[1]}\""),
        ("z", "\"\""),
        ("given", "\"1.50\""),
        ("none", "\"\""),
    ];
    assert_eq!(tags(lines, asked, &inputs), Ok(map(&expected)));
    // Values files do not count there.
    let main = module(lines, "n = var.n");
    let files = [("main.tf", main.as_str()), ("terraform.tfvars", "n = 7")];
    let found = |inputs: &Inputs| template(&files).workspace_tags(inputs).unwrap();
    assert_eq!(found(&inputs), map(&[("n", "1.5")]));
    assert_eq!(found(&Inputs::default()), map(&[("n", "7")]));
}

#[test]
fn values_may_be_nested_fifty_levels_deep() {
    let nested = |depth: usize| {
        let locals: String = (1..depth).map(|n| format!("  l{n} = [local.l{}]\n", n - 1)).collect();
        value(&format!("locals {{\n  l0 = []\n{locals}}}\n"), &format!("length(local.l{})", depth - 1))
    };
    assert_eq!(nested(50).as_deref(), Ok("1"));
    assert!(matches!(nested(51), Err(Reason::Unknown(why)) if why.contains("nested too deep")));
    let objects = |depth: usize| {
        let locals: String = (1..depth).map(|n| format!("  l{n} = {{ a = local.l{} }}\n", n - 1)).collect();
        value(&format!("locals {{\n  l0 = {{}}\n{locals}}}\n"), &format!("length(local.l{})", depth - 1))
    };
    assert_eq!(objects(50).as_deref(), Ok("1"));
    assert!(matches!(objects(51), Err(Reason::Unknown(why)) if why.contains("nested too deep")));
}
