//! The program as Git's askpass: Git asks it for a user name and a password (agent 7.5).

use std::time::Duration;

use anyhow::{Context as _, bail};
use coder_api::client::{Error, ExternalAuthQuery};

use crate::cmd::agent::session::AgentSession;
use crate::runtime;
use crate::terminal::output::Printer;

/// The pause between questions to a server that did not wait.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// What Git asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prompt {
    wants_password: bool,
    /// The URL without user.
    host: String,
}

/// The question, if the program was started with nothing but one.
pub(crate) fn prompt() -> Option<Prompt> {
    let mut arguments = std::env::args_os().skip(1);
    let text = arguments.next()?;
    if arguments.next().is_some() { None } else { parse(text.to_str()?) }
}

fn parse(text: &str) -> Option<Prompt> {
    let (wants_password, rest) = match text.strip_prefix("Username for ") {
        Some(rest) => (false, rest),
        None => (true, text.strip_prefix("Password for ")?),
    };
    let url = rest.trim().trim_end_matches(':').trim_matches('\'');
    let mut url = url::Url::parse(url).ok().filter(url::Url::has_host)?;
    // These cannot fail for a URL with a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    Some(Prompt { wants_password, host: url.as_str().trim_end_matches('/').to_owned() })
}

pub(crate) fn run(prompt: &Prompt) -> anyhow::Result<()> {
    let printer = Printer::detect(false);
    runtime::small()?.block_on(async {
        let client = AgentSession::of_environment().client()?;
        let query = ExternalAuthQuery::Url(&prompt.host);
        let mut auth = match client.external_auth_of_owner(query, false).await {
            Err(error) if error.is_not_found() => {
                bail!("no external authentication of this server is for {}", prompt.host)
            }
            other => other.context("ask the server for a Git token")?,
        };
        if !auth.url.is_empty() {
            printer.note(&format!(
                "Open this page to connect your account for {}:\n\n\t{}\n",
                prompt.host, auth.url
            ));
            while !auth.url.is_empty() {
                match client.external_auth_of_owner(query, true).await {
                    Ok(answer) => auth = answer,
                    // The server waits as long as it likes; the question is asked again.
                    Err(Error::Timeout { .. }) => {}
                    Err(error) => return Err(error).context("wait for your account to be connected"),
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
        let answer = if prompt.wants_password { &auth.password } else { &auth.username };
        printer.data(answer.expose());
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_of_git_are_recognised() {
        let check = |text: &str, want: Option<(bool, &str)>| {
            let want = want.map(|(wants_password, host)| Prompt { wants_password, host: host.to_owned() });
            assert_eq!(parse(text), want, "{text}");
        };
        check("Username for 'https://github.com': ", Some((false, "https://github.com")));
        check("Password for 'https://oauth2@gitlab.com': ", Some((true, "https://gitlab.com")));
        check("Username for 'https://host:8443/a/b.git': ", Some((false, "https://host:8443/a/b.git")));
        check("Username for ''", None);
        check("version", None);
        check("Enter passphrase for key '/home/a/.ssh/id'", None);
    }
}
