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
    let mut split_rows = Vec::new();
    for mut line in text.split('\n') {
        while line.len() > ROW_BYTES {
            let end = (0..=ROW_BYTES).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
            let (now, later) = line.split_at(end);
            split_rows.push(now);
            line = later;
        }
        split_rows.push(line);
    }
    split_rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_bounded_rows_without_nul() {
        assert_eq!(strip_nul("a\0b"), "ab");
        assert_eq!(split_rows("one\n\ntwo"), ["one", "", "two"]);
        let long = "ä".repeat(ROW_BYTES);
        let split_rows = split_rows(&long);
        assert!(split_rows.iter().all(|row| row.len() <= ROW_BYTES));
        assert_eq!(split_rows.concat(), long);
    }
}
