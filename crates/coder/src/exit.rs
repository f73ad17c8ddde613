//! Exit codes and the error that asks for a particular one.

use std::process::ExitCode;

/// How the process ends, as scripts see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything asked for was done.
    Success,
    /// Something failed, or the command line was wrong; the official program uses 1 for both.
    Failure,
    /// Ended by SIGINT, as shells report it.
    Interrupted,
}

impl Exit {
    /// The number.
    #[must_use]
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Interrupted => 130,
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
    /// Answered no, or input ended at a question.
    #[error("canceled")]
    Declined,
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

/// What `error` means for the exit code.
pub(crate) fn of(error: &anyhow::Error) -> Exit {
    match error.downcast_ref::<Canceled>() {
        Some(Canceled::Interrupted) => Exit::Interrupted,
        Some(Canceled::Declined) | None => Exit::Failure,
    }
}
