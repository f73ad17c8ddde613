//! The text of HTML inside Markdown.

use std::borrow::Cow;

/// Elements whose content is not text.
const UNREAD: [&str; 2] = ["script", "style"];
/// Entities that are decoded by name.
const NAMED: [(&str, &str); 7] = [
    ("amp", "&"),
    ("lt", "<"),
    ("gt", ">"),
    ("quot", "\""),
    ("apos", "'"),
    ("nbsp", "\u{a0}"),
    ("copy", "©"),
];
/// Longest entity that is looked for.
const MAX_ENTITY_BYTES: usize = 10;

/// The text without tags, comments, and surrounding space.
pub(super) fn text(html: &str) -> String {
    let mut plain = String::new();
    let mut rest = html;
    while let Some((before, tag)) = rest.split_once('<') {
        plain.push_str(before);
        rest = match tag.strip_prefix("!--") {
            Some(comment) => comment.split_once("-->").map_or("", |(_, after)| after),
            None => tag.split_once('>').map_or("", |(_, after)| after),
        };
        let name = tag.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        if UNREAD.iter().any(|unread| name.eq_ignore_ascii_case(unread)) {
            let end = format!("</{}", name.to_ascii_lowercase());
            let at = rest.to_ascii_lowercase().find(&end).unwrap_or(rest.len());
            rest = &rest[at..];
        }
    }
    plain.push_str(rest);
    decoded(plain.trim()).into_owned()
}

/// With entities decoded.
pub(super) fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return text.into();
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        plain.push_str(before);
        let found = after.char_indices().take(MAX_ENTITY_BYTES).find(|(_, c)| *c == ';').map(|(at, _)| at);
        match found.and_then(|end| Some((entity(&after[..end])?, &after[end + 1..]))) {
            Some((decoded, behind)) => {
                plain.push_str(&decoded);
                rest = behind;
            }
            None => {
                plain.push('&');
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    plain.into()
}

fn entity(name: &str) -> Option<String> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16).ok()?,
            None => number.parse().ok()?,
        };
        return char::from_u32(code).filter(|c| *c != '\0').map(String::from);
    }
    NAMED.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_comments_and_unread_elements_are_left_out() {
        for (html, want) in [
            (" a <b>c</b> ", "a c"),
            ("<!-- <b> --> y", "y"),
            ("<!-- x", ""),
            ("a<b", "a"),
            ("<script>x</script>y", "y"),
            ("<SCRIPT a=1>x<i></Script>y", "y"),
            ("<style>x", ""),
            ("<scripts>x", "x"),
            ("a&lt;b", "a<b"),
        ] {
            assert_eq!(text(html), want, "{html}");
        }
    }

    #[test]
    fn entities_are_decoded() {
        for (text, want) in [
            ("&amp;&lt;&gt;&quot;&apos;&copy;.", "&<>\"'©."),
            ("&nbsp;", "\u{a0}"),
            ("&#65;&#x41;&#X4a;", "AAJ"),
            ("&#00000065;", "A"),
            ("&#000000065;", "&#000000065;"),
            ("&#0;&#x;&#xd800;&#-1;", "&#0;&#x;&#xd800;&#-1;"),
            ("a & b &none; &", "a & b &none; &"),
            ("&&lt;", "&<"),
        ] {
            assert_eq!(decoded(text), want, "{text}");
        }
    }
}
