//! The rules of `coder_workspace_tags` (scheduling-and-auth TAG-11 to TAG-19, terraform 1.10).

use coder_source::{Flow, Inputs, Owner, Reason};

use crate::{map, module, tags, template, value};

const SOURCES: &str = r#"
variable "region" {
  type    = string
  default = "eu"
}
variable "required" {
  type = string
}
variable "nothing" {
  default = null
}
variable "count" {
  type    = number
  default = 3
}
variable "zones" {
  type    = list(string)
  default = ["a", "b"]
}
data "coder_parameter" "size" {
  name    = "Size"
  default = "small"
}
data "coder_parameter" "zone" {
  name    = "zone"
  default = "${var.region}-1"
}
data "coder_parameter" "chosen" {
  name = "chosen"
}
data "coder_workspace" "me" {}
resource "null_resource" "x" {}
locals {
  cluster = upper(var.region)
  broken  = null_resource.x.id
  mixed   = { known = "yes", later = null_resource.x.id }
}
"#;

fn with(variables: &[(&str, &str)], parameters: &[(&str, &str)]) -> Inputs {
    Inputs { variables: map(variables), parameters: map(parameters), ..Inputs::default() }
}

fn classic() -> Inputs {
    Inputs { flow: Flow::Classic, ..Inputs::default() }
}

#[test]
fn values_come_from_inputs_files_and_defaults_in_this_order() {
    let main = module(SOURCES, "a = var.region");
    let check = |more: &[(&str, &str)], inputs: &Inputs, want: &str| {
        let files: Vec<_> = [("main.tf", main.as_str())].into_iter().chain(more.iter().copied()).collect();
        assert_eq!(template(&files).workspace_tags(inputs), Ok(map(&[("a", want)])), "{more:?}");
    };
    let none = Inputs::default();
    check(&[], &none, "eu");
    check(&[("terraform.tfvars", "region = \"file\"")], &none, "file");
    let both = [("terraform.tfvars", "region = \"file\""), ("terraform.tfvars.json", r#"{"region":"json"}"#)];
    check(&both, &none, "json");
    let auto = [("b.auto.tfvars", "region = \"b\""), ("a.auto.tfvars.json", r#"{"region":"a"}"#)];
    check(&auto, &none, "b");
    check(&[both[0], auto[1]], &none, "a");
    check(&[both[1], auto[1]], &none, "a");
    check(&[both[1], both[0], auto[0]], &none, "b");
    check(&[("other.tfvars", "region = \"other\"")], &none, "eu");
    check(&[both[0], auto[0]], &with(&[("region", "given")], &[]), "given");
    // A text of a values file in JSON is not a template.
    check(&[("x.auto.tfvars.json", r#"{"region":"${x}"}"#)], &none, "${x}");
    check(&[("x_override.tf", "variable \"region\" {\n  default = \"over\"\n}\n")], &none, "over");
}

#[test]
fn parameters_have_given_values_or_defaults() {
    let found = |inputs: &Inputs| {
        let lines = "size = data.coder_parameter.size.value\nzone = \"z-${data.coder_parameter.zone.value}\"";
        tags(SOURCES, lines, inputs).unwrap()
    };
    assert_eq!(found(&Inputs::default()), map(&[("size", "small"), ("zone", "z-eu-1")]));
    // By the parameter's name, not by the block's label.
    let given = with(&[("region", "us")], &[("Size", "large"), ("size", "no")]);
    assert_eq!(found(&given), map(&[("size", "large"), ("zone", "z-us-1")]));
    assert_eq!(
        found(&Inputs { flow: Flow::Classic, ..given }),
        map(&[("size", "large"), ("zone", "z-us-1")])
    );
}

#[test]
fn variables_have_the_type_they_declare() {
    let given = with(&[("count", "4"), ("zones", "[\"x\", \"y\"]")], &[]);
    let lines = "n = var.count + 1\nz = join(\"-\", var.zones)";
    assert_eq!(tags(SOURCES, lines, &given), Ok(map(&[("n", "5"), ("z", "x-y")])));
    let wrong = with(&[("count", "hunter2"), ("zones", "[hunter2")], &[]);
    for error in tags(SOURCES, lines, &wrong).unwrap_err() {
        assert!(matches!(error.reason, Reason::Failed(_)));
        assert!(!error.to_string().contains("hunter2"), "a value may be secret: {error}");
    }
}

#[test]
fn numbers_and_bools_become_strings() {
    let lines = "a = 1\nb = 1.50\nc = true\nd = 1e3\n\"e f\" = \"x\"\n(upper(\"g\")) = \"y\"\n1 = 2";
    let want =
        map(&[("a", "1"), ("b", "1.5"), ("c", "true"), ("d", "1000"), ("e f", "x"), ("G", "y"), ("1", "2")]);
    assert_eq!(tags("", lines, &Inputs::default()), Ok(want.clone()));
    assert_eq!(tags("", lines, &classic()), Ok(want));
}

#[test]
fn tag_13_what_has_no_value_is_an_error_that_names_tag_and_reason() {
    let unknown = |expression: &str, part: &str| match value(SOURCES, expression) {
        Err(Reason::Unknown(why)) => assert!(why.contains(part), "{expression}: {why}"),
        other => panic!("{expression}: {other:?}"),
    };
    unknown("var.required", "var.required");
    unknown("\"x-${var.required}\"", "var.required");
    unknown("null_resource.x.id", "null_resource.x.id");
    unknown("data.coder_workspace.me.name", "data.coder_workspace.me");
    unknown("data.coder_parameter.chosen.value", "data.coder_parameter.chosen");
    unknown("data.coder_parameter.size.id", "data.coder_parameter.size.id");
    unknown("module.m.out", "module.m.out");
    unknown("local.broken", "null_resource.x.id");
    unknown("local.mixed.later", "null_resource.x.id");
    unknown("upper(var.required)", "var.required");
    unknown("jsonencode(local.mixed)", "null_resource.x.id");
    unknown("var.required == \"x\" ? \"a\" : \"b\"", "var.required");
    assert_eq!(value(SOURCES, "local.mixed.known").as_deref(), Ok("yes"));
    assert_eq!(value(SOURCES, "local.cluster").as_deref(), Ok("EU"));
    assert_eq!(value(SOURCES, "true ? \"a\" : var.required").as_deref(), Ok("a"));

    for (expression, kind) in [
        ("null", "null"),
        ("var.nothing", "null"),
        ("[1]", "a list"),
        ("{ a = 1 }", "an object"),
        ("var.zones", "a list"),
    ] {
        assert_eq!(value(SOURCES, expression), Err(Reason::NotText(kind)), "{expression}");
    }
    for (expression, part) in [
        ("var.missing", "var.missing is not declared"),
        ("local.missing", "local.missing is not defined"),
        ("data.coder_parameter.missing.value", "data.coder_parameter.missing is not declared"),
        ("nonsense", "nonsense"),
        ("file(\"x\")", "no file"),
        ("0 / 0", "divided"),
    ] {
        match value(SOURCES, expression) {
            Err(Reason::Failed(why)) => assert!(why.contains(part), "{expression}: {why}"),
            other => panic!("{expression}: {other:?}"),
        }
    }
    for expression in ["nosuch(1)", "uuid()", "try(uuid(), \"x\")"] {
        match value(SOURCES, expression) {
            Err(Reason::Unavailable(why)) => {
                assert!(why.contains("not available here"), "{expression}: {why}")
            }
            other => panic!("{expression}: {other:?}"),
        }
    }
    assert_eq!(value("", "\"a\\u0000b\""), Err(Reason::Nul));
    let errors = tags("", "\"a\\u0000\" = \"b\"", &Inputs::default()).unwrap_err();
    assert_eq!(errors[0].reason, Reason::Nul);
}

#[test]
fn each_tag_has_its_own_error() {
    let lines = "a = var.required\nb = \"fine\"\nc = null\n(var.required) = \"d\"";
    let errors = tags(SOURCES, lines, &Inputs::default()).unwrap_err();
    let named: Vec<_> = errors.iter().map(|error| error.tag.as_str()).collect();
    assert_eq!(named, ["a", "c", "(var.required)"]);
    assert!(errors[0].to_string().starts_with("main.tf:"), "{}", errors[0]);
}

#[test]
fn tag_14_what_somebody_else_sets_need_not_be_known() {
    let inputs = Inputs { overridden: ["a".to_owned()].into(), ..Inputs::default() };
    assert_eq!(tags(SOURCES, "a = var.required\nb = 1", &inputs), Ok(map(&[("b", "1")])));
    assert_eq!(tags(SOURCES, "a = 1\na = 2\nb = 1", &inputs), Ok(map(&[("b", "1")])));
}

#[test]
fn a_key_written_twice_is_an_error() {
    for lines in ["a = 1\na = 2", "a = 1, a = 2", "a = 1\nb = 2\n\"a\" = 3", "a : 1\nb = 3\na : 2"] {
        let errors = tags("", lines, &Inputs::default()).unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!((errors[0].tag.as_str(), &errors[0].reason), ("a", &Reason::Duplicate), "{lines}");
    }
    assert!(tags("", "a /* one */ = /* two */ 1\nb : 2", &Inputs::default()).is_ok());
    let two = format!("{}{}", module("", "a = 1"), module("", "a = 2").replace("\"tags\" {", "\"more\" {"));
    let errors = template(&[("main.tf", &two)]).workspace_tags(&Inputs::default()).unwrap_err();
    assert_eq!((errors[0].tag.as_str(), &errors[0].reason), ("a", &Reason::Duplicate));
}

#[test]
fn several_blocks_are_merged() {
    let files =
        [("a.tf", module("", "a = 1")), ("b.tf", module("", "b = 2").replace("\"tags\" {", "\"more\" {"))];
    let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    assert_eq!(template(&files).workspace_tags(&Inputs::default()), Ok(map(&[("a", "1"), ("b", "2")])));
}

#[test]
fn tags_may_be_computed_as_a_whole() {
    let block = |tags: &str| format!("{SOURCES}\ndata \"coder_workspace_tags\" \"t\" {{\n{tags}\n}}\n");
    let found = |tags: &str, inputs: &Inputs| template(&[("main.tf", &block(tags))]).workspace_tags(inputs);
    let none = Inputs::default();
    assert_eq!(
        found("tags = merge({ a = 1 }, { for z in var.zones : z => upper(z) })", &none),
        Ok(map(&[("a", "A"), ("b", "B")]))
    );
    assert_eq!(found("tags = var.region == \"eu\" ? { eu = true } : {}", &none), Ok(map(&[("eu", "true")])));
    assert_eq!(found("tags = null", &none), Ok(map(&[])));
    assert_eq!(found("tags = {}", &none), Ok(map(&[])));
    assert_eq!(found("count = 0\ntags = { a = var.required }", &none), Ok(map(&[])));
    assert_eq!(found("", &none).unwrap_err()[0].reason, Reason::Missing);
    assert_eq!(found("tags = merge({ \"a\\u0000\" = 1 })", &none).unwrap_err()[0].reason, Reason::Nul);
    assert!(matches!(found("tags = [1]", &none).unwrap_err()[0].reason, Reason::NotMap(_)));
    assert!(matches!(found("tags = null_resource.x.tags", &none).unwrap_err()[0].reason, Reason::Unknown(_)));
    assert!(matches!(found("tags = merge({ a = 1 })", &classic()).unwrap_err()[0].reason, Reason::NotMap(_)));
    assert_eq!(found("", &classic()).unwrap_err()[0].reason, Reason::Missing);
}

#[test]
fn tag_15_the_classic_flow_knows_variables_and_parameters_only() {
    let one = |expression: &str, inputs: &Inputs| {
        tags(SOURCES, &format!("x = {expression}"), inputs).map(|tags| tags["x"].clone())
    };
    let ok = |expression: &str, want: &str| {
        assert_eq!(one(expression, &classic()).as_deref(), Ok(want), "{expression}");
    };
    ok("var.region", "eu");
    ok("var.required", "");
    ok("var.nothing", "");
    ok("var.count", "3");
    ok("var.count + 1", "4");
    ok("var.zones", "[\"a\",\"b\"]");
    ok("data.coder_parameter.size.value", "small");
    ok("data.coder_parameter.chosen.value", "");
    ok("upper(\"${data.coder_parameter.size.value}\")", "SMALL");
    for expression in [
        "local.cluster",
        "null_resource.x.id",
        "data.coder_workspace.me.name",
        "path.module",
        "path.root",
        "terraform.workspace",
        "data.coder_workspace_owner.me.name",
        "file(\"x\")",
    ] {
        let errors = one(expression, &classic()).unwrap_err();
        let refused = matches!(&errors[0].reason, Reason::Failed(_) | Reason::Unavailable(_));
        assert!(refused, "{expression}: {errors:?}");
        assert_eq!(errors[0].tag, "x");
    }
    let given = Inputs { flow: Flow::Classic, ..with(&[("zones", "[\"c\"]"), ("required", "r")], &[]) };
    assert_eq!(one("var.zones", &given).as_deref(), Ok("[\"c\"]"));
    assert_eq!(one("var.required", &given).as_deref(), Ok("r"));
    let chained = "data \"coder_parameter\" \"a\" {\n  name = \"a\"\n  default = \"1\"\n}\n\
                   data \"coder_parameter\" \"b\" {\n  name = \"b\"\n  default = data.coder_parameter.a.value\n}\n";
    let lines = "x = data.coder_parameter.b.value";
    assert!(tags(chained, lines, &classic()).is_err());
    assert_eq!(tags(chained, lines, &Inputs::default()), Ok(map(&[("x", "1")])));
}

#[test]
fn a_variable_and_a_parameter_may_share_a_name() {
    let lines = "variable \"x\" {\n  default = \"v\"\n}\ndata \"coder_parameter\" \"x\" {\n  name = \"x\"\n  default = \"p\"\n}\n";
    let both = "a = var.x\nb = data.coder_parameter.x.value";
    assert_eq!(tags(lines, both, &Inputs::default()), Ok(map(&[("a", "v"), ("b", "p")])));
}

#[test]
fn parameters_with_instances() {
    let lines = "variable \"on\" {\n  default = true\n}\n\
        data \"coder_parameter\" \"c\" {\n  count = var.on ? 1 : 0\n  name = \"c${count.index}\"\n  default = \"x\"\n}\n\
        data \"coder_parameter\" \"e\" {\n  for_each = toset([\"a\", \"b\"])\n  name = each.key\n  default = \"e-${each.value}\"\n}\n";
    let asked = "one = data.coder_parameter.c[0].value\nall = join(\",\", [for p in data.coder_parameter.e : p.value])\n\
                 b = data.coder_parameter.e[\"b\"].value\nsplat = join(\"\", data.coder_parameter.c[*].name)";
    let inputs = with(&[], &[("c0", "given")]);
    let want = map(&[("one", "given"), ("all", "e-a,e-b"), ("b", "e-b"), ("splat", "c0")]);
    assert_eq!(tags(lines, asked, &inputs), Ok(want));
    let off = with(&[("on", "false")], &[]);
    assert!(tags(lines, "one = data.coder_parameter.c[0].value", &off).is_err());
}

#[test]
fn json_sources_count_too() {
    let main = r#"{
        "variable": { "r": { "default": "eu" } },
        "locals": [ { "l": "${upper(var.r)}" } ],
        "data": { "coder_workspace_tags": { "t": { "tags": { "a": "${local.l}-1", "${var.r}": true, "n": 1.5 } } } }
    }"#;
    let template = template(&[("main.tf.json", main)]);
    assert_eq!(template.invalid_files(), [] as [String; 0]);
    assert_eq!(
        template.workspace_tags(&Inputs::default()),
        Ok(map(&[("a", "EU-1"), ("eu", "true"), ("n", "1.5")]))
    );
}

#[test]
fn self_references_are_errors() {
    let lines = "locals {\n  a = local.b\n  b = local.a\n}\n\
                 data \"coder_parameter\" \"p\" {\n  name = \"p\"\n  default = data.coder_parameter.p.value\n}\n";
    assert!(matches!(value(lines, "local.a"), Err(Reason::Failed(why)) if why.contains("itself")));
    assert!(value(lines, "data.coder_parameter.p.value").is_err());
}

#[test]
fn tags_may_be_about_the_owner_of_the_workspace() {
    let owner = Owner {
        name: "ann".to_owned(),
        groups: vec!["Everyone".to_owned(), "gpu".to_owned()],
        ..Owner::default()
    };
    let lines = "pool = contains(data.coder_workspace_owner.me.groups, \"gpu\") ? \"gpu\" : \"cpu\"\n\
                 who  = data.coder_workspace_owner.me.name";
    let known = Inputs { owner: Some(owner), ..Inputs::default() };
    assert_eq!(tags("", lines, &known), Ok(map(&[("pool", "gpu"), ("who", "ann")])));
    assert!(tags("", lines, &Inputs::default()).is_err());
    assert!(tags("", lines, &Inputs { flow: Flow::Classic, ..known.clone() }).is_err());
    assert!(tags("", "key = data.coder_workspace_owner.me.session_token", &known).is_err());
}

#[test]
fn tags_may_read_the_templates_files() {
    let module = module(
        "locals { config = yamldecode(file(\"${path.module}/conf/a.yaml\")) }",
        "zone = local.config.zone\nfiles = join(\",\", fileset(\"conf\", \"**/*.yaml\"))\nhash = filemd5(\"./x/../conf/b/c.yaml\")\n\
         there = fileexists(\"main.tf\")\nnot = fileexists(\"nope\")\nmade = trimspace(templatefile(\"conf/t.tftpl\", { who = \"me\", n = [1, 2] }))\n\
         raw = filebase64(\"conf/b/c.yaml\")\nopen = nonsensitive(sensitive(\"x\"))",
    );
    let files = [
        ("main.tf", module.as_str()),
        ("conf/a.yaml", "zone: eu"),
        ("./conf/b/c.yaml", "x"),
        ("conf/t.tftpl", "hi ${who}%{ for i in n } ${i}%{ endfor }\n"),
    ];
    let found = template(&files).workspace_tags(&Inputs::default());
    let expected = [
        ("zone", "eu"),
        ("files", "a.yaml,b/c.yaml"),
        ("hash", "9dd4e461268c8034f5c8564e155c67a6"),
        ("there", "true"),
        ("not", "false"),
        ("made", "hi me 1 2"),
        ("raw", "eA=="),
        ("open", "x"),
    ];
    assert_eq!(found, Ok(map(&expected)));
    let of_classic = Inputs { flow: Flow::Classic, ..Inputs::default() };
    assert!(tags("", "a = file(\"main.tf\")", &of_classic).is_err());
    let large = "x".repeat((1 << 20) + 1);
    for expression in [
        "file(\"/etc/passwd\")",
        "file(\"../main.tf\")",
        "file(\"nope\")",
        "file(\"large\")",
        "templatefile(\"conf/t.tftpl\", {})",
        "templatefile(\"v\", {})",
        "join(\"\", fileset(\".\", \"*.{tf,sh}\"))",
    ] {
        let main = module_of(expression);
        let files =
            [("main.tf", main.as_str()), ("large", &large), ("conf/t.tftpl", "${who}"), ("v", "${var.x}")];
        assert!(template(&files).workspace_tags(&Inputs::default()).is_err(), "{expression}");
    }
}

fn module_of(expression: &str) -> String {
    module("variable \"x\" { default = \"y\" }", &format!("a = {expression}"))
}

#[test]
fn an_import_sees_a_default_owner_and_workspace() {
    let owner = Owner::for_import(vec!["Everyone".to_owned()]);
    let lines = "a = terraform.workspace\nb = path.module\nc = path.root\n\
                 d = \"${data.coder_workspace_owner.me.name}/${data.coder_workspace_owner.me.full_name}\"\n\
                 e = data.coder_workspace_owner.me.email\n\
                 f = jsonencode(data.coder_workspace_owner.me.groups)\n\
                 g = jsonencode(data.coder_workspace_owner.me.rbac_roles)\n\
                 h = \"<${data.coder_workspace_owner.me.id}${data.coder_workspace_owner.me.login_type}>\"";
    let found = tags("", lines, &Inputs { owner: Some(owner), ..Inputs::default() });
    let expected = [
        ("a", "default"),
        ("b", "."),
        ("c", "."),
        ("d", "default/default"),
        ("e", "default@example.com"),
        ("f", "[\"Everyone\"]"),
        ("g", "[]"),
        ("h", "<>"),
    ];
    assert_eq!(found, Ok(map(&expected)));
}

#[test]
fn types_of_variables_convert_and_complete_what_is_given() {
    let of = |kind: &str, given: &str| {
        let lines = format!("variable \"v\" {{\n  type = {kind}\n}}\n");
        tags(&lines, "x = jsonencode(var.v)", &with(&[("v", given)], &[])).map(|tags| tags["x"].clone())
    };
    for (kind, given, expected) in [
        ("string", "1.50", "\"1.50\""),
        ("number", "1.50", "1.5"),
        ("bool", "true", "true"),
        ("any", "[1, \"a\"]", "[1,\"a\"]"),
        ("list(string)", "[1, true]", "[\"1\",\"true\"]"),
        ("list(any)", "[1, \"a\"]", "[\"1\",\"a\"]"),
        ("set(number)", "[3, \"1\", 3]", "[1,3]"),
        ("map(string)", "{ a = 1 }", "{\"a\":\"1\"}"),
        ("map(any)", "{ a = 1, b = \"x\" }", "{\"a\":\"1\",\"b\":\"x\"}"),
        ("tuple([string, number])", "[1, \"2\"]", "[\"1\",2]"),
        ("object({ a = string })", "{ a = 1, more = 2 }", "{\"a\":\"1\"}"),
        ("object({ a = optional(string) })", "{}", "{\"a\":null}"),
        ("object({ a = optional(string, \"d\") })", "{}", "{\"a\":\"d\"}"),
        ("object({ a = optional(number, 5) })", "{ a = null }", "{\"a\":5}"),
        (
            "list(object({ a = optional(list(string), [1]), b = bool }))",
            "[{ b = \"true\" }, { a = [], b = false }]",
            "[{\"a\":[\"1\"],\"b\":true},{\"a\":[],\"b\":false}]",
        ),
        (
            "map(object({ n = optional(object({ m = optional(number, 7) }), {}) }))",
            "{ k = {} }",
            "{\"k\":{\"n\":{\"m\":7}}}",
        ),
        ("tuple([object({ a = optional(string, \"t\") })])", "[{}]", "[{\"a\":\"t\"}]"),
    ] {
        assert_eq!(of(kind, given).as_deref(), Ok(expected), "{kind}: {given}");
    }
    for (kind, given) in [
        ("number", "x"),
        ("bool", "1.5"),
        ("list(number)", "[\"x\"]"),
        ("list(string)", "{ a = 1 }"),
        ("map(string)", "[1]"),
        ("tuple([string])", "[1, 2]"),
        ("object({ a = string })", "{}"),
        ("object({ a = number })", "{ a = \"x\" }"),
    ] {
        assert!(of(kind, given).is_err(), "{kind}: {given}");
    }
}
