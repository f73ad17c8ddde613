//! The terminal of a session: its size, and the modes that the client's terminal has (RFC 4254, section 8).

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use russh::Pty;
use rustix::termios::{
    ControlModes, InputModes, LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios, Winsize,
};

/// Rows and columns, and pixels if they are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) rows: u16,
    pub(crate) columns: u16,
    pub(crate) width: u16,
    pub(crate) height: u16,
}

/// What a client asks of a terminal.
#[derive(Debug, Clone)]
pub(super) struct TerminalRequest {
    pub(super) term: String,
    pub(super) size: Size,
    pub(super) modes: Vec<(Pty, u32)>,
}

/// Changes the size of a terminal from either of its ends.
pub(crate) fn resize(terminal: impl AsFd, size: Size) -> io::Result<()> {
    let size =
        Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: size.width, ws_ypixel: size.height };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}

/// A further handle of a terminal, for changes of its size.
pub(crate) fn duplicate(terminal: impl AsFd) -> io::Result<OwnedFd> {
    terminal.as_fd().try_clone_to_owned()
}

/// The name of the program's end.
pub(super) fn name(terminal: &pty_process::Pts) -> Option<OsString> {
    std::fs::read_link(format!("/proc/self/fd/{}", terminal.as_raw_fd())).ok().map(Into::into)
}

/// Gives a terminal the modes of the client's.
pub(super) fn set_modes(terminal: impl AsFd, modes: &[(Pty, u32)]) -> io::Result<()> {
    let mut termios = rustix::termios::tcgetattr(&terminal)?;
    for (mode, value) in modes {
        apply(&mut termios, *mode, *value);
    }
    Ok(rustix::termios::tcsetattr(terminal, OptionalActions::Now, &termios)?)
}

fn apply(termios: &mut Termios, mode: Pty, value: u32) {
    if let Some(index) = special_code(mode) {
        // 255 stands for no character.
        termios.special_codes[index] = u8::try_from(value).ok().filter(|code| *code != 255).unwrap_or(0);
        return;
    }
    let is_on = value != 0;
    if let Some(flag) = input_mode(mode) {
        termios.input_modes.set(flag, is_on);
    } else if let Some(flag) = local_mode(mode) {
        termios.local_modes.set(flag, is_on);
    } else if let Some(flag) = output_mode(mode) {
        termios.output_modes.set(flag, is_on);
    } else if mode == Pty::PARENB {
        termios.control_modes.set(ControlModes::PARENB, is_on);
    } else if mode == Pty::CS8 && is_on {
        termios.control_modes = termios.control_modes.difference(ControlModes::CSIZE) | ControlModes::CS8;
    }
}

fn special_code(mode: Pty) -> Option<SpecialCodeIndex> {
    Some(match mode {
        Pty::VINTR => SpecialCodeIndex::VINTR,
        Pty::VQUIT => SpecialCodeIndex::VQUIT,
        Pty::VERASE => SpecialCodeIndex::VERASE,
        Pty::VKILL => SpecialCodeIndex::VKILL,
        Pty::VEOF => SpecialCodeIndex::VEOF,
        Pty::VEOL => SpecialCodeIndex::VEOL,
        Pty::VEOL2 => SpecialCodeIndex::VEOL2,
        Pty::VSTART => SpecialCodeIndex::VSTART,
        Pty::VSTOP => SpecialCodeIndex::VSTOP,
        Pty::VSUSP => SpecialCodeIndex::VSUSP,
        Pty::VREPRINT => SpecialCodeIndex::VREPRINT,
        Pty::VWERASE => SpecialCodeIndex::VWERASE,
        Pty::VLNEXT => SpecialCodeIndex::VLNEXT,
        Pty::VDISCARD => SpecialCodeIndex::VDISCARD,
        _ => return None,
    })
}

fn input_mode(mode: Pty) -> Option<InputModes> {
    Some(match mode {
        Pty::IGNPAR => InputModes::IGNPAR,
        Pty::PARMRK => InputModes::PARMRK,
        Pty::INPCK => InputModes::INPCK,
        Pty::ISTRIP => InputModes::ISTRIP,
        Pty::INLCR => InputModes::INLCR,
        Pty::IGNCR => InputModes::IGNCR,
        Pty::ICRNL => InputModes::ICRNL,
        Pty::IXON => InputModes::IXON,
        Pty::IXANY => InputModes::IXANY,
        Pty::IXOFF => InputModes::IXOFF,
        Pty::IMAXBEL => InputModes::IMAXBEL,
        Pty::IUTF8 => InputModes::IUTF8,
        _ => return None,
    })
}

fn local_mode(mode: Pty) -> Option<LocalModes> {
    Some(match mode {
        Pty::ISIG => LocalModes::ISIG,
        Pty::ICANON => LocalModes::ICANON,
        Pty::ECHO => LocalModes::ECHO,
        Pty::ECHOE => LocalModes::ECHOE,
        Pty::ECHOK => LocalModes::ECHOK,
        Pty::ECHONL => LocalModes::ECHONL,
        Pty::NOFLSH => LocalModes::NOFLSH,
        Pty::TOSTOP => LocalModes::TOSTOP,
        Pty::IEXTEN => LocalModes::IEXTEN,
        Pty::ECHOCTL => LocalModes::ECHOCTL,
        Pty::ECHOKE => LocalModes::ECHOKE,
        _ => return None,
    })
}

fn output_mode(mode: Pty) -> Option<OutputModes> {
    Some(match mode {
        Pty::OPOST => OutputModes::OPOST,
        Pty::ONLCR => OutputModes::ONLCR,
        Pty::OCRNL => OutputModes::OCRNL,
        Pty::ONOCR => OutputModes::ONOCR,
        Pty::ONLRET => OutputModes::ONLRET,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_size_reach_the_terminal() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (pty, pts) = pty_process::open().unwrap();
            let modes =
                [(Pty::ECHO, 0), (Pty::ICRNL, 0), (Pty::VINTR, 7), (Pty::VEOL2, 255), (Pty::OPOST, 1)];
            set_modes(&pts, &modes).unwrap();
            let termios = rustix::termios::tcgetattr(&pts).unwrap();
            assert!(!termios.local_modes.contains(LocalModes::ECHO));
            assert!(!termios.input_modes.contains(InputModes::ICRNL));
            assert!(termios.output_modes.contains(OutputModes::OPOST));
            assert_eq!(termios.special_codes[SpecialCodeIndex::VINTR], 7);
            assert_eq!(termios.special_codes[SpecialCodeIndex::VEOL2], 0);
            resize(duplicate(&pty).unwrap(), Size { rows: 40, columns: 120, width: 0, height: 0 }).unwrap();
            let size = rustix::termios::tcgetwinsize(&pts).unwrap();
            assert_eq!((size.ws_row, size.ws_col), (40, 120));
            assert!(name(&pts).unwrap().into_string().unwrap().starts_with("/dev/pts/"));
        });
    }
}
