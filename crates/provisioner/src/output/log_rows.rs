//! Log text as servers can store it: without NUL, in rows of bounded length.

use std::borrow::Cow;

/// Longer lines are split into several rows.
pub(crate) const ROW_BYTES: usize = 16 * 1024;

/// Removes NUL, which no server can store (wire-protocol 4.2).
pub(crate) fn strip_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "")) } else { Cow::Borrowed(text) }
}

/// Splits a text at line ends and at the row limit.
pub(crate) fn split_rows(text: &str) -> Vec<&str> {
    let mut rows = Vec::new();
    for mut line in text.split('\n') {
        while line.len() > ROW_BYTES {
            let (now, later) = line.split_at(line.floor_char_boundary(ROW_BYTES));
            rows.push(now);
            line = later;
        }
        rows.push(line);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_bounded_rows_without_nul() {
        assert_eq!(strip_nul("a\0b"), "ab");
        assert_eq!(split_rows("one\n\ntwo"), ["one", "", "two"]);
        let long = "ä".repeat(ROW_BYTES);
        let rows = split_rows(&long);
        assert!(rows.iter().all(|row| row.len() <= ROW_BYTES));
        assert_eq!(rows.concat(), long);
    }
}
