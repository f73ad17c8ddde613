//! The functions of terraform 1.10, by what they answer.

use coder_source::Reason;

use crate::value;

#[track_caller]
fn all(cases: &[(&str, &str)]) {
    for (expression, want) in cases {
        assert_eq!(value("", expression).as_deref(), Ok(*want), "{expression}");
    }
}

#[track_caller]
fn all_wrong(cases: &[&str]) {
    for expression in cases {
        let reason = value("", expression).unwrap_err();
        assert!(matches!(reason, Reason::Failed(_)), "{expression}: {reason:?}");
    }
}

#[test]
fn texts() {
    all(&[
        ("lower(\"ÄB\")", "äb"),
        ("upper(\"äb\")", "ÄB"),
        ("title(\"hello big world\")", "Hello Big World"),
        ("chomp(\"a\\n\\n\")", "a"),
        ("trimspace(\" a \\n\")", "a"),
        ("strrev(\"abc\")", "cba"),
        ("basename(\"/a/b.txt\")", "b.txt"),
        ("dirname(\"/a/b.txt\")", "/a"),
        ("dirname(\"b.txt\")", "."),
        ("trim(\"?!a?!\", \"!?\")", "a"),
        ("trimprefix(\"helloworld\", \"hello\")", "world"),
        ("trimsuffix(\"helloworld\", \"world\")", "hello"),
        ("startswith(\"abc\", \"ab\")", "true"),
        ("endswith(\"abc\", \"ab\")", "false"),
        ("substr(\"hello\", 1, 3)", "ell"),
        ("substr(\"hello\", -2, -1)", "lo"),
        ("substr(\"hello\", 3, 99)", "lo"),
        ("jsonencode(split(\",\", \"a,b\"))", "[\"a\",\"b\"]"),
        ("join(\"-\", [\"a\"], [\"b\", 1])", "a-b-1"),
        ("indent(2, \"a\\nb\")", "a\n  b"),
        ("indent(9007199254740992, \"one line\")", "one line"),
        ("replace(\"a.b.c\", \".\", \"-\")", "a-b-c"),
        ("replace(\"a1b22\", \"/[0-9]+/\", \"<$0>\")", "a<1>b<22>"),
        ("regex(\"[a-z]+\", \"12ab\")", "ab"),
        ("jsonencode(regex(\"(\\\\d)(\\\\w)\", \"1a\"))", "[\"1\",\"a\"]"),
        ("regex(\"(?P<x>\\\\d)\", \"a7\").x", "7"),
        ("regex(\"^[\\\\d.]+\\\\s\\\\w\\\\b\", \"1.2 x-\")", "1.2 x"),
        ("can(regex(\"\\\\w\", \"é\"))", "false"),
        ("join(\",\", regexall(\"[a-z]\", \"1a2b\"))", "a,b"),
        (
            "format(\"%s-%03d-%5.1f|%-4s|%q|%v|%t|%x|%%\", \"a\", 7, 1.25, \"b\", \"c\", [1], true, 255)",
            "a-007-  1.2|b   |\"c\"|[1]|true|ff|%",
        ),
        ("format(\"%[2]s %[1]s\", \"a\", \"b\")", "b a"),
        ("join(\",\", formatlist(\"%s/%s\", [\"a\", \"b\"], \"c\"))", "a/c,b/c"),
        ("tostring(1)", "1"),
        ("tonumber(\"1.50\")", "1.5"),
        ("tobool(\"true\")", "true"),
    ]);
    all_wrong(&[
        "regex(\"[\", \"a\")",
        "regex(\"b\", \"a\")",
        "format(\"%d\", \"x\")",
        "format(\"%s\")",
        "upper()",
        "tonumber(\"x\")",
    ]);
}

#[test]
fn numbers() {
    all(&[
        ("abs(-3)", "3"),
        ("ceil(1.2)", "2"),
        ("floor(-1.2)", "-2"),
        ("log(16, 2)", "4"),
        ("pow(2, 10)", "1024"),
        ("signum(-9)", "-1"),
        ("max(1, 3, 2)", "3"),
        ("min(1, 3, 2)", "1"),
        ("parseint(\"ff\", 16)", "255"),
        ("jsonencode(range(3))", "[0,1,2]"),
        ("jsonencode(range(1, 8, 3))", "[1,4,7]"),
        ("jsonencode(range(2, 0))", "[2,1]"),
        ("sum([1, 2.5])", "3.5"),
    ]);
    all_wrong(&["parseint(\"z\", 10)", "range(0, 5, -1)", "max()"]);
}

#[test]
fn lists_and_maps() {
    all(&[
        ("length(\"äb\")", "2"),
        ("length([1, 2])", "2"),
        ("coalesce(null, \"\", \"a\")", "a"),
        ("jsonencode(coalescelist([], [1]))", "[1]"),
        ("jsonencode(compact([\"a\", \"\", null, \"b\"]))", "[\"a\",\"b\"]"),
        ("jsonencode(concat([1], [2, 3]))", "[1,2,3]"),
        ("contains([\"a\"], \"a\")", "true"),
        ("jsonencode(distinct([1, 2, 1]))", "[1,2]"),
        ("element([\"a\", \"b\"], 3)", "b"),
        ("index([\"a\", \"b\"], \"b\")", "1"),
        ("jsonencode(flatten([[1], [[2], 3]]))", "[1,2,3]"),
        ("jsonencode(chunklist([1, 2, 3], 2))", "[[1,2],[3]]"),
        ("jsonencode(keys({ b = 1, a = 2 }))", "[\"a\",\"b\"]"),
        ("jsonencode(values({ b = 1, a = 2 }))", "[2,1]"),
        ("lookup({ a = 1 }, \"b\", 5)", "5"),
        ("jsonencode(matchkeys([1, 2], [\"a\", \"b\"], [\"b\"]))", "[2]"),
        ("jsonencode(merge({ a = 1 }, null, { b = 2 }, { a = 3 }))", "{\"a\":3,\"b\":2}"),
        ("jsonencode(reverse([1, 2]))", "[2,1]"),
        ("jsonencode(slice([1, 2, 3], 1, 3))", "[2,3]"),
        ("jsonencode(sort([\"b\", \"a\"]))", "[\"a\",\"b\"]"),
        ("jsonencode(transpose({ a = [\"1\", \"2\"], b = [\"2\"] }))", "{\"1\":[\"a\"],\"2\":[\"a\",\"b\"]}"),
        ("jsonencode(zipmap([\"a\"], [1]))", "{\"a\":1}"),
        ("jsonencode(tolist([1]))", "[1]"),
        ("jsonencode(tomap({ a = 1 }))", "{\"a\":1}"),
        ("jsonencode(toset([\"b\", \"a\", \"b\"]))", "[\"a\",\"b\"]"),
        ("jsonencode(setunion([\"b\"], [\"a\"]))", "[\"a\",\"b\"]"),
        ("jsonencode(setintersection([1, 2], [2, 3]))", "[2]"),
        ("jsonencode(setsubtract([1, 2], [2]))", "[1]"),
        ("jsonencode(setproduct([1, 2], [\"a\"]))", "[[1,\"a\"],[2,\"a\"]]"),
    ]);
    all_wrong(&[
        "coalesce(null, \"\")",
        "element([], 0)",
        "list(1, 2)",
        "map(\"a\", 1)",
        "index([1], 2)",
        "slice([1], 0, 5)",
        "zipmap([\"a\"], [])",
        "lookup({}, \"a\")",
    ]);
}

#[test]
fn encodings_and_digests() {
    all(&[
        ("base64encode(\"hi\")", "aGk="),
        ("base64decode(\"aGk=\")", "hi"),
        ("jsonencode({ a = \"<x>\", b = [null, true] })", "{\"a\":\"\\u003cx\\u003e\",\"b\":[null,true]}"),
        ("jsondecode(\"{\\\"a\\\": [1, \\\"b\\\"]}\").a[1]", "b"),
        ("yamldecode(\"a: &x 1\\nb: *x\").b", "1"),
        ("length(yamldecode(\"[${join(\",\", [for n in range(50) : \"[1]\"])}]\"))", "50"),
        ("yamldecode(\"a: 1\\nb: [x, 'yes']\\nc:\\n  d: true\").c.d", "true"),
        ("jsonencode(yamldecode(\"- 1\\n- '1'\\n- ~\\n- 1.5\\n- text\"))", "[1,\"1\",null,1.5,\"text\"]"),
        ("yamlencode(\"a\\u2028b\")", "\"a\\Lb\"\n"),
        ("yamlencode({ a = [1, { b = \"c\" }], d = {} })", "\"a\":\n- 1\n- \"b\": \"c\"\n\"d\": {}\n"),
        ("csvdecode(\"a,b\\n1,\\\"x,y\\\"\\n\")[0].b", "x,y"),
        ("urlencode(\"a b/ü\")", "a+b%2F%C3%BC"),
        ("md5(\"hi\")", "49f68a5c8493ec2c0bf489821c21fc3b"),
        ("sha1(\"hi\")", "c22b5f9178342609428d6f51b2c5af4c0bde6a42"),
        ("sha256(\"hi\")", "8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4"),
        ("base64sha256(\"hi\")", "j0NDRmSPa5bfid2pAcUXaxCm2Dlh3TwayItZstwyeqQ="),
        ("length(sha512(\"hi\"))", "128"),
        ("length(base64sha512(\"hi\"))", "88"),
        ("uuidv5(\"dns\", \"www.terraform.io\")", "a5008fae-b28c-5ba5-96cd-82b4c53552d6"),
    ]);
    all_wrong(&[
        "base64decode(\"!\")",
        "jsondecode(\"{\")",
        "yamldecode(\"a: &x 1\\nb: *y\")",
        "csvdecode(\"a,b\\n1\\n\")",
    ]);
}

#[test]
fn addresses_and_dates() {
    all(&[
        ("cidrhost(\"10.1.2.0/24\", 5)", "10.1.2.5"),
        ("cidrhost(\"10.1.2.0/24\", -1)", "10.1.2.255"),
        ("cidrhost(\"fd00::/64\", 16)", "fd00::10"),
        ("cidrnetmask(\"172.16.0.0/12\")", "255.240.0.0"),
        ("cidrsubnet(\"172.16.0.0/12\", 4, 2)", "172.18.0.0/16"),
        (
            "jsonencode(cidrsubnets(\"10.1.0.0/16\", 4, 4, 8, 4))",
            "[\"10.1.0.0/20\",\"10.1.16.0/20\",\"10.1.32.0/24\",\"10.1.48.0/20\"]",
        ),
        ("timeadd(\"2017-11-22T00:00:00Z\", \"1h10m\")", "2017-11-22T01:10:00Z"),
        ("timeadd(\"2024-01-01T00:00:00+02:00\", \"-1h\")", "2023-12-31T23:00:00+02:00"),
        ("timecmp(\"2024-01-01T00:00:00Z\", \"2024-01-01T01:00:00+01:00\")", "0"),
        ("timecmp(\"2024-01-01T00:00:00Z\", \"2024-01-01T00:00:01Z\")", "-1"),
        ("upper(\"straße\")", "STRAßE"),
        ("formatdate(\"DD MMM YYYY hh:mm ZZZ\", \"2018-01-02T23:12:01Z\")", "02 Jan 2018 23:12 UTC"),
        (
            "formatdate(\"EEEE, DD-MMM-YY hh:mm:ss ZZZ\", \"2018-01-02T23:12:01-08:00\")",
            "Tuesday, 02-Jan-18 23:12:01 -0800",
        ),
        ("formatdate(\"h'h'mm AA\", \"2018-01-02T03:04:05Z\")", "3h04 AM"),
        ("timestamp()", "1970-01-01T00:00:00Z"),
        ("timecmp(\"9999-12-29T23:59:59Z\", \"2020-01-01T00:00:00Z\")", "1"),
    ]);
    all_wrong(&[
        "cidrhost(\"10.0.0.0/30\", 9)",
        "cidrsubnet(\"10.0.0.0/30\", 1, 2)",
        "timeadd(\"x\", \"1h\")",
        "timecmp(\"9999-12-32T00:00:00Z\", \"2020-01-01T00:00:00Z\")",
        "formatdate(\"Q\", \"2018-01-02T03:04:05Z\")",
    ]);
}

#[test]
fn a_template_may_be_a_text_and_numbers_have_all_their_digits() {
    all(&[
        ("templatestring(\"<$${x}>\", { x = 1 })", "<1>"),
        ("12345678901234567890123", "12345678901234567890123"),
        ("0.1234567890123456789012345678901234567890", "0.123456789012345678901234567890123456789"),
        ("jsondecode(\"12345678901234567890123\")", "12345678901234567890123"),
        ("10 / 4 * 2", "5"),
    ]);
}

#[test]
fn unavailable_functions_are_not_reported_as_errors() {
    for expression in [
        "bcrypt(\"x\")",
        "base64gzip(\"x\")",
        "nosuch(1)",
        "provider::x::y(1)",
        "file(\"/etc/passwd\")",
        "fileexists(\"../x\")",
        "element([1, 2], -1)",
        "format(\"%99999d\", 1)",
        "tonumber(\"1e2000\") * tonumber(\"1e2000\")",
        "textencodebase64(\"x\", \"windows-1252\")",
        "fileset(\".\", \"../*\")",
        "fileset(\".\", \"a/..\")",
        "timecmp(\"9999-12-31T23:59:59Z\", \"9999-12-31T23:59:59Z\")",
        "timecmp(\"9999-12-30T00:00:00Z\", \"2020-01-01T00:00:00Z\")",
        "yamlencode(\"a\\nb\\u2028c\")",
        "yamlencode(\"a\\nb\\u2029c\")",
    ] {
        for expression in
            [expression.to_owned(), format!("try({expression}, 1)"), format!("can({expression})")]
        {
            let reason = value("", &expression).unwrap_err();
            assert!(matches!(reason, Reason::Unavailable(_)), "{expression}: {reason:?}");
        }
    }
}

#[test]
fn texts_in_any_charset_decode_to_themselves() {
    for (charset, aliases) in [
        ("UTF-8", &["utf-8", "csUTF8"][..]),
        ("UTF-16LE", &["utf-16le", "csUTF16LE"]),
        ("UTF-16BE", &["utf-16be", "csUTF16BE"]),
        ("ISO-8859-1", &["iso_8859-1", "latin1", "l1", "ibm819", "cp819", "iso-ir-100", "csISOLatin1"]),
    ] {
        let encoded = value("", &format!("textencodebase64(\"hélloÿ\", \"{charset}\")")).unwrap();
        for name in aliases.iter().chain([&charset]) {
            all(&[
                (&format!("textencodebase64(\"hélloÿ\", \"{name}\")"), &encoded),
                (&format!("textdecodebase64(\"{encoded}\", \"{name}\")"), "hélloÿ"),
            ]);
        }
    }
    let reason = value("", "textencodebase64(\"x\", \"KOI8-R\")").unwrap_err();
    assert!(matches!(&reason, Reason::Unavailable(why) if why.contains("only UTF-8")), "{reason:?}");
}

#[test]
fn functions_that_only_terraform_can_call_say_why() {
    for (call, part) in [
        ("plantimestamp()", "time of the job"),
        ("abspath(\".\")", "directory of the job"),
        ("bcrypt(\"x\")", "random"),
        ("base64gzip(\"x\")", "compression"),
        ("issensitive(1)", "which values are sensitive"),
        ("list(1)", "removed"),
    ] {
        let reason = value("", call).unwrap_err();
        assert!(reason.to_string().contains(part), "{call}: {reason}");
    }
}

/// The result is the same up to the bound, and beyond it the expression is left to Terraform.
#[test]
fn bounds_of_functions_are_where_they_are_said_to_be() {
    let repeated = |text: &str, count: usize| text.repeat(count);
    let nested = |count: usize| format!("{}{}", "[".repeat(count), "]".repeat(count));
    let names = |count: usize| format!("{{ for n in range({count}) : \"n${{n}}\" => n }}");
    for (within, beyond, part) in [
        (
            format!("length(jsondecode(\"{}\"))", nested(40)),
            format!("length(jsondecode(\"{}\"))", nested(41)),
            "JSON nested deeper than 40",
        ),
        (
            format!("length(yamldecode(\"{}\"))", nested(40)),
            format!("length(yamldecode(\"{}\"))", nested(41)),
            "YAML nested deeper than 40",
        ),
        (
            "length(format(\"%10000d\", 1))".to_owned(),
            "length(format(\"%10001d\", 1))".to_owned(),
            "wider than 10000",
        ),
        (
            "length(format(\"%.10000d\", 1))".to_owned(),
            "length(format(\"%.10001d\", 1))".to_owned(),
            "wider than 10000",
        ),
        (
            format!("length(templatestring(\"a\", {}))", names(200)),
            format!("length(templatestring(\"a\", {}))", names(201)),
            "more than 200 names",
        ),
        (
            format!("length(yamlencode({{ \"{}\" = 1 }}))", repeated("k", 128)),
            format!("length(yamlencode({{ \"{}\" = 1 }}))", repeated("k", 129)),
            "keys that are long",
        ),
        (
            format!("parseint(\"-{}1\", 2) + 1", repeated("0", 4095)),
            format!("parseint(\"-{}1\", 2) + 1", repeated("0", 4096)),
            "numbers of this size",
        ),
        (
            "regex(\"(a{99}){9}\", \"b\") == 1 ? 1 : 2".to_owned(),
            "regex(\"((a{99}){99}){99}\", \"b\")".to_owned(),
            "too large",
        ),
        (
            "pow(10, 308) == 1 ? 1 : 2".to_owned(),
            "tonumber(\"1e2400\") * tonumber(\"1e2400\")".to_owned(),
            "numbers of this size",
        ),
    ] {
        match value("", &within) {
            Ok(_) => {}
            Err(Reason::Failed(why)) => assert!(why.contains("does not match"), "{within}: {why}"),
            Err(other) => panic!("{within}: {other:?}"),
        }
        match value("", &beyond) {
            Err(Reason::Unavailable(why)) => assert!(why.contains(part), "{beyond}: {why}"),
            other => panic!("{beyond}: {other:?}"),
        }
    }
    for key in ["a\\nb", "a\\rb", "a\\u0085b", "a\\u2028b", "a\\u2029b"] {
        let reason = value("", &format!("yamlencode({{ \"{key}\" = 1 }})")).unwrap_err();
        assert!(matches!(reason, Reason::Unavailable(_)), "{key}: {reason:?}");
    }
}

#[test]
fn templates_see_only_the_names_that_they_are_given() {
    all(&[
        ("templatestring(\"$${a-b} $${_c} $${é}\", { a-b = 1, _c = 2, é = 3 })", "1 2 3"),
        ("templatestring(\"%%{ for v in l }$${v}$${x}%%{ endfor }\", { l = [1, 2], x = \"-\" })", "1-2-"),
        ("templatestring(\"plain\", {})", "plain"),
        ("templatestring(\"$${x}\", tomap({ x = \"y\" }))", "y"),
    ]);
    all_wrong(&[
        "templatestring(\"$${y}\", { x = 1 })",
        "templatestring(\"$${path.module}\", {})",
        "templatestring(\"$${\", {})",
        "templatestring(\"a\", { \"1a\" = 1 })",
        "templatestring(\"a\", { \"a b\" = 1 })",
        "templatestring(\"a\", { \"-a\" = 1 })",
        "templatestring(\"a\", { \"\" = 1 })",
        "templatestring(\"a\", [1])",
    ]);
}
