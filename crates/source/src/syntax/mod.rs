//! Parses configuration within bounds on time, and accepts repeated keys as Terraform does.
//!
//! The parser `hcl-edit` refuses an object that has a key twice, of which Terraform uses the last one, and compares each
//! key with all keys before it. So the text is scanned first, in linear time: the scan counts the keys of each object and
//! finds the repeated ones. Those are put into parentheses, which do not change their value, but make them another key for
//! the parser.

use std::borrow::Cow;
use std::collections::HashMap;

use hcl_edit::structure::Body;

/// Most work of the parser: the sum of the squares of the numbers of keys of all objects and bodies.
const MAX_WORK: u64 = 400_000_000;

/// How often a key may be repeated in one object; each repetition adds a level of parentheses.
const MAX_REPEATS: usize = 20;

/// Why a text is not a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct SyntaxError {
    /// The line, counted from one.
    pub line: usize,
    pub message: String,
}

/// The syntax of a file, with the text that its positions refer to.
#[derive(Debug)]
pub struct Parsed<'t> {
    /// The syntax.
    pub body: Body,
    /// The parsed text; it has the same lines as the source.
    pub text: Cow<'t, str>,
}

/// The remaining work for the files of one module.
#[derive(Debug)]
pub struct ParseBudget(u64);

impl Default for ParseBudget {
    fn default() -> Self {
        Self(MAX_WORK)
    }
}

/// Parses a file.
///
/// # Errors
/// [`SyntaxError`] when the text is not a configuration, or when parsing it would take too long.
pub fn parse<'t>(text: &'t str, budget: &mut ParseBudget) -> Result<Parsed<'t>, SyntaxError> {
    let found = scan(text.as_bytes());
    let left = budget.0.checked_sub(found.work);
    budget.0 = left.ok_or_else(|| SyntaxError {
        line: found.largest,
        message: "too many keys in one object or block: split it, or split the file".to_owned(),
    })?;
    let text = with_distinct_keys(text, &found.repeated)?;
    let body: Body = text.parse().map_err(|error: hcl_edit::parser::Error| SyntaxError {
        line: error.location().line(),
        message: error.message().to_owned(),
    })?;
    Ok(Parsed { body, text })
}

/// The text with every repeated key in parentheses.
fn with_distinct_keys<'t>(text: &'t str, repeated: &[RepeatedKey]) -> Result<Cow<'t, str>, SyntaxError> {
    if repeated.is_empty() {
        return Ok(text.into());
    }
    let mut new = String::with_capacity(text.len() + repeated.len() * 6);
    let mut done = 0;
    for key in repeated {
        let Some((before, written)) = text.get(done..key.start).zip(text.get(key.start..key.end)) else {
            return Ok(text.into());
        };
        if key.times > MAX_REPEATS {
            let line = line_at(text, key.start);
            let message = format!("the key {written} comes more than {MAX_REPEATS} times in one object");
            return Err(SyntaxError { line, message });
        }
        let is_word = written.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
            && !written.starts_with(|c: char| c.is_ascii_digit());
        let quote = if is_word { "\"" } else { "" };
        new.push_str(before);
        new.push_str(&"(".repeat(key.times));
        new.push_str(quote);
        new.push_str(written);
        new.push_str(quote);
        new.push_str(&")".repeat(key.times));
        done = key.end;
    }
    new.push_str(&text[done..]);
    Ok(new.into())
}

/// The line of a position, counted from one.
pub(crate) fn line_at(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// A key that its object had before.
struct RepeatedKey {
    start: usize,
    end: usize,
    /// How often it occurred before.
    times: usize,
}

#[derive(Default)]
struct Scan {
    repeated: Vec<RepeatedKey>,
    work: u64,
    /// The line in which the object or body with the most keys ends.
    largest: usize,
}

/// The position of the scan. Nesting is a list, so no text can exhaust the stack.
enum Frame<'t> {
    /// Attributes and blocks; `value` is set after an equals sign.
    Body {
        value: bool,
        keys: u64,
    },
    Object {
        state: KeyState,
        known: HashMap<&'t [u8], usize>,
        keys: u64,
    },
    /// Parentheses, brackets, a `for` in braces, or an expression in a text.
    Group,
    Quoted,
    Heredoc {
        mark: &'t [u8],
    },
}

#[derive(Clone, Copy)]
enum KeyState {
    Before,
    Key { start: usize },
    Value,
}

/// Scans the text once. Invalid text is left to the parser, which reports it.
fn scan(text: &[u8]) -> Scan {
    let mut found = Scan::default();
    let mut line = 1;
    let mut largest = 0;
    let mut stack = vec![Frame::Body { value: false, keys: 0 }];
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest[0] == b'\n' {
            line += 1;
        }
        let Some(top) = stack.last_mut() else { break };
        match top {
            Frame::Quoted => match rest {
                [b'\\', _, ..] => at += 2,
                [b'$', b'$', b'{', ..] | [b'%', b'%', b'{', ..] => at += 3,
                [b'$' | b'%', b'{', ..] => {
                    stack.push(Frame::Group);
                    at += 2;
                }
                [b'"', ..] => {
                    stack.pop();
                    at += 1;
                }
                _ => at += 1,
            },
            Frame::Heredoc { mark } => match rest {
                [b'$', b'$', b'{', ..] | [b'%', b'%', b'{', ..] => at += 3,
                [b'$' | b'%', b'{', ..] => {
                    stack.push(Frame::Group);
                    at += 2;
                }
                [b'\n', next @ ..] => {
                    let length = next.iter().position(|&byte| byte == b'\n').unwrap_or(next.len());
                    if next[..length].trim_ascii() == *mark {
                        stack.pop();
                        // The newline after the mark ends the attribute.
                        at += 1 + length;
                    } else {
                        at += 1;
                    }
                }
                _ => at += 1,
            },
            code => {
                if matches!(rest, [b'#', ..] | [b'/', b'/', ..]) {
                    at += rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
                    continue;
                }
                if let [b'/', b'*', comment @ ..] = rest {
                    let length = comment.windows(2).position(|pair| pair == b"*/").unwrap_or(comment.len());
                    let comment = &comment[..length];
                    line += comment.iter().filter(|&&byte| byte == b'\n').count();
                    at += length + 4;
                    continue;
                }
                if let Frame::Object { state, .. } = code
                    && matches!(state, KeyState::Before)
                    && !rest[0].is_ascii_whitespace()
                    && !matches!(rest[0], b',' | b'}')
                {
                    if starts_with_word(rest, b"for") {
                        *code = Frame::Group;
                        continue;
                    }
                    *state = KeyState::Key { start: at };
                }
                match rest {
                    [b'"', ..] => {
                        stack.push(Frame::Quoted);
                        at += 1;
                    }
                    [b'<', b'<', behind @ ..] => match heredoc(behind) {
                        Some((mark, length)) => {
                            stack.push(Frame::Heredoc { mark });
                            at += 2 + length;
                        }
                        None => at += 2,
                    },
                    [b'(' | b'[', ..] => {
                        stack.push(Frame::Group);
                        at += 1;
                    }
                    [b'{', ..] => {
                        let opens = match code {
                            Frame::Body { value: false, .. } => Frame::Body { value: false, keys: 0 },
                            _ => Frame::Object { state: KeyState::Before, known: HashMap::new(), keys: 0 },
                        };
                        stack.push(opens);
                        at += 1;
                    }
                    [b')' | b']' | b'}', ..] => {
                        if let Frame::Body { keys, .. } | Frame::Object { keys, .. } = code {
                            found.work = found.work.saturating_add(*keys * *keys);
                            if *keys > largest {
                                (largest, found.largest) = (*keys, line);
                            }
                        }
                        if stack.len() > 1 {
                            stack.pop();
                        }
                        at += 1;
                    }
                    [b'=' | b':', ..] => {
                        match code {
                            Frame::Body { value, keys } if !*value && rest[0] == b'=' => {
                                *value = true;
                                *keys += 1;
                            }
                            Frame::Object { state, known, keys } => {
                                if let KeyState::Key { start } = *state {
                                    let key = text[start..at].trim_ascii_end();
                                    let quoted =
                                        key.strip_prefix(b"\"").and_then(|key| key.strip_suffix(b"\""));
                                    let before = known.entry(quoted.unwrap_or(key)).or_default();
                                    if *before > 0 {
                                        let end = start + key.len();
                                        found.repeated.push(RepeatedKey { start, end, times: *before });
                                    }
                                    *before += 1;
                                    *keys += 1;
                                    *state = KeyState::Value;
                                }
                            }
                            _ => {}
                        }
                        at += 1;
                    }
                    [b'\n', ..] => {
                        match code {
                            Frame::Body { value, .. } => *value = false,
                            Frame::Object { state, .. } => *state = KeyState::Before,
                            _ => {}
                        }
                        at += 1;
                    }
                    [b',', ..] => {
                        if let Frame::Object { state, .. } = code {
                            *state = KeyState::Before;
                        }
                        at += 1;
                    }
                    _ => at += 1,
                }
            }
        }
    }
    // The body of the file, and unclosed objects.
    for frame in &stack {
        if let Frame::Body { keys, .. } | Frame::Object { keys, .. } = frame {
            found.work = found.work.saturating_add(keys * keys);
            if *keys > largest {
                (largest, found.largest) = (*keys, line);
            }
        }
    }
    found.repeated.sort_by_key(|key| key.start);
    found
}

fn starts_with_word(text: &[u8], word: &[u8]) -> bool {
    text.strip_prefix(word).is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_whitespace))
}

/// The mark of a heredoc, and the length of its first line without the newline.
fn heredoc(behind: &[u8]) -> Option<(&[u8], usize)> {
    let length = behind.iter().position(|&byte| byte == b'\n')?;
    let mark = behind[..length].strip_prefix(b"-").unwrap_or(&behind[..length]).trim_ascii();
    Some((mark, length))
}

#[cfg(test)]
mod sources;
#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<(String, usize)> {
        scan(text.as_bytes())
            .repeated
            .iter()
            .map(|key| (text[key.start..key.end].to_owned(), key.times))
            .collect()
    }

    #[test]
    fn lines_are_counted_from_one_and_up_to_the_end() {
        let text = "a\nbc\n\nd";
        let lines: Vec<usize> = (0..=text.len() + 1).map(|at| line_at(text, at)).collect();
        assert_eq!(lines, [1, 1, 2, 2, 2, 3, 4, 4, 4]);
    }

    #[test]
    fn repeated_keys_are_found_wherever_objects_are() {
        let key = |key: &str, times: usize| (key.to_owned(), times);
        for (text, expected) in [
            ("a = { x = 1, y = 2, x = 3, x = 4 }", vec![key("x", 1), key("x", 2)]),
            ("a = {\n x = 1\n \"x\" = 2\n x : 3\n}\n", vec![key("\"x\"", 1), key("x", 2)]),
            ("a = { (var.k) = 1\n (var.k) = 2 }", vec![key("(var.k)", 1)]),
            ("a = [{ x = { z = 1, z = 2 } }, { x = 1 }]", vec![key("z", 1)]),
            ("a = f({ x = 1 }, \"${ { x = 1, x = 2 }.x }\")", vec![key("x", 1)]),
            ("a = { x = c ? 1 : 2, y = 1, x = a == b }", vec![key("x", 1)]),
            (
                "a = { x = <<-EOT\n  x = 1 }\n  ${ { y = 1, y = 2 } }\n  EOT\n x = 2 }",
                vec![key("y", 1), key("x", 1)],
            ),
            ("a = { x = \"\\\"\", x = 1 }", vec![key("x", 1)]),
            ("a = { x = \"$${\", x = \"%%{\", x = 1 }", vec![key("x", 1), key("x", 2)]),
            ("a = { x = \"%{ if true }${\"}\"}%{ endif }\", x = 1 }", vec![key("x", 1)]),
            ("a = { x = <<E\n$${ %%{ \" x = 1 }\nE\n x = 2 }", vec![key("x", 1)]),
            ("a = { x = <<E\n%{ if true }\"}%{ endif }\n EE\n  E\n x = 2 }", vec![key("x", 1)]),
            (
                "a = { x = c >= 1, x = c <= 2, x = c != 3, x = d => 1 }",
                vec![key("x", 1), key("x", 2), key("x", 3)],
            ),
            ("a = { /* } */ x = 1, // }\n x = 2 # }\n }", vec![key("x", 1)]),
            ("a = { fork = 1, fork = 2 }", vec![key("fork", 1)]),
            // None of these has one.
            ("block \"x\" {\n a = 1\n}\nblock \"x\" {\n a = 1\n}\n", vec![]),
            ("a = { for k, v in { x = 1 } : k => v if k != \"x\" }", vec![]),
            ("a = { # x = 1\n x = 1 // x = 2\n /* x = 3\n */ }", vec![]),
            ("a = \"{ x = 1, x = 2 } \\\" $${ { x = 1, x = 2 } }\"", vec![]),
            ("}}} = ) ] \" ${ <<", vec![]),
        ] {
            assert_eq!(keys(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_read_has_every_key_and_the_same_lines() {
        let text = "a = {\n  x = 1\n  x = 2\n  \"y\" = 1\n  \"y\" = 2\n  \"y\" = 3\n}\nb = {\n";
        let error = parse(text, &mut ParseBudget::default()).unwrap_err();
        assert!(error.line >= 8, "{error}");
        let text = text.strip_suffix("b = {\n").unwrap();
        let parsed = parse(text, &mut ParseBudget::default()).unwrap();
        assert_eq!(
            parsed.text,
            "a = {\n  x = 1\n  (\"x\") = 2\n  \"y\" = 1\n  (\"y\") = 2\n  ((\"y\")) = 3\n}\n"
        );
        let object = parsed.body.get_attribute("a").unwrap().value.as_object().unwrap();
        assert_eq!(object.len(), 5);
        let same = format!("a = {{\n{}}}\n", "x = 1\n".repeat(30));
        assert!(
            parse(&same, &mut ParseBudget::default()).unwrap_err().message.contains("more than 20 times")
        );
    }

    #[test]
    fn effort_is_of_the_largest_objects_not_of_the_file() {
        let mut small = String::new();
        for n in 0..20_000 {
            small.push_str(&format!("block \"b{n}\" {{\n  a = {{ x = 1, y = 2 }}\n}}\n"));
        }
        assert!(scan(small.as_bytes()).work < MAX_WORK / 100);
        let keys: String = (0..21_000).map(|n| format!("k{n} = 1\n")).collect();
        let above = "/* a\n\n*/\nx = <<-END\n  text\n  END\n# a\n// a\ny = \"${ /*\n*/ 1 }\"\n";
        let lines = above.lines().count();
        for (text, line) in [
            (format!("a = {{\n{keys}}}\n"), 21_002),
            (format!("{above}a = {{\n{keys}}}\n"), lines + 21_002),
            (format!("a = {{\n{keys}"), 21_002),
            (format!("{above}{keys}"), lines + 21_001),
        ] {
            let error = parse(&text, &mut ParseBudget::default()).unwrap_err();
            assert!(error.message.contains("too many keys"), "{error}");
            assert_eq!(error.line, line);
        }
    }
}
