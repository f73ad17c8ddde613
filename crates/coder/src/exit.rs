//! Exit codes, and the error that selects a particular one.

use std::process::ExitCode;

/// The exit codes. `docs/reference/exit-codes.md` is generated from this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything asked for was done.
    Success,
    /// Something failed, or the command line was wrong; the official program uses 1 for both.
    Failure,
    /// The server does not take the credential, so that starting again as it is cannot help; as in sysexits.h.
    Refused,
    /// Ended by SIGINT, as shells report it.
    Interrupted,
    /// The code of a command that ran in a workspace, or 255 when its connection was lost, as in OpenSSH.
    Remote(u8),
}

impl Exit {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 5] =
        [Self::Success, Self::Failure, Self::Refused, Self::Interrupted, Self::Remote(255)];

    /// The text on the page of exit codes.
    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::Success => {
                "Everything asked for was done. Help, `--version`, and a command that only has commands below it end this \
                 way, too. So do a server and a daemon that a signal stops in order."
            }
            Self::Failure => {
                "Something failed, a question was answered with no, or the command line was wrong; the error on standard \
                 error says which. A job that fails or is canceled fails the command that follows it. A daemon \
                 that a second signal ends at once ends this way."
            }
            Self::Refused => {
                "`coder provisioner start`: the server does not accept the key or token, so starting the daemon again with \
                 it cannot help (EX_NOPERM of sysexits.h)."
            }
            Self::Interrupted => {
                "Ctrl-C (SIGINT) ended the command. A build that it followed goes on; an import is canceled."
            }
            Self::Remote(_) => {
                "`coder ssh`: the connection to the workspace was lost, or a signal ended the remote command. Otherwise \
                 `coder ssh` ends with the code of the remote command."
            }
        }
    }

    /// The number.
    #[must_use]
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Refused => 77,
            Self::Interrupted => 130,
            Self::Remote(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// The user ended the command, by Ctrl-C or by answering no.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Canceled {
    /// The answer was no, or the input ended at a question.
    #[error("canceled")]
    Declined,
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

/// A command that ran in a workspace ended with this code. It has printed its own error.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the remote command ended with code {0}")]
pub(crate) struct RemoteExit(pub(crate) u8);

/// A command that answers with its exit code alone answered no. Nothing is printed: OpenSSH would show it before every session.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no")]
pub(crate) struct AnswerIsNo;

/// The connection to a workspace was lost while it was in use.
#[derive(Debug, thiserror::Error)]
#[error("the connection to the workspace was lost: {0}")]
pub(crate) struct ConnectionLost(pub(crate) String);

/// Whether the exit code says everything.
pub(crate) fn is_silent(error: &anyhow::Error) -> bool {
    error.is::<RemoteExit>() || error.is::<AnswerIsNo>()
}

/// The exit code of an error.
pub(crate) fn of(error: &anyhow::Error) -> Exit {
    if let Some(RemoteExit(code)) = error.downcast_ref() {
        return Exit::Remote(*code);
    }
    if error.downcast_ref::<ConnectionLost>().is_some() {
        return Exit::Remote(255);
    }
    match error.downcast_ref::<Canceled>() {
        Some(Canceled::Interrupted) => Exit::Interrupted,
        Some(Canceled::Declined) => Exit::Failure,
        None if is_refusal(error) => Exit::Refused,
        None => Exit::Failure,
    }
}

/// Whether the server refused a daemon permanently.
fn is_refusal(error: &anyhow::Error) -> bool {
    #[cfg(feature = "server")]
    return matches!(error.downcast_ref(), Some(coder_provisioner::RunError::Refused(_)));
    #[cfg(not(feature = "server"))]
    return {
        let _ = error;
        false
    };
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use coder_provisioner::{ConnectError, RunError};

    use super::*;

    #[test]
    fn only_a_credential_that_is_not_taken_is_a_refusal() {
        let code = |error: RunError| of(&anyhow::Error::new(error).context("words"));
        assert_eq!(code(RunError::Refused(ConnectError::Forbidden("no".to_owned()))), Exit::Refused);
        assert_eq!(code(RunError::NotIsolated("why".to_owned())), Exit::Failure);
    }
}
