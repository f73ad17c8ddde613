//! A terminal in raw mode, in which the other end of a connection interprets every key.

use std::io::{self, IsTerminal as _};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Standard input in raw mode, until it is dropped.
pub(crate) struct RawMode(Termios);

impl RawMode {
    /// Changes the mode; none when standard input is not a terminal.
    ///
    /// # Errors
    /// When the terminal refuses.
    pub(crate) fn enter() -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Flush, &raw)?;
        Ok(Some(Self(before)))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that is gone has no mode.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Columns and rows of the terminal at standard output.
pub(crate) fn size() -> Option<(u32, u32)> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then(|| (size.ws_col.into(), size.ws_row.into()))
}
