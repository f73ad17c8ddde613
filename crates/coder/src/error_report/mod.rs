//! The error that ends a command, as people read it: what failed, the cause, the next step. Method, URL and ids of a
//! call are shown with `--verbose` only.

mod client_error;
mod permission;

use std::io::ErrorKind;

use coder_api::client::Error as ClientError;

use crate::args::Global;
use crate::env;
use crate::terminal::output::{ErrorReport, strip_control};

/// The source of a command's session token. It decides the hint for an invalid token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TokenSource {
    /// `coder login` saved it, or there is none.
    #[default]
    Saved,
    /// `CODER_SESSION_TOKEN`.
    Variable,
    /// `--token`.
    Flag,
}

/// Facts about a command, in addition to its error.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    verbose: bool,
    token: TokenSource,
}

impl Facts {
    /// Reads them from the flags of every command.
    pub(crate) fn new(global: &Global) -> Self {
        let token = match &global.token {
            None => TokenSource::Saved,
            Some(token) if env::get(env::SESSION_TOKEN).as_ref() == Some(token) => TokenSource::Variable,
            Some(_) => TokenSource::Flag,
        };
        Self { verbose: global.verbose, token }
    }
}

/// Describes an error.
pub(crate) fn report(error: &anyhow::Error, facts: &Facts) -> ErrorReport {
    let mut message = Vec::new();
    let mut hint = None;
    for cause in error.chain() {
        if let Some(error) = cause.downcast_ref::<ClientError>() {
            let explained = client_error::explain(error, facts.token);
            message.push(explained.message);
            hint = explained.hint;
            break;
        }
        message.push(cause.to_string());
    }
    let details = join(error.chain().map(ToString::to_string));
    let message = without_codes(&strip_control(&join(message)));
    let hint =
        hint.or_else(|| refused_daemon(error)).or_else(|| full_disk(error)).or_else(|| taken_address(error));
    let differs = facts.verbose && details != message;
    ErrorReport { message, hint, details: differs.then(|| strip_control(&details).into_owned()) }
}

/// Some libraries repeat their source in their own text; each cause is shown once.
fn join(causes: impl IntoIterator<Item = String>) -> String {
    let mut text = String::new();
    for cause in causes {
        if text.contains(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    text
}

/// The texts of system errors have numbers, which are of use with `--verbose` only.
fn without_codes(text: &str) -> String {
    const CODE: &str = " (os error ";
    let mut parts = text.split(CODE);
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => whole.push_str(rest),
            _ => whole.extend([CODE, part]),
        }
    }
    whole
}

/// An address to listen on that another program uses.
fn taken_address(error: &anyhow::Error) -> Option<String> {
    let kind = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind)
    };
    let is_taken = error.chain().any(|cause| kind(cause) == Some(ErrorKind::AddrInUse));
    is_taken.then(|| "stop the program that uses this address, or choose another address".to_owned())
}

/// A key that was deleted or has expired, while the daemon runs or before it joins.
#[cfg(feature = "server")]
fn refused_daemon(error: &anyhow::Error) -> Option<String> {
    use coder_provisioner::{ConnectError, RunError};
    match error.downcast_ref::<RunError>()? {
        RunError::Refused(ConnectError::Unauthorized(_)) => Some(
            "make another key with `coder provisioner keys create NAME`, and start the daemon with it in \
             CODER_PROVISIONER_DAEMON_KEY"
                .to_owned(),
        ),
        RunError::Refused(_) => Some(
            "use a provisioner key: keys are made by owners, template admins and organization admins with `coder \
             provisioner keys create NAME`"
                .to_owned(),
        ),
        _ => None,
    }
}

#[cfg(not(feature = "server"))]
fn refused_daemon(_: &anyhow::Error) -> Option<String> {
    None
}

/// The text of SQLite. The kind of its error is not visible in this crate.
const SQLITE_FULL: &str = "database or disk is full";

fn full_disk(error: &anyhow::Error) -> Option<String> {
    let is_full = |cause: &(dyn std::error::Error + 'static)| {
        let kind = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        matches!(kind, Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge))
            || cause.to_string().contains(SQLITE_FULL)
    };
    error.chain().any(is_full).then(|| {
        "the disk is full, or a limit on its use is reached: free space there (`df -h` shows it) and try again"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn report_of(error: impl Into<anyhow::Error>) -> ErrorReport {
        report(&error.into(), &Facts::default())
    }

    #[test]
    fn every_cause_is_named_once() {
        let error = anyhow::anyhow!("b").context("a: b").context("do it");
        assert_eq!(report_of(error).message, "do it: a: b");
    }

    #[test]
    fn a_full_disk_is_called_a_full_disk() {
        let error = io::Error::from(ErrorKind::StorageFull);
        let report = report_of(anyhow::Error::new(error).context("write ./state"));
        assert!(report.message.starts_with("write ./state: "), "{report:?}");
        assert!(report.hint.unwrap().starts_with("the disk is full"));
        let sqlite = anyhow::anyhow!("{SQLITE_FULL}").context("open the database (/data/coder.sqlite)");
        assert!(report_of(sqlite).hint.unwrap().starts_with("the disk is full"));
        let other = io::Error::from(ErrorKind::NotFound);
        assert_eq!(report_of(anyhow::Error::new(other)).hint, None);
    }

    #[test]
    fn numbers_of_system_errors_are_details() {
        assert_eq!(
            without_codes("a: No such file (os error 2): b (os error x)"),
            "a: No such file: b (os error x)"
        );
        assert_eq!(without_codes("plain"), "plain");
        let error = anyhow::Error::new(io::Error::from_raw_os_error(2));
        assert_eq!(report(&error, &Facts::default()).message, "No such file or directory");
        let verbose = report(&error, &Facts { verbose: true, ..Facts::default() });
        assert!(verbose.details.unwrap().contains("(os error 2)"));
    }

    #[test]
    fn a_taken_address_is_told_what_to_do() {
        let error = anyhow::Error::new(io::Error::from(ErrorKind::AddrInUse))
            .context("cannot listen on 127.0.0.1:80");
        let report = report_of(error);
        assert!(report.message.starts_with("cannot listen on 127.0.0.1:80: "), "{report:?}");
        assert!(report.hint.unwrap().contains("choose another address"));
    }

    #[cfg(feature = "server")]
    #[test]
    fn a_refused_key_names_the_command_that_creates_one() {
        use coder_provisioner::{ConnectError, RunError};
        let refused = RunError::Refused(ConnectError::Unauthorized("no".to_owned()));
        assert!(report_of(refused).hint.unwrap().contains("coder provisioner keys create"));
    }

    #[test]
    fn details_are_for_the_verbose() {
        let url = url::Url::parse("http://127.0.0.1:1").unwrap();
        let runtime = crate::runtime::small().unwrap();
        let client = coder_api::client::Client::new(
            url.as_str(),
            None,
            coder_api::client::Options {
                retries: 0,
                proxies: coder_api::client::Proxies::none(),
                ..coder_api::client::Options::default()
            },
        );
        let error = runtime.block_on(client.unwrap().build_info()).unwrap_err();
        let error = anyhow::Error::new(error);
        let quiet = report(&error, &Facts::default());
        assert!(quiet.message.starts_with("cannot reach http://127.0.0.1:1: "), "{quiet:?}");
        assert!(!quiet.message.contains("/api/v2") && quiet.details.is_none(), "{quiet:?}");
        let verbose = report(&error, &Facts { verbose: true, ..Facts::default() });
        assert!(verbose.details.unwrap().contains("GET http://127.0.0.1:1/api/v2/buildinfo"));
    }
}
