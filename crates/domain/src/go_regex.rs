//! Regular expressions as template authors write them, in Go's syntax, for an engine with a slightly different one.
//!
//! Both have nearly the same syntax. Differences are rewritten: `\d`, `\w`, `\s`, `\b` and `\B` mean ASCII only, `\Q…\E` quotes, a brace
//! that begins no repetition is a brace, an escaped punctuation mark is that mark, octal escapes are characters, and classes neither nest
//! nor have operators. Syntax that only this engine accepts is refused.

use regex::{Regex, RegexBuilder};

/// The longest expression, in bytes. The parser needs some hundred bytes of memory for each.
const MAX_LEN: usize = 1 << 13;

/// The largest compiled expression, in bytes. It holds `.{0,1000}`, the longest repetition of Go.
const MAX_SIZE: usize = 1 << 21;

/// The most often that Go repeats something by a count.
const MAX_REPETITIONS: u32 = 1000;

/// The classes that have a name between colons.
const NAMED_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// Why an expression cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    /// The engine's reason: not valid, or too large.
    #[error(transparent)]
    Regex(#[from] regex::Error),
    /// Too many bytes.
    #[error("it is longer than {MAX_LEN} bytes")]
    TooLong,
    /// A repetition behind a repetition.
    #[error("a repetition cannot be repeated, as by {0:?}: put what comes before it into parentheses")]
    Repeated(char),
    /// A count that Go does not accept.
    #[error("{{{0}}} repeats more than {MAX_REPETITIONS} times")]
    Count(String),
    /// A group that Go does not have.
    #[error("\"(?\" is followed by {0:?}: use a name as in (?P<name>…), or the flags i, m, s, U")]
    Group(String),
    /// A class without its closing bracket.
    #[error("a class in brackets does not end")]
    OpenClass,
    /// A class in colons that Go does not have.
    #[error("[:{0}:] is not a class")]
    UnknownClass(String),
    /// A backslash before something that has no meaning then.
    #[error("\\{0} has no meaning")]
    Escape(String),
}

impl PatternError {
    /// Whether the expression may be valid, but is larger than what is compiled here.
    pub fn is_too_large(&self) -> bool {
        matches!(self, Self::TooLong | Self::Regex(regex::Error::CompiledTooBig(_)))
    }
}

/// Compiles an expression of Go's syntax. Its size is bounded, because template authors write it and the server compiles it.
///
/// # Errors
/// When it is not valid in Go, or too large.
pub fn compile(pattern: &str) -> Result<Regex, PatternError> {
    compile_within(pattern, MAX_SIZE)
}

/// Compiles an expression of Go's syntax into at most `max_size` bytes.
///
/// # Errors
/// When it is not valid in Go, or too large.
pub fn compile_within(pattern: &str, max_size: usize) -> Result<Regex, PatternError> {
    if pattern.len() > MAX_LEN {
        return Err(PatternError::TooLong);
    }
    let mut builder = RegexBuilder::new(&translate(pattern)?);
    Ok(builder.size_limit(max_size).dfa_size_limit(max_size).nest_limit(100).build()?)
}

/// The expression in the engine's syntax.
fn translate(pattern: &str) -> Result<String, PatternError> {
    let mut out = String::with_capacity(pattern.len() * 2);
    let mut rest = pattern;
    let mut repeated = Repetition::No;
    while let Some(char) = rest.chars().next() {
        let after = &rest[char.len_utf8()..];
        let before = std::mem::replace(&mut repeated, Repetition::No);
        rest = match char {
            '\\' => escape(after, false, &mut out)?,
            '[' => class(after, &mut out)?,
            '(' => group(after, &mut out)?,
            '*' | '+' | '?' => {
                repeated = before.followed_by(char)?;
                out.push(char);
                after
            }
            '{' if let Some((counts, behind)) = counted(after) => {
                repeated = before.followed_by(char)?;
                let is_too_large = |count: &str| {
                    !count.is_empty() && !count.parse().is_ok_and(|count: u32| count <= MAX_REPETITIONS)
                };
                if counts.split(',').any(is_too_large) {
                    return Err(PatternError::Count(counts.to_owned()));
                }
                out.push_str(&format!("{{{counts}}}"));
                behind
            }
            '{' | '}' => {
                out.extend(['\\', char]);
                after
            }
            other => {
                out.push(other);
                after
            }
        };
    }
    Ok(out)
}

/// Whether what was just read repeats something.
#[derive(Clone, Copy)]
enum Repetition {
    No,
    Yes,
    /// As seldom as possible.
    Lazily,
}

impl Repetition {
    /// The state after a further repetition sign. A question mark makes the one before it lazy.
    fn followed_by(self, sign: char) -> Result<Self, PatternError> {
        match (self, sign) {
            (Self::No, _) => Ok(Self::Yes),
            (Self::Yes, '?') => Ok(Self::Lazily),
            _ => Err(PatternError::Repeated(sign)),
        }
    }
}

/// Reads `2}`, `2,}` or `2,3}`. Returns the counts and the rest.
fn counted(after: &str) -> Option<(&str, &str)> {
    let (counts, behind) = after.split_once('}')?;
    let (least, most) = counts.split_once(',').unwrap_or((counts, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (!least.is_empty() && are_digits(least) && are_digits(most)).then_some((counts, behind))
}

/// A group behind its opening parenthesis, up to its name or flags.
fn group<'p>(after: &'p str, out: &mut String) -> Result<&'p str, PatternError> {
    out.push('(');
    let Some(marked) = after.strip_prefix('?') else { return Ok(after) };
    let refused = || PatternError::Group(marked.chars().take(10).collect());
    if let Some(named) = marked.strip_prefix("P<").or_else(|| marked.strip_prefix('<')) {
        let (name, behind) = named.split_once('>').ok_or_else(refused)?;
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(refused());
        }
        out.push_str(&format!("?P<{name}>"));
        return Ok(behind);
    }
    let end = marked.find([':', ')']).ok_or_else(refused)?;
    if !marked[..end].chars().all(|flag| matches!(flag, 'i' | 'm' | 's' | 'U' | '-')) {
        return Err(refused());
    }
    out.push_str(&format!("?{}", &marked[..end]));
    Ok(&marked[end..])
}

/// What follows a backslash.
fn escape<'p>(after: &'p str, in_class: bool, out: &mut String) -> Result<&'p str, PatternError> {
    let Some(char) = after.chars().next() else { return Err(PatternError::Escape(String::new())) };
    let behind = &after[char.len_utf8()..];
    if let Some(class) = class_of(char) {
        out.push_str(class);
        return Ok(behind);
    }
    match char {
        'b' | 'B' if !in_class => out.push_str(&format!("(?-u:\\{char})")),
        'A' | 'z' if !in_class => out.extend(['\\', char]),
        'Q' if !in_class => {
            let (quoted, behind) = behind.split_once("\\E").unwrap_or((behind, ""));
            quoted.chars().for_each(|char| push_literal(char, out));
            return Ok(behind);
        }
        'a' | 'f' | 't' | 'n' | 'r' | 'v' => out.extend(['\\', char]),
        'p' | 'P' | 'x' => {
            let braced = behind.strip_prefix('{').and_then(|inner| inner.split_once('}'));
            let Some((inner, end)) = braced else {
                out.extend(['\\', char]);
                return Ok(behind);
            };
            match inner.strip_prefix('^') {
                Some(name) if char != 'x' => {
                    let negated = if char == 'p' { 'P' } else { 'p' };
                    out.push_str(&format!("\\{negated}{{{name}}}"));
                }
                _ => out.push_str(&format!("\\{char}{{{inner}}}")),
            }
            return Ok(end);
        }
        // One digit other than zero would refer to a group, which Go does not have.
        '0'..='7' if char == '0' || behind.starts_with(|next| matches!(next, '0'..='7')) => {
            let digits = after.bytes().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
            let code = u32::from_str_radix(&after[..digits], 8).unwrap_or_default();
            out.push_str(&format!("\\x{{{code:x}}}"));
            return Ok(&after[digits..]);
        }
        _ if char.is_ascii_punctuation() => push_literal(char, out),
        _ => return Err(PatternError::Escape(char.to_string())),
    }
    Ok(behind)
}

/// The class that a letter behind a backslash stands for. It can stand inside of brackets too.
fn class_of(letter: char) -> Option<&'static str> {
    Some(match letter {
        'd' => "[0-9]",
        'D' => "[^0-9]",
        'w' => "[0-9A-Za-z_]",
        'W' => "[^0-9A-Za-z_]",
        's' => r"[\t\n\f\r ]",
        'S' => r"[^\t\n\f\r ]",
        _ => return None,
    })
}

/// A character that means itself, inside of a class or outside.
fn push_literal(char: char, out: &mut String) {
    // The engine gives these a meaning behind a backslash.
    if char.is_ascii_punctuation() && !matches!(char, '<' | '>' | '_') {
        out.push('\\');
    }
    out.push(char);
}

/// A class behind its opening bracket.
fn class<'p>(after: &'p str, out: &mut String) -> Result<&'p str, PatternError> {
    out.push('[');
    let mut rest = after;
    if let Some(inner) = rest.strip_prefix('^') {
        out.push('^');
        rest = inner;
    }
    let mut is_first = true;
    loop {
        // A closing bracket right at the beginning is a member.
        if let Some(behind) = rest.strip_prefix(']').filter(|_| !is_first) {
            out.push(']');
            return Ok(behind);
        }
        is_first = false;
        if let Some((name, behind)) = rest.strip_prefix("[:").and_then(|name| name.split_once(":]")) {
            if !NAMED_CLASSES.contains(&name.strip_prefix('^').unwrap_or(name)) {
                return Err(PatternError::UnknownClass(name.chars().take(20).collect()));
            }
            out.push_str(&format!("[:{name}:]"));
            rest = behind;
            continue;
        }
        let is_class = is_class(rest);
        rest = member(rest, out)?;
        // A range, unless the hyphen is the last in the class, or behind one of several characters.
        if let Some(behind) = rest.strip_prefix('-').filter(|behind| !is_class && !behind.starts_with(']')) {
            if self::is_class(behind) {
                return Err(PatternError::Escape(behind.chars().skip(1).take(1).collect()));
            }
            out.push('-');
            rest = member(behind, out)?;
        }
    }
}

/// Whether an escape that stands for several characters comes next.
fn is_class(rest: &str) -> bool {
    let escaped = rest.strip_prefix('\\').and_then(|escaped| escaped.chars().next());
    escaped.is_some_and(|letter| class_of(letter).is_some() || matches!(letter, 'p' | 'P'))
}

/// One member of a class.
fn member<'p>(rest: &'p str, out: &mut String) -> Result<&'p str, PatternError> {
    match rest.chars().next() {
        None => Err(PatternError::OpenClass),
        Some('\\') => escape(&rest[1..], true, out),
        Some(char) => {
            push_literal(char, out);
            Ok(&rest[char.len_utf8()..])
        }
    }
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
        check(r"^\W[\W]$", &["ä-", "  "], &["a-", "-_", "0 "]);
        check(r"^[\w.-]+$", &["a.b-c"], &["ä", "a b"]);
        check(r"^[^\s]+$", &["a\u{a0}b"], &["a b"]);
        check(r"^[\D]$", &["a"], &["1"]);
        check(r"^\S$", &["\u{a0}"], &[" "]);
        check(r"^\p{L}+$", &["ä"], &["1"]);
        check(r"^\pL\p{^L}\P{^L}$", &["a1b"], &["aab"]);
        check(r"a\b", &["aä", "a b"], &["ab"]);
        check(r"a\B", &["ab"], &["aä", "a b", "a"]);
    }

    #[test]
    fn brackets_braces_and_quotes_mean_themselves() {
        check(r"^[[]$", &["["], &["a"]);
        check(r"^[]a]$", &["]", "a"], &["b"]);
        check(r"^[^]a]$", &["b"], &["]", "a"]);
        check(r"^[a&&b]$", &["a", "b", "&"], &["c"]);
        check(r"^[[:alpha:]\-_]+$", &["a-_"], &["1"]);
        check(r"^[[:^alpha:]]$", &["1"], &["a"]);
        check(r"^[+--]$", &["+", ",", "-"], &["a"]);
        check(r"^[\d-a]$", &["1", "-", "a"], &["b", ":"]);
        check(r"^[-a-]$", &["-", "a"], &["b"]);
        check(r"^[[:x]$", &["[", ":", "x"], &["a"]);
        check(r"^{a}$", &["{a}"], &["a"]);
        check(r"^a{2}b{1,}c{1,2}$", &["aabbc"], &["abc"]);
        check(r"^a{,2}$", &["a{,2}"], &["aa"]);
        check(r"^\Qa.b[\E+$", &["a.b[["], &["axb["]);
        check(r"^\<\>\_\/\@$", &["<>_/@"], &[""]);
        check(r"^(?P<a_1>a)(?<b>b)$", &["ab"], &["a"]);
        check(r"^(?i)abc$", &["ABC"], &["abd"]);
        check("a{2", &["a{2"], &["aa"]);
    }

    #[test]
    fn characters_can_be_written_as_numbers() {
        check(r"^\x{41}\x42$", &["AB"], &["ab"]);
        check(r"^\101\0$", &["A\0"], &["a"]);
        check(r"^[\060-\071]$", &["0", "9"], &["a"]);
        check(r"^\1018$", &["A8"], &["A"]);
    }

    /// What Go's own `regexp.Compile` accepts and refuses.
    #[test]
    fn expressions_that_go_refuses_are_refused() {
        let refused = [
            "a**",
            "a+*",
            "a{2}{3}",
            "a*??",
            "x{1000}{2}",
            "a{1001}",
            "a{0,1001}",
            "a{99999999999}",
            "a{2,1}",
            "(?x)a",
            "(?u:a)",
            "(?i-u)a",
            "(?i",
            "(?=x)",
            "(?<n",
            "(?P<>a)",
            "(?P<a-b>a)",
            "(?P<a.b>a)",
            r"\x{^L}",
            r"[\Qa\E]",
            r"[\A]",
            r"[\z]",
            r"[\B]",
            "(",
            ")",
            "*",
            r"\Q\E*",
            "[a",
            "[]",
            "[z-a]",
            r"[+-\d]",
            r"[a-\-]",
            r"[\b]",
            "[[:foo:]]",
            "[[:a]b:]]",
            r"\1",
            r"\8",
            r"\e",
            r"\é",
            r"\E",
            r"\Z",
            r"\C",
            r"\u0041",
            "\\",
            r"\p{Nothing}",
            r"\x{41",
            r"\x4",
            r"\x{110000}",
        ];
        for pattern in refused {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
        let accepted = [
            "^(?:(?P<n>a*?)b{1}?c??)+?(?i-s:D)$",
            "(?<n>a)",
            "^(a*)*[*+?{2}]$",
            "^*",
            r"\b+",
            "|",
            "()",
            "a||b",
            r"\A\z",
            r"\a\f\t\n\r\v",
            r"\-\#",
            "a}",
            "x{0,1000}",
            "(?U)a+",
            "#",
            r"\Qab",
        ];
        for pattern in accepted {
            assert!(compile(pattern).is_ok(), "{pattern}");
        }
        check("^a*}?$", &["aa}", "aa"], &["}}"]);
    }

    #[test]
    fn the_size_of_an_expression_is_bounded() {
        let too_large = |pattern: &str| compile(pattern).is_err_and(|error| error.is_too_large());
        assert!(too_large(&"a?".repeat(MAX_LEN)));
        assert!(compile(&"a".repeat(MAX_LEN)).is_ok() && too_large(&"a".repeat(MAX_LEN + 1)));
        assert!(too_large("((a{1000}){1000}){1000}"));
        assert!(matches!(compile_within("a{1000}", 1 << 10), Err(error) if error.is_too_large()));
        assert!(matches!(compile(&"(".repeat(200)), Err(error) if !error.is_too_large()));
        check("^.{0,1000}$", &["ä", ""], &["\n"]);
        check(r"^[\w.-]{1,253}$", &["a.b"], &["a b"]);
    }
}
