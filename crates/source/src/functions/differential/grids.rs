//! Expressions that try all combinations of small parts, each alone: `try` gives a text where Terraform has an error.

/// All texts of so many characters of a pool.
fn texts(pool: &str, length: usize) -> String {
    format!("[for parts in setproduct({}) : join(\"\", parts)]", vec![pool; length].join(", "))
}

/// `expression` for each `v` of a list.
fn each(list: &str, expression: &str) -> String {
    format!("jsonencode([for v in {list} : try({expression}, \"error\")])")
}

pub(super) fn expressions() -> Vec<String> {
    let mut all = vec![
        each(&texts(r#"["1", "0", ".", "e", "-", "+", "p", "x", " "]"#, 3), "tonumber(v)"),
        each(&texts(r#"["7", ".", "E", "-"]"#, 5), "tonumber(v)"),
        each(&texts(r#"["1", "0", ".", "e", "-", "\"", "[", "]", "{", "}", ":", ",", " "]"#, 3), "jsondecode(v)"),
        each(&texts(r#"["{", "}", "\"a\"", ":", ",", "1"]"#, 4), "jsondecode(\"{\\\"b\\\":2${v}}\")"),
        each(&texts(r#"["a", ",", "\"", "\n"]"#, 4), "csvdecode(\"h\\n${v}\")"),
        each(&texts(r#"["a", ",", "\"", "\n"]"#, 4), "csvdecode(\"h,i\\n${v}\")"),
        each(&texts(r#"["a", ",", "\"", "\r", "\n"]"#, 3), "csvdecode(\"${v}x,y\\n1,2\")"),
        each(&texts(r#"["a", "/", "..", "."]"#, 5), "[basename(v), dirname(v)]"),
        each(&texts(r#"[" ", "\n", "a", "\"", ":", "\t"]"#, 4), "yamlencode({ k = v })"),
        each(&texts(r#"["\u00a0", "\ud7ff", "\ue000", "\ufefe", "\ufeff", "\uff00", "\ufffd", "\U00010000"]"#, 2), "yamlencode([v])"),
        each(&texts(r#"["\u0085", "\r", "\n", " ", "x"]"#, 3), "yamlencode([[v]])"),
        each(&texts(r#"["0", "1", "x", "o", "b", ".", "e", "-", "_", "F"]"#, 3), "yamldecode(\"k: ${v}7\")"),
        each(&texts(r#"["0", "1", "x", "o", ".", "e", "_", "+"]"#, 3), "yamldecode(\"${v}\")"),
        each(&texts(r#"["**", "*", "/", "c", ".yaml", "deep"]"#, 3), "fileset(\"conf\", v)"),
        each(&texts(r#"["A", "B", "/", "+", "=", "\n"]"#, 4), "base64decode(v)"),
        each(&texts(r#"["1", ".", "h", "m", "-", "s"]"#, 4), "timeadd(\"2024-02-28T22:00:00Z\", v)"),
        each(&texts(r#"["$", "1", "{", "n", "x"]"#, 3), "replace(\"ab\", \"/(?P<n>a)(c)?/\", \"<${v}>\")"),
        each(&texts(r#"["a", "b", "!"]"#, 4), "[trim(v, \"a!\"), trimprefix(v, \"a\"), trimsuffix(v, \"ab\"), trimspace(\"\\n${v} \"), strrev(v), title(v)]"),
        each(&texts(r#"["a", " ", "_", "9", "-", "é", "."]"#, 3), "title(v)"),
        each(&texts(r#"["a", "\n", "\r"]"#, 4), "[chomp(v), trimspace(v), indent(2, v), split(\"\\n\", v)]"),
        each(
            "[\"2020-01-01T00:00:00\"]",
            "[for zone in [\"Z\", \"z\", \"\", \"+00:00\", \"-00:00\", \"+05:30\", \"-08:00\", \"-00:30\", \"+14:00\", \"+23:59\", \"+24:00\", \"+1:00\", \"+01:0\", \"+01-00\", \"+0100\", \"+01:60\", \".Z\", \".1Z\", \".12+01:00\", \".123456789Z\", \".1234567891Z\", \",5Z\", \".5\", \"ZZ\", \".5x\"] : try([timeadd(\"${v}${zone}\", \"1h\"), formatdate(\"Z ZZZ ZZZZ ZZZZZ\", \"${v}${zone}\"), timecmp(\"${v}${zone}\", \"2020-01-01T00:00:00.12Z\")], \"error\")]",
        ),
        each(
            r#"["2020-01-01T00:00:60Z", "2020-01-01T00:60:00Z", "2020-01-01T24:00:00Z", "2020-00-01T00:00:00Z", "2020-01-00T00:00:00Z", "20200-01-01T00:00:00Z", "2020-1-01T00:00:00Z", "2020-01-01X00:00:00Z", "2020/01/01T00:00:00Z", "2020-01-01T00-00-00Z", "2020-01-01T0a:00:00Z", "ü020-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "2020-01-01T12:34:56.5-03:15", ""]"#,
            "timecmp(v, \"2020-01-01T12:34:56Z\")",
        ),
        each(
            r#"["+020-01-02", "2020-+1-02", "2020-01-+2", "20200-01-02", "2020-001-02", "2020-1-2", "2020-01-02-03", "2020-01-02t1:2:3Z", "2020-01-02T00:00:00+25:00", "2020-01-02T00:00:00-01:59", "2020-01-02T00:00:00+1:00", "2020-01-02 10:00:00", "2020-01-02 10:00", "2020-01-02T10:00:00"]"#,
            "yamldecode(v)",
        ),
        each("range(24)", "formatdate(\"H HH h hh AA aa m mm s ss\", timeadd(\"2024-02-28T00:09:05Z\", \"${v}h\"))"),
        each("range(26)", "formatdate(\"M MM MMM MMMM D DD EEE EEEE YY YYYY\", timeadd(\"2022-12-31T00:00:00Z\", \"${v * 737}h\"))"),
        each(&texts(r#"["'", "Y", "MM", "x"]"#, 4), "formatdate(v, \"2009-01-02T03:04:05Z\")"),
        each(
            r#"setproduct(["2", "8", "10", "16", "36", "37", "62"], ["0", "1", "7", "8", "9", "a", "f", "g", "z", "A", "F", "G", "Z", "/", ":", "@", "[", "`", "{", "-1", "+1", "--1", "", "-", "1 ", "10"])"#,
            "parseint(v[1], v[0])",
        ),
        each("setproduct(range(-6, 7), range(-1, 7))", "substr(\"abcde\", v[0], v[1])"),
        each("setproduct(range(-1, 5), range(-1, 5))", "slice([\"a\", \"b\", \"c\"], v[0], v[1])"),
        each("range(8)", "[element([\"a\", \"b\", \"c\"], v), chunklist([\"a\", \"b\", \"c\"], v)]"),
        each(
            "setproduct([0, 3, -3, 2.5, \"x\"], [0, 4, -4, 3.5], [0, 1, -1, 2, 0.5])",
            "[range(v[0], v[1], v[2]), range(v[0], v[1])]",
        ),
        each("[1023, 1024, 1025, 0, -1, -1024, -1025]", "length(range(v))"),
        each(
            r#"setproduct(["10.1.2.0/24", "10.1.2.3/30", "0.0.0.0/0", "255.255.255.255/32", "fd00::/64", "fd00::ff/120", "::/0"], [0, 1, 3, 4, 255, 256, 65536, 4294967295, 4294967296, -1, -4, -5, -256, -257])"#,
            "cidrhost(v[0], v[1])",
        ),
        each(
            r#"setproduct(["10.1.2.0/24", "10.1.2.3/30", "0.0.0.0/0", "fd00::/64", "fd00::ff/120", "::/0"], [0, 1, 2, 3, 8, 9, 32, 33, 64, 65, 128, 129], [0, 1, 2, 3, 4, 255, 256, 4294967295])"#,
            "cidrsubnet(v[0], v[1], v[2])",
        ),
        each(
            r#"setproduct(["10.0.0.0/24", "10.0.0.0/30", "255.255.255.0/24", "fd00::/56", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:0/112"], [0, 1, 2, 8], [1, 2, 3, 32], [1, 2, 8, 33])"#,
            "cidrsubnets(v[0], v[1], v[2], v[3])",
        ),
        each("range(33)", "[cidrnetmask(\"10.0.0.0/${v}\"), cidrsubnet(\"255.255.255.255/${v}\", 0, 0)]"),
        each(r#"["1.2.3.4/", "/8", "1.2.3/8", "1.2.3.4.5/8", "1..2.3/8", "00.0.0.0/8", "256.0.0.0/8", "1.2.3.4/0x8", "1.2.3.4/ 8", ":::/8", "fd00::/129", "1.2.3.4/32/1"]"#, "cidrhost(v, 0)"),
        each(
            r#"["dns", "url", "oid", "x500", "DNS", ""]"#,
            "[uuidv5(v, \"\"), uuidv5(v, \"www.example.com\"), uuidv5(v, \"é\")]",
        ),
        "urlencode(\" !\\\"#$%&'()*+,-./0189:;<=>?@AZ[\\\\]^_`az{|}~\\t\\n\\u007f\\u00e4\")".to_owned(),
        "[for v in [\"\", \"a\", \"hello\", \"é\\n\"] : [md5(v), sha1(v), sha256(v), sha512(v), base64sha256(v), base64sha512(v), base64encode(v)]]".to_owned(),
        "[for c in split(\"\", \"ǄǅǆǇǈǉǊǋǌǱǲǳაჺჽჿᾀᾇᾈᾏᾐᾗᾘᾟᾠᾧᾨᾯᾳᾼῃῌῳῼßŉǰΐﬁİıſ\") : [upper(c), lower(c), title(c)]]".to_owned(),
        each("[1, -1, 0, 2.5, -2.5, 1 / 3, -1 / 3, \"7.999\", 1e30, -1e-30]", "[ceil(v), floor(v), abs(v), -v]"),
        each("[1, -1, 0, -3, 7, \"-2\", 0.5]", "signum(v)"),
        each("[[], [null], [true], [false], [true, null], [false, null], [null, true], [\"true\", \"1\"], [\"0\"], [true, false], [false, true], [1]]", "[alltrue(v), anytrue(v)]"),
        each("[[], [1], [1, 2], [null], tolist([]), tolist([\"a\"]), toset([\"a\"]), toset([\"a\", \"b\"]), toset([]), null, \"a\"]", "one(v)"),
        each("[[[\"a\"], [\"b\"]], [[], [\"b\"]], [[null], []], [[\"\"]], [], [null, [\"x\"]]]", "coalescelist(v...)"),
    ];
    for value in [
        "0",
        "-0",
        "7",
        "-5",
        "255",
        "1.5",
        "-2.75",
        "1e21",
        "1e-7",
        "1 / 3",
        "\"ab\"",
        "\"é\\u0301x<\"",
        "true",
        "[1, \"a\"]",
    ] {
        all.push(format!(
            "jsonencode([for v in setproduct([\"\", \"+\", \"-\", \"0\", \" \", \"#\", \"-0\", \"+ \"], [\"\", \"7\"], [\"\", \".\", \".1\", \".3\"], \
             [\"d\", \"x\", \"X\", \"b\", \"o\", \"e\", \"E\", \"f\", \"g\", \"G\", \"s\", \"q\", \"v\", \"t\"]) : \
             try(format(\"%${{v[0]}}${{v[1]}}${{v[2]}}${{v[3]}}|\", {value}), \"\")])"
        ));
    }
    all
}
