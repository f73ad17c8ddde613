//! All output of this program: data to standard output, everything else to standard error. No other module prints.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write as _};

use serde::Serialize;

use crate::env;

/// The output streams and their styles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    colour: bool,
    /// Whether standard error is a terminal on which a line may be drawn again and again.
    live: bool,
    width: Option<usize>,
    /// Whether everything is shown (`--verbose`).
    verbose: bool,
}

/// An error in the user's words.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ErrorReport {
    /// What failed and why.
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) hint: Option<String>,
    /// The error with every technical detail; only with `--verbose`.
    pub(crate) details: Option<String>,
}

/// Styles of text on a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Style {
    /// Headings and names.
    Bold,
    /// Secondary text.
    Faint,
    /// Success.
    Good,
    Warn,
    /// Errors.
    Bad,
    /// Things to type or open.
    Code,
}

impl Style {
    const fn code(self) -> &'static str {
        match self {
            Self::Bold => "1",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Warn => "33",
            Self::Bad => "31",
            Self::Code => "36",
        }
    }

    /// `text` in this style, for a terminal.
    pub(crate) fn paint(self, text: &str) -> String {
        format!("\x1b[{}m{text}\x1b[0m", self.code())
    }
}

impl Printer {
    /// Examines the terminal and the environment once.
    #[must_use]
    pub(crate) fn detect(verbose: bool) -> Self {
        let dumb = env::get(env::TERM).is_some_and(|term| term == "dumb");
        let plain = dumb || env::get(env::NO_COLOR).is_some();
        let (out, err) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let width = out.then(terminal_width).flatten();
        Self { colour: out && err && !plain, live: err && !dumb, width, verbose }
    }

    /// Neither colours nor live progress, as in a pipe.
    #[cfg(test)]
    #[must_use]
    pub(crate) const fn plain() -> Self {
        Self { colour: false, live: false, width: None, verbose: false }
    }

    /// Columns of standard output when it is a terminal.
    #[must_use]
    pub(crate) const fn width(&self) -> Option<usize> {
        self.width
    }

    /// Whether progress may be drawn.
    #[must_use]
    pub(crate) const fn is_live(&self) -> bool {
        self.live
    }

    /// Whether everything is shown.
    #[must_use]
    pub(crate) const fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// `text` in a style, if styles are shown.
    #[must_use]
    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        if self.colour { style.paint(text) } else { text.to_owned() }
    }

    /// One line of data.
    pub(crate) fn data(&self, text: &str) {
        // A closed pipe (`| head`) is not an error.
        drop(writeln!(io::stdout().lock(), "{text}"));
    }

    /// Data as JSON.
    pub(crate) fn json(&self, value: &(impl Serialize + ?Sized)) -> anyhow::Result<()> {
        self.data(&tame_json(&serde_json::to_string_pretty(value)?));
        Ok(())
    }

    /// Bytes of data, as they are.
    pub(crate) fn raw(&self, bytes: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()
    }

    /// One line of information.
    pub(crate) fn note(&self, text: &str) {
        let clear = if self.live { "\r\x1b[K" } else { "" };
        drop(writeln!(io::stderr().lock(), "{clear}{text}"));
    }

    pub(crate) fn warn(&self, text: &str) {
        self.note(&format!("{} {text}", self.paint(Style::Warn, "WARN:")));
    }

    /// Text without a line end, for a question.
    pub(crate) fn ask(&self, text: &str) {
        let mut err = io::stderr().lock();
        drop(write!(err, "{text}").and_then(|()| err.flush()));
    }

    /// Draws `text` over the current line of a terminal; elsewhere nothing happens.
    pub(crate) fn draw(&self, text: &str) {
        if self.live {
            self.ask(&format!("\r\x1b[K{text}"));
        }
    }

    /// Replaces the last `drawn` lines of a terminal by others.
    pub(crate) fn redraw(&self, drawn: usize, lines: &[String]) {
        let up = if drawn > 0 { format!("\x1b[{drawn}A") } else { String::new() };
        let text: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        self.ask(&format!("{up}\r\x1b[J{text}"));
    }

    /// Draws one line that the next one replaces. Text that does not fit into the terminal is cut off.
    pub(crate) fn draw_line(&self, style: Style, text: &str) {
        self.draw(&self.paint(style, &cut(text, error_width())));
    }

    /// What to do next.
    pub(crate) fn hint(&self, text: &str) {
        self.note(&format!("{} {text}", self.paint(Style::Code, "hint:")));
    }

    /// The error that ends the command, and what to do about it.
    pub(crate) fn error(&self, report: &ErrorReport) {
        self.note(&format!("{} {}", self.paint(Style::Bad, "error:"), report.message));
        if let Some(hint) = &report.hint {
            self.hint(hint);
        }
        if let Some(details) = &report.details {
            self.note(&format!("{} {details}", self.paint(Style::Faint, "details:")));
        }
    }
}

/// Whether a stream is a terminal, and then whether it shows colours.
pub(crate) fn terminal(stream: &impl IsTerminal) -> Option<bool> {
    let plain = env::get(env::TERM).is_some_and(|term| term == "dumb") || env::get(env::NO_COLOR).is_some();
    stream.is_terminal().then_some(!plain)
}

fn terminal_width() -> Option<usize> {
    let asked = rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
    let given = || env::get(env::COLUMNS).and_then(|columns| columns.parse().ok());
    asked.filter(|columns| *columns > 0).or_else(given)
}

/// Columns of standard error when it is a terminal.
pub(crate) fn error_width() -> Option<u16> {
    let asked = rustix::termios::tcgetwinsize(io::stderr()).ok().map(|size| size.ws_col);
    asked.filter(|columns| *columns > 0)
}

/// A line that will be replaced must not wrap, or a part of it stays.
fn cut(text: &str, columns: Option<u16>) -> Cow<'_, str> {
    let most = usize::from(columns.unwrap_or(80)).saturating_sub(1);
    if text.chars().count() <= most {
        return Cow::Borrowed(text);
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    Cow::Owned(format!("{kept}…"))
}

/// Whether a character controls the terminal, or changes the direction or the lines of text unseen. Lines and tabs do not.
fn is_wild(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => c.is_control(),
    }
}

/// JSON in which such characters are written as their codes.
fn tame_json(text: &str) -> Cow<'_, str> {
    if !text.contains(is_wild) {
        return Cow::Borrowed(text);
    }
    let mut tamed = String::with_capacity(text.len());
    for character in text.chars() {
        if is_wild(character) {
            tamed.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            tamed.push(character);
        }
    }
    Cow::Owned(tamed)
}

/// A text of others as one line, which must not look like further lines of ours.
pub(crate) fn one_line(text: &str) -> String {
    strip_control(text).replace(['\n', '\t'], " ")
}

/// A text of others, which must not control the terminal: without escape sequences, control characters and what reverses the
/// direction of text, but with its lines and tabs.
pub(crate) fn strip_control(text: &str) -> Cow<'_, str> {
    const ESCAPE: char = '\u{1b}';
    const BELL: char = '\u{7}';
    if !text.contains(is_wild) {
        return Cow::Borrowed(text);
    }
    let mut tamed = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character != ESCAPE {
            if !is_wild(character) {
                tamed.push(character);
            }
            continue;
        }
        match characters.next_if(|c| matches!(c, '[' | ']')) {
            // Colours, movements and the like end with a letter or one of a few signs.
            Some('[') => while characters.next_if(|c| matches!(c, ' '..='?')).is_some() {},
            // Titles, links and the clipboard: a text up to a bell, or to an escape of its own.
            Some(_) => while characters.next_if(|c| !matches!(*c, BELL | ESCAPE | '\n')).is_some() {},
            None => {}
        }
        characters.next_if(|c| matches!(c, '@'..='~' | '\u{7}'));
    }
    Cow::Owned(tamed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_does_not_control_the_terminal() {
        let wild = "a\u{9b}2J\u{202e}\u{7f}\u{1b}\n\u{e9}";
        let text = serde_json::to_string_pretty(&[wild]).unwrap();
        let tamed = tame_json(&text);
        assert_eq!(tamed, "[\n  \"a\\u009b2J\\u202e\\u007f\\u001b\\n\u{e9}\"\n]");
        assert_eq!(serde_json::from_str::<Vec<String>>(&tamed).unwrap(), [wild]);
    }

    #[test]
    fn one_line_stays_one() {
        assert_eq!(one_line("a\r\nforged\tline\u{1b}[2J\u{2028}b"), "a forged lineb");
    }

    #[test]
    fn a_drawn_line_fits_into_the_terminal() {
        assert_eq!(cut("1234", Some(5)), "1234");
        assert_eq!(cut("12345", Some(5)), "123…");
        assert_eq!(cut(&"ä".repeat(100), None).chars().count(), 79);
    }

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        for (wild, tamed) in [
            ("plain\tÄ\nnext", "plain\tÄ\nnext"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("a\u{1b}[2J\u{1b}[1;1Hb", "ab"),
            ("a\u{1b}]0;title\u{7}b", "ab"),
            ("a\u{1b}]52;c;QUJD\u{1b}\\b", "ab"),
            ("10%\r20%\u{8}\u{9b}x", "10%20%x"),
            ("\u{1b}Mup\u{1b}", "up"),
            ("\u{1b}[31", ""),
            ("a\u{202e}b\u{2066}c\u{200f}d\u{61c}e", "abcde"),
            ("a\u{2028}b\u{2029}c", "abc"),
        ] {
            assert_eq!(strip_control(wild), tamed, "{wild:?}");
        }
    }
}
