//! Regular expressions as template authors write them, in Go's syntax, for an engine with a slightly different one.
//!
//! Both have nearly the same syntax. Differences are rewritten: `\d`, `\w`, `\s` and `\b` mean ASCII only, `\Q…\E`
//! quotes, a brace that begins no repetition is a brace, an escaped punctuation mark is that mark, and brackets in
//! classes do not nest. Syntax that only this engine accepts is refused: a repetition of a repetition, and its
//! additional flags.

use std::iter::Peekable;
use std::str::Chars;

use regex::{Regex, RegexBuilder};

/// The longest expression, in bytes. The parser needs some hundred bytes of memory for each.
const MAX_LEN: usize = 1 << 13;

/// The largest compiled expression, in bytes. It holds `.{0,1000}`, the longest repetition of Go.
const MAX_SIZE: usize = 1 << 21;

/// Why an expression cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    /// The engine's reason.
    #[error(transparent)]
    Regex(#[from] regex::Error),
    /// Too many bytes.
    #[error("it is longer than {MAX_LEN} bytes")]
    TooLong,
    /// A repetition behind a repetition.
    #[error("a repetition cannot be repeated, as by {0:?}: put what comes before it into parentheses")]
    Repeated(char),
    /// A flag that Go does not have.
    #[error("{0:?} is not a flag: use i, m, s or U")]
    Flag(char),
}

/// Compiles an expression of Go's syntax. Its size is bounded, because template authors write it and the server compiles it.
///
/// # Errors
/// When it is not valid in Go, or too large.
pub fn compile(pattern: &str) -> Result<Regex, PatternError> {
    if pattern.len() > MAX_LEN {
        return Err(PatternError::TooLong);
    }
    let mut builder = RegexBuilder::new(&translate(pattern)?);
    Ok(builder.size_limit(MAX_SIZE).dfa_size_limit(MAX_SIZE).nest_limit(100).build()?)
}

fn translate(pattern: &str) -> Result<String, PatternError> {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern.chars().peekable();
    let mut repeated = false;
    while let Some(c) = rest.next() {
        let repeats = match c {
            '*' | '+' | '?' => true,
            '{' => is_repetition(rest.clone()),
            _ => false,
        };
        if repeats && repeated {
            return Err(PatternError::Repeated(c));
        }
        repeated = repeats;
        match c {
            '\\' => escape(&mut rest, &mut out, false),
            '[' => class(&mut rest, &mut out),
            '(' => group(&mut rest, &mut out)?,
            '{' if repeats => {
                out.push('{');
                out.extend(std::iter::from_fn(|| rest.next_if(|c| *c != '}')));
                out.extend(rest.next());
            }
            '{' => out.push_str(r"\{"),
            c => out.push(c),
        }
        if repeats {
            // A question mark behind it makes it lazy.
            out.extend(rest.next_if_eq(&'?'));
        }
    }
    Ok(out)
}

/// The text after an opening parenthesis: nothing, a name, or flags.
fn group(rest: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), PatternError> {
    out.push('(');
    let Some(mark) = rest.next_if_eq(&'?') else { return Ok(()) };
    out.push(mark);
    while let Some(c) = rest.next_if(|c| !matches!(c, 'P' | '<' | ':' | ')' | '=' | '!')) {
        if !matches!(c, 'i' | 'm' | 's' | 'U' | '-') {
            return Err(PatternError::Flag(c));
        }
        out.push(c);
    }
    Ok(())
}

/// What follows a backslash.
fn escape(rest: &mut Peekable<Chars<'_>>, out: &mut String, in_class: bool) {
    match rest.next() {
        Some('d') => out.push_str("[0-9]"),
        Some('D') => out.push_str("[^0-9]"),
        Some('w') => out.push_str("[0-9A-Za-z_]"),
        Some('W') => out.push_str("[^0-9A-Za-z_]"),
        Some('s') => out.push_str(r"[\t\n\f\r ]"),
        Some('S') => out.push_str(r"[^\t\n\f\r ]"),
        Some('b') if !in_class => out.push_str(r"(?-u:\b)"),
        Some('Q') if !in_class => quote(rest, out),
        Some(c @ ('p' | 'P' | 'x')) => {
            out.extend(['\\', c]);
            if rest.peek() == Some(&'{') {
                for c in rest.by_ref() {
                    out.push(c);
                    if c == '}' {
                        break;
                    }
                }
            }
        }
        Some(c) if c.is_ascii_punctuation() => push_literal(out, c),
        Some(c) => out.extend(['\\', c]),
        None => out.push('\\'),
    }
}

/// Everything up to `\E`, or to the end, is itself.
fn quote(rest: &mut Peekable<Chars<'_>>, out: &mut String) {
    while let Some(c) = rest.next() {
        if c == '\\' && rest.peek() == Some(&'E') {
            rest.next();
            return;
        }
        push_literal(out, c);
    }
}

/// A character that means itself, inside of a class or outside.
fn push_literal(out: &mut String, c: char) {
    // These have a meaning with a backslash, or none without.
    if c.is_ascii_punctuation() && !matches!(c, '<' | '>' | '_') {
        out.push('\\');
    }
    out.push(c);
}

/// The inside of brackets, after the opening one.
fn class(rest: &mut Peekable<Chars<'_>>, out: &mut String) {
    out.push('[');
    if rest.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    // A closing bracket right at the beginning is a member.
    if rest.next_if_eq(&']').is_some() {
        out.push_str(r"\]");
    }
    while let Some(c) = rest.next() {
        match c {
            ']' => return out.push(']'),
            '\\' => escape(rest, out, true),
            '[' if rest.peek() == Some(&':') => named_class(rest, out),
            '[' | '&' | '~' => push_literal(out, c),
            // A second hyphen ends a range; unescaped it would subtract a class.
            '-' if out.ends_with('-') => out.push_str(r"\-"),
            c => out.push(c),
        }
    }
}

/// A name such as `[:alpha:]`, after its opening bracket.
fn named_class(rest: &mut Peekable<Chars<'_>>, out: &mut String) {
    let name: String = rest.clone().skip(1).take_while(|c| c.is_ascii_lowercase() || *c == '^').collect();
    let mut after = rest.clone().skip(1 + name.len());
    if (after.next(), after.next()) != (Some(':'), Some(']')) {
        return out.push_str(r"\[");
    }
    out.push_str(&format!("[:{name}:]"));
    rest.nth(name.len() + 2);
}

/// Whether a count, or two with a comma, and a closing brace follow.
fn is_repetition(rest: Peekable<Chars<'_>>) -> bool {
    let inside: String = rest.take_while(|c| c.is_ascii_digit() || matches!(c, ',' | '}')).collect();
    let Some((counts, _)) = inside.split_once('}') else { return false };
    let (least, most) = counts.split_once(',').unwrap_or((counts, ""));
    !least.is_empty() && !most.contains(',')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, matching: &[&str], other: &[&str]) {
        let regex = compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        for text in matching {
            assert!(regex.is_match(text), "{pattern} should match {text:?}");
        }
        for text in other {
            assert!(!regex.is_match(text), "{pattern} should not match {text:?}");
        }
    }

    #[test]
    fn classes_are_ascii() {
        check(r"^\d+$", &["12"], &["٣", ""]);
        check(r"^\w+$", &["aZ_0"], &["ä"]);
        check(r"^[\w.-]+$", &["a.b-c"], &["ä", "a b"]);
        check(r"^[^\s]+$", &["a\u{a0}b"], &["a b"]);
        check(r"^\S$", &["\u{a0}"], &[" "]);
        check(r"^\p{L}+$", &["ä"], &["1"]);
        check(r"a\b", &["aä", "a b"], &["ab"]);
    }

    #[test]
    fn brackets_braces_and_quotes_mean_themselves() {
        check(r"^[[]$", &["["], &["a"]);
        check(r"^[]a]$", &["]", "a"], &["b"]);
        check(r"^[^]a]$", &["b"], &["]", "a"]);
        check(r"^[a&&b]$", &["a", "b", "&"], &["c"]);
        check(r"^[[:alpha:]\-_]+$", &["a-_"], &["1"]);
        check(r"^[+--]$", &["+", ",", "-"], &["a"]);
        check(r"^[[:x]$", &["[", ":", "x"], &["a"]);
        check(r"^{a}$", &["{a}"], &["a"]);
        check(r"^a{2}b{1,}c{1,2}$", &["aabbc"], &["abc"]);
        check(r"^a{,2}$", &["a{,2}"], &["aa"]);
        check(r"^\Qa.b[\E+$", &["a.b[["], &["axb["]);
        check(r"^\<\>\_\/\@$", &["<>_/@"], &[""]);
        check(r"^(?i)abc$", &["ABC"], &["abd"]);
    }

    #[test]
    fn what_neither_knows_is_refused() {
        for pattern in ["a**", "a+*", "a{2}{3}", "a*??", "(?x)a", "(?u:a)", "(?i-u)a"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
        check("^(?:(?P<n>a*?)b{1}?c??)+?(?i-s:D)$", &["abcbd"], &["e"]);
        check("^a*}?$", &["aa}", "aa"], &["}}"]);
        check("^(a*)*[*+?{2}]$", &["aa+", "{"], &["aa"]);
        for pattern in ["(", "(?=x)", r"\1", "[a", r"\p{Nothing}", r"\x{41", "\\"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
        check("a{2", &["a{2"], &["aa"]);
        check(r"^\x{41}\x42$", &["AB"], &["ab"]);
    }

    #[test]
    fn the_size_of_an_expression_is_bounded() {
        assert!(matches!(compile(&"a?".repeat(MAX_LEN)), Err(PatternError::TooLong)));
        assert!(matches!(compile("((a{1000}){1000}){1000}"), Err(PatternError::Regex(_))));
        assert!(matches!(compile(&"(".repeat(200)), Err(PatternError::Regex(_))));
        check("^.{0,1000}$", &["ä", ""], &["\n"]);
        check(r"^[\w.-]{1,253}$", &["a.b"], &["a b"]);
    }
}
