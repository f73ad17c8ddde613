//! Expressions and templates.

use coder_source::Reason;

use crate::value;

const LOCALS: &str = r#"
locals {
  list = ["a", "b", "c"]
  map  = { x = 1, y = 2 }
  objs = [{ n = "p", v = [1, 2] }, { n = "q", v = [3] }]
}
"#;

#[track_caller]
fn ok(expression: &str, want: &str) {
    assert_eq!(value(LOCALS, expression).as_deref(), Ok(want), "{expression}");
}

#[track_caller]
fn wrong(expression: &str) {
    let reason = value(LOCALS, expression).unwrap_err();
    assert!(matches!(reason, Reason::Failed(_)), "{expression}: {reason:?}");
}

#[test]
fn operators() {
    ok("1 + 2 * 3", "7");
    ok("(1 + 2) * 3", "9");
    ok("10 / 4", "2.5");
    ok("-7 % 3", "-1");
    ok("-(2)", "-2");
    ok("0.1 + 0.2", "0.3");
    ok("\"2\" + \"3\"", "5");
    ok("1 < 2 && !(2 >= 3)", "true");
    ok("1 == 1.0", "true");
    ok("\"1\" == 1", "false");
    ok("[1, 2] == [1, 2]", "true");
    ok("null == null || false", "true");
    ok("false && nosuch()", "false");
    wrong("1 + \"x\"");
    wrong("!5");
    wrong("null + 1");
}

#[test]
fn conditions() {
    ok("local.map.x == 1 ? \"one\" : \"other\"", "one");
    ok("length(local.list) > 5 ? local.list[5] : \"none\"", "none");
    ok("jsonencode(true ? 1 : \"a\")", "\"1\"");
    ok("\"true\" ? 1 : 2", "1");
    wrong("null ? 1 : 2");
}

#[test]
fn steps_into_values() {
    ok("local.list[1]", "b");
    ok("local.list.0", "a");
    ok("local.map[\"y\"]", "2");
    ok("local.objs[1].n", "q");
    ok("join(\",\", local.objs[*].n)", "p,q");
    ok("join(\",\", local.objs.*.n)", "p,q");
    ok("jsonencode(local.objs[*].v[0])", "[1,3]");
    ok("jsonencode(local.objs.*.v[0])", "[1,2]");
    ok("jsonencode(\"x\"[*])", "[\"x\"]");
    ok("jsonencode(null[*])", "[]");
    ok("{ a = { b = 5 } }.a.b", "5");
    ok("jsonencode({ a = 1, \"b\" = 2, a = 3, \"b\" = 4 })", "{\"a\":3,\"b\":4}");
    ok("jsonencode({ a = 1, \"a\" = 2, a = 3, \"a\" = 4 })", "{\"a\":4}");
    wrong("local.list[3]");
    wrong("local.list[-1]");
    wrong("local.map.z");
    wrong("\"text\".a");
}

#[test]
fn for_expressions() {
    ok("join(\",\", [for v in local.list : upper(v) if v != \"b\"])", "A,C");
    ok("join(\",\", [for i, v in local.list : \"${i}${v}\"])", "0a,1b,2c");
    ok("jsonencode({ for k, v in local.map : v => k })", "{\"1\":\"x\",\"2\":\"y\"}");
    ok(
        "jsonencode({ for v in [\"ab\", \"ac\", \"b\"] : substr(v, 0, 1) => v... })",
        "{\"a\":[\"ab\",\"ac\"],\"b\":[\"b\"]}",
    );
    ok("[for local in [1] : local + 1][0]", "2");
    wrong("{ for v in local.list : \"same\" => v }");
    wrong("[for v in 5 : v]");
}

#[test]
fn templates() {
    ok("\"a${1 + 1}b\"", "a2b");
    ok("\"$${x} %%{y} \\\"q\\\" \\t|\"", "${x} %{y} \"q\" \t|");
    ok("\"%{ if local.map.x == 1 }yes%{ else }no%{ endif }\"", "yes");
    ok("\"%{ if false }yes%{ endif }-\"", "-");
    ok("\"%{ for v in local.list }${v};%{ endfor }\"", "a;b;c;");
    ok("\"a  ${~ \"b\" ~}  c\"", "abc");
    ok("\"x %{ if true ~} y %{~ endif } z\"", "x y z");
    ok("\"x %{~ for v in [1, 2] ~} ${v} %{~ endfor ~} z\"", "x12z");
    ok("<<-EOT\n    one\n      two ${local.list[0]}\n  EOT\n", "one\n  two a\n");
    wrong("\"a${null}\"");
    wrong("\"a${[1]}\"");
}

#[test]
fn arguments_and_failures() {
    ok("max([1, 5, 3]...)", "5");
    ok("try(local.map.z, local.list[9], \"last\")", "last");
    ok("can(local.map.z)", "false");
    ok("can(local.map.x)", "true");
    ok("core::upper(\"a\")", "A");
    wrong("try(local.map.z)");
    assert!(matches!(value(LOCALS, "try(local.map.z, docker_image.x.id)"), Err(Reason::Unknown(_))));
}

#[test]
fn variables_are_converted_to_their_type() {
    for (constraint, default, expected) in [
        ("string", "5", r#""5""#),
        ("number", r#""5""#, "5"),
        ("bool", r#""true""#, "true"),
        ("list(number)", r#"["1", "2"]"#, "[1,2]"),
        ("set(string)", r#"["b", "a", "b"]"#, r#"["a","b"]"#),
        ("map(string)", "{ a = 1 }", r#"{"a":"1"}"#),
        ("tuple([string, number])", r#"[1, "2"]"#, r#"["1",2]"#),
        ("object({ a = string })", "{ a = 1, b = 2 }", r#"{"a":"1"}"#),
        ("object({ a = optional(string) })", "{}", r#"{"a":null}"#),
        ("object({ a = optional(string, \"d\") })", "{ a = null }", r#"{"a":"d"}"#),
        ("object({ a = object({ b = optional(number, 1) }) })", "{ a = {} }", r#"{"a":{"b":1}}"#),
        ("list(object({ a = optional(number, 3) }))", "[{}, { a = 4 }]", r#"[{"a":3},{"a":4}]"#),
        ("set(object({ a = optional(number, 3) }))", "[{}, { a = 3 }]", r#"[{"a":3}]"#),
        ("map(object({ a = optional(number, 3) }))", "{ x = {} }", r#"{"x":{"a":3}}"#),
        (
            "tuple([string, object({ a = optional(string, \"d\") }), object({ a = optional(string, \"e\") })])",
            "[1, {}, {}]",
            r#"["1",{"a":"d"},{"a":"e"}]"#,
        ),
        ("list", r#"[1, "a"]"#, r#"["1","a"]"#),
        ("set", r#"["b", 1]"#, r#"["1","b"]"#),
        ("map", r#"{ a = 1, b = "x" }"#, r#"{"a":"1","b":"x"}"#),
        ("list()", r#"[1, "a"]"#, r#"["1","a"]"#),
        (r#""number""#, r#""5""#, "5"),
        (r#""string""#, "5", r#""5""#),
        ("(bool)", r#""false""#, "false"),
        ("unheard", "[1, true]", "[1,true]"),
        ("unheard(string)", "[1, true]", "[1,true]"),
        ("object(string)", "[1, true]", "[1,true]"),
        ("tuple(string)", "[1, true]", "[1,true]"),
        ("tuple([])", "[]", "[]"),
        ("object({})", "{ a = 1 }", "{}"),
        (
            r#"object({ "a b" = string, c = bool })"#,
            r#"{ "a b" = 1, c = "true" }"#,
            r#"{"a b":"1","c":true}"#,
        ),
        (
            "object({ a = optional(list(object({ b = optional(number, 2) }))) })",
            "{ a = [{}] }",
            r#"{"a":[{"b":2}]}"#,
        ),
        ("object({ a = optional(object({ b = optional(number, 2) }), {}) })", "{}", r#"{"a":{"b":2}}"#),
        ("object({ a = optional(object({ b = optional(number, 2) })) })", "{ a = null }", r#"{"a":null}"#),
        (
            "map(object({ a = optional(number, 3) }))",
            "{ x = { a = null }, y = { a = 1 } }",
            r#"{"x":{"a":3},"y":{"a":1}}"#,
        ),
        ("list(map(object({ a = optional(number, 3) })))", "[{ x = {} }]", r#"[{"x":{"a":3}}]"#),
        ("tuple([object({ a = optional(number, 1) }), number])", r#"[{}, "2"]"#, r#"[{"a":1},2]"#),
        ("object({ a = optional(string, \"d\") })", "null", "null"),
        ("object({ a = optional(any, \"d\") })", "{ a = [1] }", r#"{"a":[1]}"#),
        ("any", r#"{ a = [1, "x"], b = null }"#, r#"{"a":[1,"x"],"b":null}"#),
    ] {
        let lines = format!("variable \"v\" {{\n  type = {constraint}\n  default = {default}\n}}");
        assert_eq!(value(&lines, "jsonencode(var.v)").as_deref(), Ok(expected), "{constraint}");
    }
    for (constraint, default) in [
        ("number", r#""x""#),
        ("number", "true"),
        ("bool", "1"),
        ("string", "[]"),
        ("list(number)", r#"["x"]"#),
        ("set(string)", "{}"),
        ("map(string)", "[]"),
        ("tuple([string])", "[]"),
        ("tuple([string])", "[1, 2]"),
        ("tuple([string])", r#"toset(["a"])"#),
        ("object({ a = string })", "{}"),
        ("object({ a = string })", "[]"),
        ("object({ a = optional(number, \"x\") })", "{}"),
    ] {
        let lines = format!("variable \"v\" {{\n  type = {constraint}\n  default = {default}\n}}");
        match value(&lines, "jsonencode(var.v)") {
            Err(Reason::Failed(why)) => assert!(why.contains("the value of var.v: "), "{constraint}: {why}"),
            other => panic!("{constraint}: {other:?}"),
        }
    }
}

#[test]
fn elements_of_unknown_values_are_unknown() {
    for expression in [
        "length(data.external.x.list[*])",
        "length(data.external.x.list.*.a)",
        "data.external.x.list[*].a[0]",
        "length([data.external.x.list][0][*])",
        "length([data.external.x.list][0].*.a)",
    ] {
        let reason = value("", expression).unwrap_err();
        assert!(matches!(reason, Reason::Unknown(_)), "{expression}: {reason:?}");
    }
}

#[test]
fn the_other_branch_of_a_condition_counts_only_by_its_type() {
    ok("jsonencode(true ? 1 : tostring(5))", "\"1\"");
    ok("true ? 1 : nosuch()", "1");
    ok("false ? 1 + \"x\" : 2", "2");
    ok("jsonencode(true ? null : [1])", "null");
    ok("jsonencode(true ? [] : [\"a\"])", "[]");
    wrong("true ? [1] : { a = 1 }");
    let lines = "variable \"later\" {}\n";
    assert_eq!(value(lines, "jsonencode(true ? 1 : var.later)").as_deref(), Ok("1"));
    assert!(matches!(value(lines, "true ? var.later : 1"), Err(Reason::Unknown(_))));
    assert!(matches!(value(lines, "var.later ? 1 : 2"), Err(Reason::Unknown(_))));
}

#[test]
fn what_decides_alone_need_not_know_the_other_operand() {
    let lines = "variable \"later\" {}\n";
    for (expression, expected) in [
        ("var.later && false", Some("false")),
        ("var.later || true", Some("true")),
        ("false && var.later", Some("false")),
        ("true || var.later", Some("true")),
        ("var.later && true", None),
        ("var.later || false", None),
        ("true && var.later", None),
        ("false || var.later", None),
        ("var.later == 1", None),
        ("can(var.later)", None),
        ("contains([1, 2], var.later)", None),
        ("length([var.later])", Some("1")),
        ("alltrue([false, var.later])", Some("false")),
        ("anytrue([true, var.later])", Some("true")),
        ("alltrue([true, var.later])", None),
        ("anytrue([false, var.later])", None),
        ("flatten([[1], var.later])[0]", None),
        ("coalesce(var.later, 1)", None),
        ("\"${var.later}\"", None),
        ("[for x in var.later : x][0]", None),
        ("{ a = 1, b = var.later }.a", Some("1")),
        ("[1, 2][var.later]", None),
        ("toset([1, var.later])", None),
        ("jsonencode([var.later])", None),
        ("merge({ a = 1 }, var.later).a", None),
        ("upper(var.later)", None),
    ] {
        match (value(lines, expression), expected) {
            (Ok(found), Some(expected)) => assert_eq!(found, expected, "{expression}"),
            (Err(Reason::Unknown(why)), None) => assert!(why.contains("var.later"), "{expression}: {why}"),
            (other, _) => panic!("{expression}: {other:?}"),
        }
    }
}
