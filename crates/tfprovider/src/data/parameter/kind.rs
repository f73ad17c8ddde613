//! The types of parameters and their values (terraform 3.5, step 8).

pub(super) const ALL: &[&str] = &["number", "string", "bool", "list(string)"];

/// Whether `text` is a value of the type.
pub(super) fn fits(kind: &str, text: &str) -> bool {
    match kind {
        "number" => is_number(text),
        "bool" => matches!(
            text,
            "1" | "t" | "T" | "TRUE" | "true" | "True" | "0" | "f" | "F" | "FALSE" | "false" | "False"
        ),
        "list(string)" => list(text).is_some(),
        _ => true,
    }
}

/// The elements of a list; none when the text is not a JSON array of strings.
pub(super) fn list(text: &str) -> Option<Vec<String>> {
    // `null` is the empty list, and a null element the empty string.
    let elements: Option<Vec<Option<String>>> = serde_json::from_str(text).ok()?;
    let elements = elements.unwrap_or_default();
    Some(elements.into_iter().map(Option::unwrap_or_default).collect())
}

/// The error of a text that is not a value of the type.
pub(super) fn type_mismatch(kind: &str, text: &str) -> String {
    match kind {
        "list(string)" => format!("value {text:?} is not a valid list of strings"),
        kind => format!("{text:?} is not a {kind}"),
    }
}

/// Floating point syntax as Go reads it, with infinities, not-a-number, hexadecimal digits and underscores between
/// digits.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let hex = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X"));
    let Some(plain) = without_underscores(hex.unwrap_or(unsigned), hex.is_some()) else { return false };
    if hex.is_some() {
        return is_hexadecimal(&plain);
    }
    // The first sign was removed, so a second one is an error.
    !plain.starts_with(['+', '-'])
        && plain.parse::<f64>().is_ok_and(|number| number.is_finite() || is_word(&plain))
}

/// An underscore must be between two digits or after a prefix.
fn without_underscores(text: &str, after_prefix: bool) -> Option<String> {
    let is_digit = |c: char| {
        if after_prefix { c.is_ascii_hexdigit() } else { c.is_ascii_digit() }
    };
    let mut before = after_prefix;
    let mut rest = text.chars().peekable();
    let mut plain = String::with_capacity(text.len());
    while let Some(c) = rest.next() {
        if c != '_' {
            plain.push(c);
        } else if !before || !rest.peek().is_some_and(|next| is_digit(*next)) {
            return None;
        }
        before = is_digit(c);
    }
    Some(plain)
}

/// Whether the text is a word such as `inf`: a number too large for a float is refused, a word is not.
fn is_word(unsigned: &str) -> bool {
    unsigned.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Whether the text has hexadecimal digits, an optional point, and a binary exponent.
fn is_hexadecimal(text: &str) -> bool {
    let Some((digits, exponent)) = text.split_once(['p', 'P']) else { return false };
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    !exponent.is_empty()
        && exponent.bytes().all(|byte| byte.is_ascii_digit())
        && !(whole.is_empty() && fraction.is_empty())
        && all_hex(whole)
        && all_hex(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_floats_and_bools_have_twelve_spellings() {
        for text in ["1", "-2.5", "1e3", ".5", "inf", "-Infinity", "NaN", "0x1p-2", "+3", "1_0", "0x_1p1"] {
            assert!(fits("number", text), "{text}");
        }
        for text in ["", "a", "1,5", "0x1", "0x", "1 ", "1e999", "0xp1", "_1", "1_", "1__0", "+-1"] {
            assert!(!fits("number", text), "{text}");
        }
        assert!(fits("bool", "T") && fits("bool", "0") && !fits("bool", "yes") && !fits("bool", ""));
        assert!(fits("string", "anything"));
    }

    #[test]
    fn lists_are_json_arrays_of_strings() {
        assert!(fits("list(string)", r#"["a", "b"]"#) && fits("list(string)", "[]"));
        for text in ["", "a", "[1]", r#"{"a": "b"}"#, r#"["a""#] {
            assert!(!fits("list(string)", text), "{text}");
        }
    }
}
