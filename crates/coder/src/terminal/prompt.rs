//! Questions at the terminal. Answers may also come through a pipe. When the input has ended, the error names the flag
//! to use instead.

use std::io::{self, IsTerminal as _, Read as _};

use anyhow::{Context as _, bail};
use coder_domain::password;
use coder_domain::secret::Secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::exit::Canceled;
use crate::terminal::output::{Printer, Style, strip_control};

/// Longest answer, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Whether standard input is a terminal, so that questions can be answered.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal()
}

/// Asks yes or no; anything but yes is [`Canceled::Declined`]. `instead` is what a script should pass.
pub(crate) fn confirm(printer: &Printer, question: &str, instead: &str) -> anyhow::Result<()> {
    yes_or_no(printer, question, "(yes/no)", &["y", "yes"], instead)
}

/// As [`confirm`], for what is easily undone: Enter alone means yes.
pub(crate) fn confirm_or_enter(printer: &Printer, question: &str, instead: &str) -> anyhow::Result<()> {
    yes_or_no(printer, question, "(YES/no)", &["", "y", "yes"], instead)
}

fn yes_or_no(
    printer: &Printer,
    question: &str,
    hint: &str,
    yes: &[&str],
    instead: &str,
) -> anyhow::Result<()> {
    printer.ask(&format!("{} {} ", mark(printer, question), printer.paint(Style::Faint, hint)));
    let answer = line(printer, question, instead)?.trim().to_ascii_lowercase();
    if yes.contains(&answer.as_str()) { Ok(()) } else { Err(Canceled::Declined.into()) }
}

/// Asks for text until `check` accepts it; an empty answer means `default` when there is one.
pub(crate) fn text(
    printer: &Printer,
    question: &str,
    default: Option<&str>,
    instead: &str,
    check: impl Fn(&str) -> Result<(), String>,
) -> anyhow::Result<String> {
    let hint = default.filter(|text| !text.is_empty()).map(|text| format!(" ({})", strip_control(text)));
    let hint = hint.unwrap_or_default();
    loop {
        printer.ask(&format!("{}{} ", mark(printer, question), printer.paint(Style::Faint, &hint)));
        let answer = line(printer, question, instead)?;
        let answer = if answer.is_empty() { default.unwrap_or_default().to_owned() } else { answer };
        match check(&answer) {
            Ok(()) => return Ok(answer),
            Err(reason) if is_interactive() => printer.note(&printer.paint(Style::Bad, &reason)),
            Err(reason) => bail!("{question} {reason}"),
        }
    }
}

/// Asks for a secret, which is not shown while it is typed.
pub(crate) fn hidden(printer: &Printer, question: &str, instead: &str) -> anyhow::Result<Secret> {
    let about = || format!("read the answer to {question:?}");
    // Before the question: who answers at once is not shown either.
    let quiet = if is_interactive() { Some(EchoOff::start().with_context(about)?) } else { None };
    printer.ask(&format!("{} ", mark(printer, question)));
    let Some(quiet) = quiet else { return Ok(Secret::new(line(printer, question, instead)?)) };
    let answer = without_echo(&quiet);
    printer.ask("\r\n");
    match answer {
        Err(error) if !error.is::<Canceled>() => Err(error.context(about())),
        answer => Ok(Secret::new(answer?)),
    }
}

/// Asks for a new password, twice where it is typed, until it is strong enough.
pub(crate) fn new_password(printer: &Printer, question: &str, instead: &str) -> anyhow::Result<Secret> {
    loop {
        let password = hidden(printer, question, instead)?;
        let reason = match password::validate(password.expose()) {
            Err(error) => error.to_string(),
            Ok(()) if !is_interactive() => return Ok(password),
            Ok(()) if hidden(printer, "The same again:", instead)? == password => return Ok(password),
            Ok(()) => "the passwords differ".to_owned(),
        };
        if !is_interactive() {
            bail!("{question} {reason}");
        }
        printer.note(&printer.paint(Style::Bad, &reason));
    }
}

pub(super) fn mark(printer: &Printer, question: &str) -> String {
    format!("{} {}", printer.paint(Style::Code, ">"), strip_control(question))
}

/// One line, byte by byte, so that nothing after it is swallowed: the next question reads the next line.
fn line(printer: &Printer, question: &str, instead: &str) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let mut stdin = io::stdin().lock();
    let mut byte = [0_u8];
    loop {
        let read = stdin.read(&mut byte).with_context(|| format!("read the answer to {question:?}"))?;
        if read == 0 && bytes.is_empty() {
            // Removes the characters of the interrupted answer.
            printer.ask("\n");
            bail!("cannot ask {question:?}: standard input has ended; {instead}");
        }
        if read == 0 || byte == [b'\n'] {
            break;
        }
        if bytes.len() == MAX_ANSWER_BYTES {
            bail!("the answer to {question:?} is longer than {MAX_ANSWER_BYTES} bytes");
        }
        bytes.push(byte[0]);
    }
    let text =
        String::from_utf8(bytes).with_context(|| format!("the answer to {question:?} is not valid UTF-8"))?;
    Ok(text.trim_end_matches('\r').to_owned())
}

/// Restores the terminal on drop.
pub(super) struct EchoOff(Termios);

impl EchoOff {
    pub(super) fn start() -> anyhow::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut now = before.clone();
        // Without line editing and signals we see Ctrl-C ourselves and can restore the terminal first.
        now.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(io::stdin(), OptionalActions::Drain, &now)?;
        Ok(Self(before))
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.0);
    }
}

fn without_echo(_: &EchoOff) -> anyhow::Result<String> {
    const END_OF_TEXT: u8 = 3;
    const END_OF_INPUT: u8 = 4;
    const BACKSPACE: u8 = 8;
    const DELETE: u8 = 127;
    let mut bytes: Vec<u8> = Vec::new();
    for byte in io::stdin().lock().bytes() {
        match byte? {
            b'\r' | b'\n' | END_OF_INPUT => break,
            END_OF_TEXT => return Err(Canceled::Interrupted.into()),
            BACKSPACE | DELETE => {
                // A character may be several bytes.
                while bytes.pop().is_some_and(|byte| byte & 0xC0 == 0x80) {}
            }
            _ if bytes.len() >= MAX_ANSWER_BYTES => bail!("longer than {MAX_ANSWER_BYTES} bytes"),
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).context("not valid UTF-8")
}
