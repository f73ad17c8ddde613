//! Paths of apps and terminals: `/@user/workspace[.agent]/…` (agent 6.1).

use uuid::Uuid;

use super::is_name;

/// Whose app or terminal a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathAddress<'a> {
    /// Name or id.
    pub user: &'a str,
    /// Name or id.
    pub workspace: &'a str,
    /// Empty when the path has none.
    pub agent: &'a str,
    pub target: PathTarget<'a>,
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathTarget<'a> {
    /// An app.
    App {
        slug: &'a str,
        /// The path up to the slug.
        base: &'a str,
        /// What follows it: empty, or it begins with a slash.
        rest: &'a str,
    },
    /// The web terminal.
    Terminal,
}

impl<'a> PathAddress<'a> {
    /// Whether a path has the form of users' pages; [`Self::parse`] may still refuse it.
    #[must_use]
    pub fn is_one(path: &str) -> bool {
        after_at(path).is_some()
    }

    /// Reads a path as it was sent, escapes included; none when it belongs to neither an app nor a terminal.
    #[must_use]
    pub fn parse(path: &'a str) -> Option<Self> {
        let inner = after_at(path)?;
        let (user, inner) = inner.split_once('/')?;
        let (place, inner) = inner.split_once('/')?;
        let (workspace, agent) = match place.split_once('.') {
            Some((workspace, agent)) if is_name(agent) => (workspace, agent),
            Some(_) => return None,
            None => (place, ""),
        };
        let is_known = |text: &str| is_name(text) || Uuid::try_parse(text).is_ok();
        if !is_known(user) || !is_known(workspace) {
            return None;
        }
        let target = if matches!(inner, "terminal" | "terminal/") {
            PathTarget::Terminal
        } else {
            let app = inner.strip_prefix("apps/")?;
            let (slug, rest) = app.find('/').map_or((app, ""), |at| app.split_at(at));
            if !is_name(slug) {
                return None;
            }
            PathTarget::App { slug, base: &path[..path.len() - rest.len()], rest }
        };
        Some(Self { user, workspace, agent, target })
    }
}

fn after_at(path: &str) -> Option<&str> {
    path.strip_prefix("/@").or_else(|| path.strip_prefix("/%40"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_apps() {
        let parse = |path| PathAddress::parse(path).unwrap();
        let app = parse("/@ann/dev.main/apps/code-server/a//b%2F..?");
        assert_eq!((app.user, app.workspace, app.agent), ("ann", "dev", "main"));
        let target = PathTarget::App {
            slug: "code-server",
            base: "/@ann/dev.main/apps/code-server",
            rest: "/a//b%2F..?",
        };
        assert_eq!(app.target, target);
        let bare = parse("/%40ann/dev/apps/web");
        assert_eq!(bare.agent, "");
        assert_eq!(bare.target, PathTarget::App { slug: "web", base: "/%40ann/dev/apps/web", rest: "" });
        assert_eq!(parse("/@ann/dev/terminal").target, PathTarget::Terminal);
        let id = "5d0a3a52-7a1c-4c0f-9a83-2f9d8d1e6b10";
        assert_eq!(parse(&format!("/@{id}/dev/terminal/")).user, id);
    }

    #[test]
    fn paths_that_begin_like_those_of_users() {
        for path in ["/@ann/dev/apps/web", "/%40ann/dev/terminal", "/@ann", "/@ann/../apps/web"] {
            assert!(PathAddress::is_one(path), "{path}");
        }
        for path in ["/", "/ann", "@ann", "/x/@ann/dev/apps/web", "/%41ann"] {
            assert!(!PathAddress::is_one(path), "{path}");
        }
    }

    #[test]
    fn paths_that_are_not() {
        for path in [
            "/",
            "/@",
            "/@ann",
            "/@ann/dev",
            "/@ann/dev/apps",
            "/@ann/dev/apps/",
            "/@ann/dev/x/web",
            "/@/dev/apps/web",
            "/@ann/../apps/web",
            "/@ann/dev./apps/web",
            "/@ann/dev.a.b/apps/web",
            "/@ann/de%76/apps/web",
            "/@an_n/dev/apps/web",
            "/@ann/dev/apps/w_b/",
            "/@ann/dev/terminal/x",
            "/x/@ann/dev/apps/web",
        ] {
            assert_eq!(PathAddress::parse(path), None, "{path}");
        }
    }
}
