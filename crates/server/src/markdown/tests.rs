//! Descriptions as plain text: rendered as by official servers, and within bounds for any content.

use serde::Deserialize;

use super::plain_text;

#[derive(Deserialize)]
struct Case {
    markdown: String,
    plain: String,
}

/// The plain texts were made with the renderer that official servers use, in its version 0.10.0.
#[test]
fn descriptions_are_rendered_as_official_servers_render_them() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("cases.json")).unwrap();
    let different = cases.iter().filter_map(|case| {
        let ours = plain_text(&case.markdown);
        (ours != case.plain)
            .then(|| format!("{:?}\n  ours     {ours:?}\n  official {:?}", case.markdown, case.plain))
    });
    let different: Vec<_> = different.collect();
    assert!(different.is_empty(), "{} of {}:\n{}", different.len(), cases.len(), different.join("\n"));
}

#[test]
fn hostile_descriptions_end_soon_and_without_a_deep_recursion() {
    for piece in [
        ">",
        "- ",
        "1. ",
        "[",
        "![",
        "*a",
        "_",
        "`",
        "~",
        "<",
        "&",
        "(",
        "www.",
        "http://a.",
        "a@",
        "|",
        "\\",
        "\t",
    ] {
        let many = piece.repeat(super::MAX_MARKDOWN_BYTES / piece.len());
        let text = plain_text(&many);
        assert!(text.len() <= 10 * many.len(), "{piece:?}");
    }
    let long = "*".repeat(super::MAX_MARKDOWN_BYTES + 1);
    assert_eq!(plain_text(&long), long);
    let deep = format!("{}a", "> ".repeat(200));
    assert_eq!(plain_text(&deep), deep);
    let table = format!("{}\n{}\n{}", "|a".repeat(1_000), "|-".repeat(1_000), "|b".repeat(1_000));
    assert!(plain_text(&table).contains('┼'));
}
