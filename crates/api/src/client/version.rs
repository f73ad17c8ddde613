//! Whether two build versions belong to the same release, for the mismatch warning.

/// Whether major and minor agree. A development build (`v0.0.0`) on either side agrees with everything (http-api 1.8).
#[must_use]
pub fn same_release(ours: &str, theirs: &str) -> bool {
    if ours.contains("v0.0.0") || theirs.contains("v0.0.0") {
        return true;
    }
    let release = |version: &str| {
        let mut parts = version.trim_start_matches('v').splitn(3, '.');
        Some((parts.next()?.parse::<u32>().ok()?, parts.next()?.parse::<u32>().ok()?))
    };
    release(ours) == release(theirs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn major_and_minor_decide() {
        assert!(same_release("v2.30.0+0123abc", "v2.30.9"));
        assert!(!same_release("v2.30.0", "v2.31.0") && !same_release("v2.30.0", "v3.30.0"));
        assert!(same_release("v0.0.0-devel+1", "v2.30.0"));
        assert!(!same_release("v2.30.0", "garbage"));
    }
}
