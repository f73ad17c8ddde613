//! The context of every command: the printer, the saved session, and the client of the server.

use std::sync::OnceLock;

use anyhow::{Context as _, bail};
use coder_api::client::{Client, same_release};
use coder_domain::secret::Secret;
use url::Url;

use crate::args::Global;
use crate::session::Directory;
use crate::terminal::output::Printer;
use crate::versions;

/// The context of a command. Precedence: flags, variables (both in [`Global`]), files.
#[derive(Debug)]
pub(crate) struct Context {
    /// Prints text.
    pub(crate) printer: Printer,
    /// Saved session.
    pub(crate) directory: Directory,
    /// Flags of every command.
    pub(crate) global: Global,
    /// The client that was used, for the version warning.
    client: OnceLock<Client>,
}

impl Context {
    /// Finds the configuration directory; nothing is read yet.
    pub(crate) fn new(global: Global) -> Self {
        let directory = Directory::locate(global.global_config.clone());
        Self { printer: Printer::detect(global.verbose), directory, global, client: OnceLock::new() }
    }

    /// The server to talk to.
    pub(crate) fn url(&self) -> anyhow::Result<Url> {
        self.known_url()?.context(
            "you are not logged in, and no server is named: run `coder login <url>`, or set CODER_URL",
        )
    }

    /// The server of the command line, the environment or the last login.
    pub(crate) fn known_url(&self) -> anyhow::Result<Option<Url>> {
        let text = match self.global.url.clone() {
            Some(url) => Some(url),
            None => self.directory.url()?,
        };
        text.map(|text| server_url(&text)).transpose()
    }

    /// The token, if there is one.
    pub(crate) fn token(&self) -> anyhow::Result<Option<Secret>> {
        match &self.global.token {
            Some(token) => Ok(Some(Secret::new(token.trim()))),
            None => self.directory.token(),
        }
    }

    /// Keeps the first client of the command.
    pub(crate) fn remember(&self, client: &Client) {
        self.client.get_or_init(|| client.clone());
    }

    /// Warns once when the server is of another release (http-api 1.8).
    pub(crate) fn warn_version(&self) {
        let ours = versions::compatible();
        let theirs = self.client.get().and_then(Client::server_version);
        let Some(theirs) = theirs.filter(|theirs| !same_release(&ours, theirs)) else { return };
        if !self.global.no_version_warning {
            self.printer
                .warn(&format!("the server is of release {theirs}, this program works best with {ours}"));
        }
    }

    /// Prints the server's warnings about settings that it only stores.
    pub(crate) fn warn_features(&self) {
        if self.global.no_feature_warning {
            return;
        }
        for text in self.client.get().map(Client::warnings).unwrap_or_default() {
            self.printer.warn(&text);
        }
    }

    /// Additional headers for every request.
    pub(crate) fn headers(&self) -> anyhow::Result<Vec<(String, String)>> {
        header_pairs(&self.global.header, self.global.header_command.as_deref())
    }
}

/// Headers `name=value` of flags, and those that a command prints.
pub(crate) fn header_pairs(lines: &[String], command: Option<&str>) -> anyhow::Result<Vec<(String, String)>> {
    let mut lines = lines.to_vec();
    if let Some(command) = command {
        let output = std::process::Command::new("/bin/sh").arg("-c").arg(command).output();
        let output = output.with_context(|| format!("run the header command {command:?}"))?;
        if !output.status.success() {
            bail!("the header command {command:?} failed: {}", output.status);
        }
        let text =
            String::from_utf8(output.stdout).context("the header command's output is not valid UTF-8")?;
        lines.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
    }
    let split = |line: &String| match line.split_once('=') {
        Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
        // The value may be a secret, so the line is not shown.
        None => bail!("a header is not of the form name=value"),
    };
    lines.iter().map(split).collect()
}

/// Reads a server's URL; a missing scheme means https, and http on this machine.
pub(crate) fn server_url(text: &str) -> anyhow::Result<Url> {
    let text = text.trim();
    let complete = if text.contains("://") {
        text.to_owned()
    } else if is_local(text) {
        format!("http://{text}")
    } else {
        format!("https://{text}")
    };
    let url = Url::parse(&complete).with_context(|| format!("{text:?} is not a URL"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        bail!("{text:?} is not an http or https URL");
    }
    Ok(url)
}

fn is_local(text: &str) -> bool {
    let host = text.split(['/', '?']).next().unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name == "localhost" || name == "[::1]" || name.starts_with("127.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_as_people_write_them() {
        let check = |text: &str, url: &str| assert_eq!(server_url(text).unwrap().as_str(), url);
        check("https://coder.example.com", "https://coder.example.com/");
        check("https://coder.example.com/", "https://coder.example.com/");
        check("coder.example.com:8443", "https://coder.example.com:8443/");
        check("localhost:3000", "http://localhost:3000/");
        check("127.0.0.1:3000", "http://127.0.0.1:3000/");
        for bad in ["", "ftp://x", "http://"] {
            assert!(server_url(bad).is_err(), "{bad}");
        }
    }
}
