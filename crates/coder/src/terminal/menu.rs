//! Choosing from a list with the arrow keys; typed letters narrow the list, and a typed name is taken as it is.

use std::borrow::Cow;
use std::io;

use super::output::{Printer, Style, error_width, strip_control};
use super::prompt::{self, EchoOff};
use crate::exit::Canceled;

/// The number of visible rows.
const VISIBLE_ROWS: usize = 10;

/// One choice of a menu.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// The value that is typed and returned.
    pub(crate) value: String,
    /// One line that describes it.
    pub(crate) about: String,
}

impl Choice {
    pub(crate) fn new(value: impl Into<String>, about: impl AsRef<str>) -> Self {
        Self { value: value.into(), about: strip_control(about.as_ref()).into_owned() }
    }

    /// The value as it is shown.
    pub(crate) fn shown(&self) -> Cow<'_, str> {
        strip_control(&self.value)
    }
}

/// Asks for one of `choices`; Enter alone takes the one with the value `default`, or the first.
pub(crate) fn choose(
    printer: &Printer,
    question: &str,
    choices: &[Choice],
    default: Option<&str>,
    instead: &str,
) -> anyhow::Result<String> {
    if prompt::is_interactive() && printer.is_live() {
        return with_keys(printer, question, choices, default);
    }
    for choice in choices {
        let about = printer.paint(Style::Faint, &choice.about);
        printer.note(format!("  {:<16} {about}", printer.paint(Style::Bold, &choice.shown())).trim_end());
    }
    let default = default.or_else(|| choices.first().map(|choice| choice.value.as_str()));
    let find = |answer: &str| choices.iter().find(|choice| choice.value.eq_ignore_ascii_case(answer));
    let answer = prompt::text(printer, question, default, instead, |answer| match find(answer) {
        Some(_) => Ok(()),
        None => {
            let names: Vec<_> = choices.iter().map(|choice| choice.value.as_str()).collect();
            Err(format!("{answer:?} is not in the list, choose from: {}", names.join(", ")))
        }
    })?;
    Ok(find(&answer).map_or(answer, |choice| choice.value.clone()))
}

fn with_keys(
    printer: &Printer,
    question: &str,
    choices: &[Choice],
    default: Option<&str>,
) -> anyhow::Result<String> {
    let mut menu = Menu::new(choices, default);
    let _quiet = EchoOff::start()?;
    let mut keys = Keys { input: io::stdin().lock() };
    let mut drawn = 0;
    loop {
        let lines = menu.lines(printer, question, usize::from(error_width().unwrap_or(80)));
        printer.redraw(drawn, &lines);
        drawn = lines.len();
        let step = menu.press(keys.next()?);
        let Some(end) = step else { continue };
        printer.redraw(drawn, &[]);
        return match end {
            End::Chosen(value) => {
                printer.note(&format!(
                    "{} {}",
                    prompt::mark(printer, question),
                    printer.paint(Style::Bold, &strip_control(&value))
                ));
                Ok(value)
            }
            End::Interrupted => Err(Canceled::Interrupted.into()),
            End::Declined => Err(Canceled::Declined.into()),
        };
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Up,
    Down,
    Enter,
    Backspace,
    Letter(char),
    Interrupt,
    End,
    Other,
}

/// The keys of a terminal, as the bytes it sends for them.
struct Keys<R> {
    input: R,
}

impl<R: io::Read> Keys<R> {
    fn byte(&mut self) -> io::Result<Option<u8>> {
        let mut byte = [0];
        Ok((self.input.read(&mut byte)? == 1).then_some(byte[0]))
    }

    fn next(&mut self) -> io::Result<Key> {
        let byte = self.byte()?;
        self.key(byte)
    }

    fn key(&mut self, byte: Option<u8>) -> io::Result<Key> {
        const ESCAPE: u8 = 0x1b;
        Ok(match byte {
            None | Some(4) => Key::End,
            Some(3) => Key::Interrupt,
            Some(b'\r' | b'\n') => Key::Enter,
            Some(8 | 127) => Key::Backspace,
            Some(16) => Key::Up,
            Some(14) => Key::Down,
            // Arrow keys are an escape, `[` or `O`, and a letter.
            Some(ESCAPE) => match self.byte()? {
                Some(b'[' | b'O') => match self.byte()? {
                    Some(b'A') => Key::Up,
                    Some(b'B') => Key::Down,
                    _ => Key::Other,
                },
                // The Escape key alone; what follows is another key.
                next => self.key(next)?,
            },
            Some(letter @ b' '..=b'~') => Key::Letter(char::from(letter)),
            Some(_) => Key::Other,
        })
    }
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Chosen(String),
    Interrupted,
    Declined,
}

/// The list on the screen.
struct Menu<'a> {
    choices: &'a [Choice],
    typed: String,
    /// The position among the matching choices.
    at: usize,
}

impl<'a> Menu<'a> {
    fn new(choices: &'a [Choice], default: Option<&str>) -> Self {
        let at = choices.iter().position(|choice| Some(choice.value.as_str()) == default);
        Self { choices, typed: String::new(), at: at.unwrap_or(0) }
    }

    fn fitting(&self) -> Vec<&'a Choice> {
        let typed = self.typed.to_lowercase();
        self.choices.iter().filter(|choice| choice.value.to_lowercase().contains(&typed)).collect()
    }

    fn press(&mut self, key: Key) -> Option<End> {
        let fitting = self.fitting();
        match key {
            Key::Up => self.at = self.at.checked_sub(1).unwrap_or(fitting.len().saturating_sub(1)),
            Key::Down => self.at = if self.at + 1 < fitting.len() { self.at + 1 } else { 0 },
            Key::Backspace => {
                self.typed.pop();
                self.at = 0;
            }
            Key::Letter(letter) => {
                self.typed.push(letter);
                self.at = 0;
            }
            Key::Enter => {
                let exact = fitting.iter().find(|choice| choice.value.eq_ignore_ascii_case(&self.typed));
                let chosen = exact.or_else(|| fitting.get(self.at))?;
                return Some(End::Chosen(chosen.value.clone()));
            }
            Key::Interrupt => return Some(End::Interrupted),
            Key::End => return Some(End::Declined),
            Key::Other => {}
        }
        None
    }

    fn lines(&self, printer: &Printer, question: &str, width: usize) -> Vec<String> {
        let fitting = self.fitting();
        let many = if fitting.len() > VISIBLE_ROWS {
            format!("; {} in the list", fitting.len())
        } else {
            String::new()
        };
        let hint = printer.paint(Style::Faint, &format!("(arrow keys, Enter{many})"));
        let mut lines = vec![format!("{} {}{hint}", prompt::mark(printer, question), self.typed_and_space())];
        let first = (self.at + 1).saturating_sub(VISIBLE_ROWS);
        let column = fitting.iter().map(|choice| choice.shown().chars().count()).max().unwrap_or_default();
        for (at, choice) in fitting.iter().enumerate().skip(first).take(VISIBLE_ROWS) {
            let text = format!("{:<column$}  {}", choice.shown(), choice.about);
            let text: String = text.trim_end().chars().take(width.saturating_sub(4)).collect();
            lines.push(if at == self.at {
                printer.paint(Style::Code, &format!("> {text}"))
            } else {
                format!("  {text}")
            });
        }
        if fitting.is_empty() {
            lines.push(printer.paint(Style::Faint, "  nothing in the list has this in its name"));
        }
        lines
    }

    fn typed_and_space(&self) -> String {
        if self.typed.is_empty() { String::new() } else { format!("{} ", self.typed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices() -> Vec<Choice> {
        ["docker", "kubernetes", "docker-compose"].map(|name| Choice::new(name, "about")).to_vec()
    }

    fn pressed(keys: &[Key]) -> Option<End> {
        let choices = choices();
        let mut menu = Menu::new(&choices, None);
        keys.iter().find_map(|key| menu.press(*key))
    }

    fn typed(text: &str) -> Vec<Key> {
        text.chars().map(Key::Letter).chain([Key::Enter]).collect()
    }

    #[test]
    fn arrows_go_around_the_list() {
        let chosen = |value: &str| Some(End::Chosen(value.to_owned()));
        assert_eq!(pressed(&[Key::Enter]), chosen("docker"));
        assert_eq!(pressed(&[Key::Down, Key::Enter]), chosen("kubernetes"));
        assert_eq!(pressed(&[Key::Up, Key::Enter]), chosen("docker-compose"));
        assert_eq!(pressed(&[Key::Down, Key::Down, Key::Down, Key::Enter]), chosen("docker"));
    }

    #[test]
    fn letters_narrow_the_list_and_a_whole_name_wins() {
        let chosen = |value: &str| Some(End::Chosen(value.to_owned()));
        assert_eq!(pressed(&typed("kub")), chosen("kubernetes"));
        assert_eq!(pressed(&typed("docker")), chosen("docker"));
        assert_eq!(pressed(&typed("compose")), chosen("docker-compose"));
        assert_eq!(pressed(&typed("nothing")), None, "there is nothing to choose");
        let back = [Key::Letter('x'), Key::Backspace, Key::Enter];
        assert_eq!(pressed(&back), chosen("docker"));
        assert_eq!(pressed(&[Key::Interrupt]), Some(End::Interrupted));
        assert_eq!(pressed(&[Key::End]), Some(End::Declined));
    }

    #[test]
    fn choices_do_not_control_the_terminal() {
        let choices = [Choice::new("a\u{1b}[2J", "b\u{1b}]0;title\u{7}\u{202e}")];
        let lines = Menu::new(&choices, None).lines(&Printer::plain(), "Which\u{1b}[8m", 80);
        assert_eq!(lines, ["> Which (arrow keys, Enter)", "> a  b"]);
        assert_eq!(choices[0].value, "a\u{1b}[2J", "the answer is the value itself");
    }

    #[test]
    fn keys_are_read_from_their_bytes() {
        let keys = |bytes: &[u8]| {
            let mut keys = Keys { input: bytes };
            std::iter::from_fn(|| Some(keys.next().unwrap()).filter(|key| *key != Key::End))
                .collect::<Vec<_>>()
        };
        assert_eq!(keys(b"\x1b[A\x1bOBd\r"), [Key::Up, Key::Down, Key::Letter('d'), Key::Enter]);
        assert_eq!(keys(b"\x1b[C\x7f\xc3"), [Key::Other, Key::Backspace, Key::Other]);
        assert_eq!(keys(b"\x1b\x03"), [Key::Interrupt], "Ctrl-C after the Escape key");
        assert_eq!(keys(b"\x1b\x1b[B"), [Key::Down]);
    }

    #[test]
    fn the_default_is_where_the_list_begins() {
        let choices = choices();
        let mut menu = Menu::new(&choices, Some("kubernetes"));
        assert_eq!(menu.press(Key::Enter), Some(End::Chosen("kubernetes".to_owned())));
    }

    #[test]
    fn a_long_list_scrolls_and_long_lines_are_cut() {
        let choices: Vec<_> = (0..30).map(|n| Choice::new(format!("n{n}"), "x".repeat(200))).collect();
        let mut menu = Menu::new(&choices, None);
        for _ in 0..15 {
            menu.press(Key::Down);
        }
        let lines = menu.lines(&Printer::plain(), "Which?", 60);
        assert_eq!(lines.len(), 1 + VISIBLE_ROWS);
        assert!(lines[0].ends_with("(arrow keys, Enter; 30 in the list)"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.starts_with("> n15 ")), "{lines:#?}");
        assert!(lines.iter().all(|line| line.chars().count() < 60), "{lines:#?}");
    }
}
