//! The difference of two texts by lines, for people. The longest common subsequence would be shorter in odd cases; one
//! changed block is all that happens here.

/// Lines around a change.
const CONTEXT_LINES: usize = 3;

/// Removed lines begin with `-`, added ones with `+`.
pub(super) fn lines(before: &str, after: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let same_start = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (old_rest, new_rest) = (&old[same_start..], &new[same_start..]);
    let same_end =
        old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(old, new)| old == new).count();
    let removed = &old_rest[..old_rest.len() - same_end];
    let added = &new_rest[..new_rest.len() - same_end];
    let before = &old[same_start.saturating_sub(CONTEXT_LINES)..same_start];
    let after = &old_rest[old_rest.len() - same_end..];
    let after = &after[..after.len().min(CONTEXT_LINES)];
    let mark = |sign: char, lines: &[&str]| -> Vec<String> {
        lines.iter().map(|line| format!("{sign}{line}")).collect()
    };
    [mark(' ', before), mark('-', removed), mark('+', added), mark(' ', after)].concat().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_have_signs_and_context() {
        assert_eq!(lines("a\nb\nc\nd\ne\n", "a\nb\nc\nd\nx\ny\n"), " b\n c\n d\n-e\n+x\n+y");
        assert_eq!(lines("", "a\n"), "+a");
        assert_eq!(lines("a\nb\nc\n", "a\nc\n"), " a\n-b\n c");
        assert_eq!(lines("a\na\n", "a\n"), " a\n-a");
    }
}
