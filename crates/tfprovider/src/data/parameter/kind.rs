//! The types a parameter can have, and which texts are values of them (terraform 3.5, step 8).

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

/// The elements of a list; none when it is no JSON array of strings.
pub(super) fn list(text: &str) -> Option<Vec<String>> {
    let elements: Vec<Option<String>> = match serde_json::from_str(text).ok()? {
        Some(elements) => elements,
        None => Vec::new(),
    };
    Some(elements.into_iter().map(Option::unwrap_or_default).collect())
}

/// Floating point syntax, with infinities, not-a-number and hexadecimal digits.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    match unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        Some(hex) => is_hexadecimal(hex),
        None => text.parse::<f64>().is_ok_and(|number| number.is_finite() || is_word(unsigned)),
    }
}

/// A number too large for a float is refused, the word is not.
fn is_word(unsigned: &str) -> bool {
    unsigned.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Digits, perhaps with a point, and a binary exponent, which is not optional.
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
        for text in ["1", "-2.5", "1e3", ".5", "inf", "-Infinity", "NaN", "0x1p-2", "+3"] {
            assert!(fits("number", text), "{text}");
        }
        for text in ["", "a", "1,5", "0x1", "0x", "1 ", "1e999", "0xp1"] {
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
