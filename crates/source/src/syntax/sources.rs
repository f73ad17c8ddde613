//! Scans generated sources, of which it is known what they hold.

use super::*;
use crate::random::Random;

/// Text in strings, heredocs and comments that looks like something else.
const TRAPS: &[&str] = &[
    "a", " ", "{", "}", "= 1", "x = 1,", "for v", "#", "//", "/*", "<<E", "(", "]", ":", "\\\\", "$", "%",
    "é",
];

#[derive(Default)]
struct Source {
    text: String,
    /// The start of each repeated key, its text, and how often its object had it before.
    repeated: Vec<(usize, String, usize)>,
    work: u64,
    /// The number of keys and the last line of the object or body with the most keys.
    largest: (u64, usize),
    /// Keys of objects.
    keys: usize,
    names: usize,
}

struct Generator {
    random: Random,
    source: Source,
}

impl Generator {
    fn push(&mut self, text: &str) {
        self.source.text.push_str(text);
    }

    fn one(&mut self, pool: &[&str]) {
        let text = self.random.one(pool).to_owned();
        self.push(&text);
    }

    fn chance(&mut self, of: usize) -> bool {
        self.random.below(of) == 0
    }

    /// The end of a body or an object.
    fn end(&mut self, keys: u64) {
        self.source.work += keys * keys;
        if keys > self.source.largest.0 {
            self.source.largest = (keys, self.source.text.matches('\n').count() + 1);
        }
    }

    fn trap(&mut self) {
        self.one(TRAPS);
    }

    fn comment(&mut self) {
        match self.random.below(6) {
            0 => self.push("# { x = \"1\n"),
            1 => self.push("// } ] /* <<E\n"),
            2 => self.push("/* { \" # */"),
            3 => self.push("/* a\n } // *\n b */"),
            4 => self.push("/**/"),
            _ => self.push("\n"),
        }
    }

    fn body(&mut self, deeper: usize) {
        let mut keys = 0;
        for _ in 0..self.random.below(4) {
            if self.chance(3) {
                self.comment();
            }
            self.source.names += 1;
            let name = format!("n{}", self.source.names);
            self.push(&name);
            if self.chance(3) && deeper > 0 {
                self.one(&[" {\n", " \"label\" {\n", " \"a }\" \"{\" {\n"]);
                self.body(deeper - 1);
                self.push("}\n");
                continue;
            }
            keys += 1;
            self.one(&[" = ", "=", "  =  "]);
            self.value(deeper);
            self.one(&["\n", " # = {\n", " // = \"\n", " /* = */\n"]);
        }
        self.end(keys);
    }

    fn object(&mut self, deeper: usize) {
        let mut known: Vec<String> = Vec::new();
        self.one(&["{", "{ ", "{\n"]);
        let count = self.random.below(7);
        for at in 0..count {
            if self.chance(4) {
                self.comment();
            }
            let key =
                self.random.one(&["x", "y", "\"x\"", "\"a = {\"", "(x)", "(f(x, \"}\"))", "fork", "form"]);
            let times = known.iter().filter(|known| *known == key.trim_matches('"')).count();
            if times > 0 {
                self.source.repeated.push((self.source.text.len(), key.to_owned(), times));
            }
            // With quotes or without, it is the same key.
            known.push(key.trim_matches('"').to_owned());
            self.source.keys += 1;
            self.push(key);
            self.one(&[" = ", "=", " : ", "  =  "]);
            self.value(deeper);
            self.one(if at + 1 < count { &[",", ", ", "\n", ",\n"] } else { &["", " ", ",", "\n"] });
        }
        self.end(count as u64);
        self.push("}");
    }

    fn value(&mut self, deeper: usize) {
        if deeper == 0 {
            return self.one(&["1", "v", "null", "v.w", "-1", "\"\"", "{}"]);
        }
        let deeper = deeper - 1;
        match self.random.below(11) {
            0 | 1 => self.object(deeper),
            2 => self.quoted(deeper),
            3 => {
                self.one(&["[", "[\n"]);
                self.value(deeper);
                self.one(&[", ", ",\n"]);
                self.value(deeper);
                self.one(&["]", ",\n]"]);
            }
            4 => {
                self.one(&["f(", "(", "f(1, "]);
                self.value(deeper);
                self.push(")");
            }
            5 => {
                self.value(0);
                self.one(&[" == ", " != ", " >= ", " <= ", " < ", " > "]);
                self.value(0);
            }
            6 => {
                self.one(&["v ? ", "v == 1 ? "]);
                self.value(deeper);
                self.push(" : ");
                self.value(deeper);
            }
            7 => {
                self.one(&["{ for k, v in ", "{\nfor k, v in "]);
                self.value(deeper);
                self.push(" : k => ");
                self.value(deeper);
                self.push(" }");
            }
            8 => {
                self.push("[for v in ");
                self.value(deeper);
                self.push(" : ");
                self.value(deeper);
                self.push("]");
            }
            9 => self.heredoc(deeper),
            _ => self.value(0),
        }
    }

    fn quoted(&mut self, deeper: usize) {
        self.push("\"");
        for _ in 0..self.random.below(4) {
            match self.random.below(5) {
                0 => self.one(&["\\\"", "\\\\", "\\n"]),
                1 => self.one(&["$${ ", "%%{ "]),
                2 => self.interpolation(deeper),
                _ => self.trap(),
            }
            // Nothing that is pushed next to it changes what it means.
            self.push("_");
        }
        self.push("\"");
    }

    fn interpolation(&mut self, deeper: usize) {
        self.one(&["${", "${~ ", "%{ if v }_%{ else }${"]);
        let conditional = self.source.text.ends_with("else }${");
        self.value(deeper);
        self.push("}");
        if conditional {
            self.push("_%{ endif }");
        }
    }

    fn heredoc(&mut self, deeper: usize) {
        // A heredoc in another one has another mark. Its last line must have nothing else.
        let mark = format!("E{deeper}");
        self.one(&["(<<", "(<<-"]);
        self.push(&mark);
        for _ in 0..=self.random.below(2) {
            self.one(&["\n", "\n ", "\nE ", "\nE", "\n\" "]);
            match self.random.below(4) {
                0 => self.one(&["$${ ", "%%{ "]),
                1 => self.interpolation(deeper),
                _ => self.trap(),
            }
            self.push("_");
        }
        self.one(&["\n", "\n  ", "\n\n"]);
        self.push(&mark);
        self.push("\n)");
    }
}

fn generated(seed: u64) -> Source {
    let mut generator = Generator { random: Random::from_seed(seed), source: Source::default() };
    generator.body(5);
    generator.source
}

#[test]
fn repeated_keys_and_effort_are_found_in_any_source() {
    for seed in 0..3000 {
        let source = generated(seed);
        let found = scan(source.text.as_bytes());
        let repeated: Vec<_> = found
            .repeated
            .iter()
            .map(|key| (key.start, source.text[key.start..key.end].to_owned(), key.times))
            .collect();
        assert_eq!(repeated, source.repeated, "{seed}\n{}", source.text);
        assert_eq!((found.work, found.largest), (source.work, source.largest.1), "{seed}\n{}", source.text);
    }
}

fn keys(expression: &hcl_edit::expr::Expression) -> usize {
    use hcl_edit::visit::{Visit, visit_object};
    struct Counted(usize);
    impl Visit for Counted {
        fn visit_object(&mut self, node: &hcl_edit::expr::Object) {
            self.0 += node.len();
            visit_object(self, node);
        }
    }
    let mut counted = Counted(0);
    counted.visit_expr(expression);
    counted.0
}

fn keys_of(body: &Body) -> usize {
    let own: usize = body.attributes().map(|attribute| keys(&attribute.value)).sum();
    own + body.blocks().map(|block| keys_of(&block.body)).sum::<usize>()
}

#[test]
fn any_source_is_parsed_with_all_its_keys() {
    for seed in 0..1000 {
        let source = generated(seed);
        let parsed = parse(&source.text, &mut ParseBudget::default());
        let parsed = parsed.unwrap_or_else(|error| panic!("{seed}: {error}\n{}", source.text));
        assert_eq!(keys_of(&parsed.body), source.keys, "{seed}\n{}", source.text);
        assert_eq!(parsed.text.lines().count(), source.text.lines().count());
    }
}
