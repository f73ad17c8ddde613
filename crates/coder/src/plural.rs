//! Numbers with their noun.

/// `1 column`, `2 columns`: a number with the singular or the plural of a noun.
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let counted = [0, 1, 2].map(|number| count(number, "version is", "versions are"));
        assert_eq!(counted, ["0 versions are", "1 version is", "2 versions are"]);
    }
}
