//! What of an agent's reports is kept.

/// Longest stored log line in bytes. Escaped as JSON it fits into one message that clients read (http-api 10.2).
pub const MAX_LINE_BYTES: usize = 4096;
/// Longest stored value of a metadata item, and longest error, in bytes (agent 2.7).
pub const MAX_METADATA_BYTES: usize = 2048;
/// Bytes of all keys of one metadata report.
pub const MAX_METADATA_CALL_BYTES: usize = 6144;

/// Splits a log line into parts of at most [`MAX_LINE_BYTES`]; nothing is lost. An empty line is one part.
pub fn split_line(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let text = rest?;
        let (part, after) = text.split_at(text.floor_char_boundary(MAX_LINE_BYTES));
        rest = Some(after).filter(|after| !after.is_empty());
        Some(part)
    })
}

/// The value and the error of a metadata item as they are stored. A longer value is cut, which its error says.
#[must_use]
pub fn bounded_metadata(value: String, error: String) -> (String, String) {
    let error = if error.len() > MAX_METADATA_BYTES {
        format!("the error has {} bytes; {MAX_METADATA_BYTES} are allowed", error.len())
    } else {
        error
    };
    if value.len() <= MAX_METADATA_BYTES {
        return (value, error);
    }
    let note = format!("the value has {} bytes; it is cut after {MAX_METADATA_BYTES}", value.len());
    (value[..value.floor_char_boundary(MAX_METADATA_BYTES)].to_owned(), note)
}

/// Whether this is a version as agents have it: `v1.2.3`, perhaps with a pre-release and a build. `v1` and `v1.2` count too.
#[must_use]
pub fn is_semantic_version(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('v').filter(|rest| rest.len() <= 128) else { return false };
    let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
    let (core, pre) = rest.split_once('-').map_or((rest, None), |(core, pre)| (core, Some(pre)));
    let number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let numeric_ok = |part: &str| !part.bytes().all(|byte| byte.is_ascii_digit()) || number(part);
    let parts = core.split('.').count();
    (1..=3).contains(&parts)
        && (parts == 3 || (pre.is_none() && build.is_none()))
        && core.split('.').all(number)
        && pre.is_none_or(|pre| pre.split('.').all(|part| word(part) && numeric_ok(part)))
        && build.is_none_or(|build| build.split('.').all(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_split_between_characters() {
        let line = "ä".repeat(5000);
        let parts: Vec<_> = split_line(&line).collect();
        assert!(parts.len() == 3 && parts.iter().all(|part| part.len() <= MAX_LINE_BYTES));
        assert_eq!(parts.concat(), line);
        assert_eq!(split_line("").collect::<Vec<_>>(), [""]);
        assert_eq!(split_line("a").collect::<Vec<_>>(), ["a"]);
        let exact = "x".repeat(MAX_LINE_BYTES);
        assert_eq!(split_line(&exact).count(), 1);
    }

    #[test]
    fn long_metadata_is_cut_and_says_so() {
        let keep = bounded_metadata("v".repeat(2048), "e".repeat(2048));
        assert_eq!(keep, ("v".repeat(2048), "e".repeat(2048)));
        let (value, error) = bounded_metadata("ä".repeat(2000), String::new());
        assert_eq!(value.len(), 2048);
        assert!(error.contains("4000") && error.contains("2048"), "{error}");
        let (value, error) = bounded_metadata("v".to_owned(), "e".repeat(2049));
        assert_eq!(value, "v");
        assert!(error.contains("2049") && error.len() < 100, "{error}");
    }

    #[test]
    fn version_table() {
        for good in [
            "v0.0.0",
            "v2.30.0",
            "v2.30.0-devel+abc123",
            "v1.2.3-rc.1",
            "v1",
            "v1.2",
            "v0.0.0-dev.0",
            "v1.2.3-a-b+c-d",
        ] {
            assert!(is_semantic_version(good), "{good}");
        }
        for bad in [
            "",
            "v",
            "2.30.0",
            "v01.2.3",
            "v1.2.3.4",
            "v1.2-rc",
            "v1.2.3-",
            "v1.2.3-01",
            "v1.2.3+",
            "v1.2.3-a_b",
            "v1.2.3+a b",
            "vx",
            "v1.2.3 ",
        ] {
            assert!(!is_semantic_version(bad), "{bad}");
        }
    }
}
