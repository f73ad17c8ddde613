//! Validates local paths. A link must not redirect people to another server after the sign-in.

use url::Url;

/// The path, query and fragment of a redirect to `text`, if a browser stays on this server.
///
/// Browsers follow the URL standard of the WHATWG: they drop tabs and line ends, and read a backslash as a slash, so
/// `/<tab>/evil.example` is another host. The result was parsed and serialized by these rules.
pub(super) fn local_path(text: &str) -> Option<String> {
    let here = Url::parse("https://here.invalid/").ok()?;
    let there = here.join(text).ok().filter(|_| text.starts_with('/'))?;
    let path = &there[url::Position::BeforePath..];
    let is_here = there[..url::Position::BeforePath] == here[..url::Position::BeforePath];
    // `/.//evil.example` has the path `//evil.example`, which names another host when it stands alone.
    (is_here && !path.starts_with("//")).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_on_this_server() {
        for outside in [
            "",
            "x",
            "https://evil.example",
            "//evil.example",
            "///evil.example",
            "/\\evil.example",
            "\\/evil.example",
            "/\t/evil.example",
            "/\n/evil.example",
            "/\r\n/evil.example",
            "\t//evil.example",
            " //evil.example",
            "\u{0}//evil.example",
            "/\t\\evil.example",
            "/.//evil.example",
            "/..//evil.example",
            "/a/..//evil.example",
            "/%2e//evil.example",
            "/.\t//evil.example",
            "/./\\evil.example",
            "//user@here.invalid",
            "//here.invalid:444/",
            "javascript:alert(1)",
            "/\\[",
        ] {
            assert_eq!(local_path(outside), None, "{outside:?}");
        }
    }

    #[test]
    fn local_paths_are_kept() {
        for (text, want) in [
            ("/", "/"),
            ("/cli-auth?a=b#c", "/cli-auth?a=b#c"),
            ("/a//b", "/a//b"),
            ("/?next=//evil.example", "/?next=//evil.example"),
            ("/a\tb", "/ab"),
            ("/%09/evil.example", "/%09/evil.example"),
            ("/ä b", "/%C3%A4%20b"),
            ("/@evil.example", "/@evil.example"),
        ] {
            assert_eq!(local_path(text).as_deref(), Some(want), "{text:?}");
        }
    }
}
