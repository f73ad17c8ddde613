//! The label of an app's host name, which takes the place of `*` in the wildcard host (agent 6.1).

use std::fmt;

use super::is_name;
use super::port::Port;

/// Whose app a host name is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubdomainName {
    /// Kept for the app and not used for routing; empty, or it ends in `---`.
    pub prefix: String,
    /// Slug of an app, or a port with or without a trailing `s`.
    pub app: String,
    /// Empty when the name has none.
    pub agent: String,
    pub workspace: String,
    pub user: String,
}

/// The label does not belong to an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSubdomain {
    /// Another number of parts.
    #[error("a host name of an app has the form app--workspace--user, or port--agent--workspace--user")]
    Form,
    /// Ports of four digits cannot be told from apps without the agent.
    #[error("a port needs the name of its agent: port--agent--workspace--user")]
    AgentNeeded,
}

impl SubdomainName {
    /// Reads a label. Case does not matter.
    ///
    /// # Errors
    /// [`InvalidSubdomain`].
    pub fn parse(label: &str) -> Result<Self, InvalidSubdomain> {
        let label = label.to_ascii_lowercase();
        let (prefix, rest) = label.rfind("---").map_or(("", &*label), |at| label.split_at(at + 3));
        let parts: Vec<_> = rest.split("--").collect();
        let (app, agent, workspace, user) = match parts[..] {
            [app, workspace, user] => (app, "", workspace, user),
            [app, agent, workspace, user] => (app, agent, workspace, user),
            _ => return Err(InvalidSubdomain::Form),
        };
        if ![app, workspace, user].into_iter().all(is_name) || !(agent.is_empty() || is_name(agent)) {
            return Err(InvalidSubdomain::Form);
        }
        let has_four_digits = app.strip_suffix('s').unwrap_or(app).len() == 4;
        if agent.is_empty() && has_four_digits && Port::parse(app).is_some() {
            return Err(InvalidSubdomain::AgentNeeded);
        }
        let owned = |text: &str| text.to_owned();
        Ok(Self {
            prefix: owned(prefix),
            app: owned(app),
            agent: owned(agent),
            workspace: owned(workspace),
            user: owned(user),
        })
    }

    /// The label of an app that a template names.
    #[must_use]
    pub fn of_app(slug: &str, workspace: &str, user: &str) -> String {
        format!("{slug}--{workspace}--{user}")
    }
}

impl fmt::Display for SubdomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix, app, agent, workspace, user } = self;
        let agent = if agent.is_empty() { String::new() } else { format!("{agent}--") };
        write!(f, "{prefix}{app}--{agent}{workspace}--{user}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_are_apps() {
        for (label, prefix, app, agent) in [
            ("app--workspace--user", "", "app", ""),
            ("8080--agent--workspace--user", "", "8080", "agent"),
            ("8080s--agent--workspace--user", "", "8080s", "agent"),
            ("30000--workspace--user", "", "30000", ""),
            ("123--workspace--user", "", "123", ""),
            ("my-app--workspace--user", "", "my-app", ""),
            ("dean---was---here---app--agent--workspace--user", "dean---was---here---", "app", "agent"),
        ] {
            let name = SubdomainName::parse(label).unwrap();
            assert_eq!((&*name.prefix, &*name.app, &*name.agent), (prefix, app, agent), "{label}");
            assert_eq!((&*name.workspace, &*name.user), ("workspace", "user"), "{label}");
            assert_eq!(name.to_string(), label);
        }
        let label = SubdomainName::of_app("code-server", "dev", "ann");
        assert_eq!(label, "code-server--dev--ann");
        assert_eq!(SubdomainName::parse(&label).unwrap().app, "code-server");
        let upper = SubdomainName::parse("APP--Workspace--USER").unwrap();
        assert_eq!(upper.to_string(), "app--workspace--user");
    }

    #[test]
    fn labels_that_are_not() {
        for label in [
            "",
            "test",
            "workspace--app",
            "1--2--3--4--5",
            "8080--workspace--user",
            "8080s--workspace--user",
            "app--workspace--",
            "--workspace--user",
            "a_b--workspace--user",
            "app--work.space--user",
            "app--workspace--user-",
            "prefix---",
            "app----user",
            "äpp--workspace--user",
        ] {
            assert!(SubdomainName::parse(label).is_err(), "{label}");
        }
        assert!(SubdomainName::parse(&"a".repeat(10_000)).is_err());
    }
}
