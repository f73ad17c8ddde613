//! Sources that want to hang the server or use up its memory.

use std::fmt::Write as _;
use std::time::Duration;

use coder_source::{Inputs, Reason, Template};
use proptest::prelude::*;

use crate::{tar, value};

/// The processor time that an evaluation may take in a debug build. A release build needs a tenth of a second.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// The time that this thread had a processor, so that it does not matter what else runs.
struct Worked(Duration);

impl Worked {
    fn total() -> Duration {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
    }

    fn now() -> Self {
        Self(Self::total())
    }

    fn elapsed(&self) -> Duration {
        Self::total() - self.0
    }
}

#[track_caller]
fn bounded(lines: &str, expression: &str) -> Result<String, Reason> {
    let start = Worked::now();
    let result = value(lines, expression);
    assert!(start.elapsed() < TIME_LIMIT, "{:?}", start.elapsed());
    result
}

#[test]
fn loops_in_loops_end() {
    let mut expression = "1".to_owned();
    for level in 0..8 {
        expression = format!("[for v{level} in range(1000) : {expression}]");
    }
    assert_eq!(bounded("", &format!("length({expression})")), Err(Reason::Exhausted));
}

#[test]
fn doubling_ends() {
    let mut texts = "locals {\n  t0 = \"xxxxxxxxxxxxxxxx\"\n  l0 = [1]\n".to_owned();
    for n in 1..60 {
        writeln!(texts, "  t{n} = \"${{local.t{}}}${{local.t{}}}\"", n - 1, n - 1).unwrap();
        writeln!(texts, "  l{n} = [local.l{}, local.l{}]", n - 1, n - 1).unwrap();
    }
    texts.push_str("}\n");
    assert_eq!(bounded(&texts, "local.t59"), Err(Reason::Exhausted));
    assert_eq!(bounded(&texts, "jsonencode(local.l45)"), Err(Reason::Exhausted));
    assert_eq!(bounded(&texts, "local.l45 == local.l45"), Err(Reason::Exhausted));
    assert_eq!(bounded(&texts, "length(flatten(local.l45))"), Err(Reason::Exhausted));
    assert_eq!(bounded(&texts, "length(distinct([local.l45, local.l45]))"), Err(Reason::Exhausted));
}

#[test]
fn functions_that_make_much_of_little_end() {
    for expression in [
        "format(\"%9999999999d\", 1)",
        "length(setproduct([for l in range(9) : range(1000)]...))",
        "indent(999999999999, \"a\\nb\")",
        "length(range(0, 1e12))",
        "replace(join(\"\", [for v in range(1000) : \"aaaaaaaaaa\"]), \"a\", join(\"\", [for v in range(1000) : \"bbbbbbbbbbbbbbbbbbbb\"]))",
        "pow(10, 1e9)",
        "tonumber(\"1e99999999999999999999\")",
        "tonumber(\"-1e-2147483648\")",
        "tonumber(\"1p8000\") + tonumber(\"1p-8000\")",
        "[for v in range(1000) : tonumber(\"1e2000\") / 7]",
        "join(\"\", [for v in range(1000) : 1e-2000 / 7])",
        "tonumber(\"1e2400\") % 1e-2400",
        "format(\"%.9999f %.9999e\", 1e-2400, tonumber(\"1e2400\"))",
        "format(\"%999999999d\", 1)",
        "format(\"%.99999999999999999999f\", 1)",
        "parseint(join(\"\", [for v in range(400) : \"zzzzzzzzzz\"]), 36)",
        "sort([for v in range(1000) : tonumber(\"1e2000\") - v])",
        "length(setproduct([for l in range(9) : toset(range(1000))]...))",
        "setproduct(range(1000), range(1000))",
        "toset([for a in range(1000) : [for b in range(100) : \"${a}\"]])",
        "yamldecode(\"a: &a [x,x,x,x,x,x,x,x,x]\\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\\nh: &h [*g,*g,*g,*g,*g,*g,*g,*g,*g]\\ni: [*h,*h,*h,*h,*h,*h,*h,*h,*h]\\n\")",
        "yamlencode(yamldecode(join(\"\", concat([\"a0: &a0 [x]\\n\"], [for n in range(1, 60) : \"a${n}: &a${n} [*a${n - 1},*a${n - 1}]\\n\"]))))",
        "regex(\"(x+x+)+y\", join(\"\", [for v in range(1000) : \"xxxxxxxxxx\"]))",
        "regex(\"[[[[[[[[[[[[[[[[[[[[\", \"a\")",
        "regexall(\"\", join(\"\", [for v in range(1000) : \"xxxxxxxxxx\"]))",
        "csvdecode(join(\",\", [for v in range(1000) : \"\\n\"]))",
        "templatestring(\"%%{ for a in x }%%{ for b in x }%%{ for c in x }%%{ for d in x }y%%{ endfor }%%{ endfor }%%{ endfor }%%{ endfor }\", { x = range(1000) })",
        "merge([for v in range(1000) : { for k in range(1000) : k => v }]...)",
        "tolist([for v in range(1000) : { for k in range(100) : \"k${v}${k}\" => v }])",
        "timeadd(\"9999-12-31T23:59:59Z\", \"2562047h\")",
        "length(substr(join(\"\", [for v in range(1000) : \"e\\u0301\"]), -999999999999, 999999999999))",
        "regex(\"(((((((a{99}){99}){99}){99})))))\", \"a\")",
        "cidrhost(\"::/0\", -1)",
        "cidrsubnet(\"0.0.0.0/0\", 999, 1)",
        "yamldecode(join(\"\", [for v in range(1000) : \"[[[[[[[[[[\"]))",
        "jsondecode(join(\"\", [for v in range(1000) : \"[[[[[[[[[[\"]))",
        "formatdate(join(\"\", [for v in range(1000) : \"YYYY\"]), \"2020-01-01T00:00:00Z\")",
        "timeadd(\"2020-01-01T00:00:00Z\", \"999999999999h\")",
        "parseint(join(\"\", [for v in range(1000) : \"9999999999\"]), 10)",
        "join(\"\", [for v in range(1000) : sha512(join(\"\", range(1000)))])",
    ] {
        let _ = bounded("", expression);
    }
}

#[test]
fn deep_syntax_is_refused_not_followed() {
    for (open, close) in
        [("(", ")"), ("[", "]"), ("{a=", "}"), ("!", ""), ("-", ""), ("\"${", "}\""), ("upper(", ")")]
    {
        for depth in [30, 60, 64, 1000, 50_000] {
            let expression = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            let main = crate::module("", &format!("x = {expression}"));
            let start = Worked::now();
            let template = Template::read(&tar(&[("main.tf", &main)]), "application/x-tar").unwrap();
            let _ = template.workspace_tags(&Inputs::default());
            assert!(start.elapsed() < TIME_LIMIT, "{open} {depth}: {:?}", start.elapsed());
        }
    }
    for (first, more) in [("1", " + 1"), ("true", " ? true : false"), ("1", "[0]"), ("a", ".b")] {
        for count in [100, 120, 1000, 50_000] {
            let main = crate::module("", &format!("x = {first}{}", more.repeat(count)));
            let start = Worked::now();
            let template = Template::read(&tar(&[("main.tf", &main)]), "application/x-tar").unwrap();
            let _ = template.workspace_tags(&Inputs::default());
            assert!(start.elapsed() < TIME_LIMIT, "{more} {count}: {:?}", start.elapsed());
        }
    }
}

#[test]
fn long_chains_of_locals_end() {
    let mut lines = "locals {\n  a0 = \"x\"\n".to_owned();
    for n in 1..5000 {
        writeln!(lines, "  a{n} = upper(local.a{})", n - 1).unwrap();
    }
    lines.push_str("}\n");
    assert_eq!(bounded(&lines, "local.a4999"), Err(Reason::Exhausted));
    assert_eq!(bounded(&lines, "local.a20").as_deref(), Ok("X"));
}

#[test]
fn an_object_with_very_many_keys_is_refused() {
    let mut keys = String::new();
    for n in 0..50_000 {
        writeln!(keys, "k{n} = 1").unwrap();
    }
    let start = Worked::now();
    let template =
        Template::read(&tar(&[("main.tf", &crate::module("", &keys))]), "application/x-tar").unwrap();
    assert!(template.invalid_files()[0].contains("too many keys"));
    assert!(start.elapsed() < TIME_LIMIT);
}

/// Pieces that, put together at random, are often valid and often nearly so.
const PIECES: [&str; 48] = [
    "1",
    "\"a\"",
    "null",
    "true",
    "-",
    "!",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "\"${",
    "}\"",
    "%{ if ",
    " }",
    "%{ endif }",
    "var.v",
    "local.l",
    "data.coder_parameter.p.value",
    "x.y.z",
    ".a",
    "[0]",
    "[*]",
    ".*",
    " + ",
    " == ",
    " ? ",
    " : ",
    " && ",
    "[for i in ",
    " : i]",
    "{ for k, v in ",
    " => ",
    "...",
    ", ",
    " = ",
    "\n",
    "upper(",
    "try(",
    "range(",
    "merge(",
    "format(\"%s\", ",
    "regex(\"a+\", ",
    "setproduct(",
    "jsondecode(",
    "<<EOT\n",
    "\nEOT\n",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every source has a result within the time limit.
    #[test]
    fn any_source_gets_an_answer(pieces in prop::collection::vec(0..PIECES.len(), 0..40)) {
        let expression: String = pieces.into_iter().map(|at| PIECES[at]).collect();
        let main = crate::module(
            "variable \"v\" {\n  default = [1, 2]\n}\nlocals {\n  l = { a = var.v }\n}\n\
             data \"coder_parameter\" \"p\" {\n  name = \"p\"\n  default = \"x\"\n}\n",
            &format!("x = {expression}"),
        );
        let start = Worked::now();
        let template = Template::read(&tar(&[("main.tf", &main)]), "application/x-tar").unwrap();
        let _ = template.workspace_tags(&Inputs::default());
        prop_assert!(start.elapsed() < TIME_LIMIT, "{expression}");
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000), zip in any::<bool>()) {
        let _ = Template::read(&bytes, if zip { "application/zip" } else { "application/x-tar" });
    }

    #[test]
    fn any_text_is_a_source(text in ".{0,300}") {
        let template = Template::read(&tar(&[("main.tf", &text), ("x.auto.tfvars", &text)]), "application/x-tar").unwrap();
        let _ = template.workspace_tags(&Inputs::default());
    }
}
