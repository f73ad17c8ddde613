//! Runs the binary on a terminal, as a person sees it.

use std::io::{Read as _, Write as _};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use pty_process::Size;
use pty_process::blocking::{Command, Pty};

use crate::processes::WAIT_LIMIT;
use crate::program::{Home, until, wait};

/// A command on a terminal.
pub(crate) struct Terminal {
    child: Child,
    pty: Arc<Pty>,
    written: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
    /// How much of the output `wait_for` has passed.
    passed: usize,
}

impl Terminal {
    /// Starts a command on a terminal of 80 columns.
    pub(crate) fn start(home: &Home, args: &[&str]) -> Self {
        let (pty, pts) = pty_process::blocking::open().unwrap();
        pty.resize(Size::new(40, 80)).unwrap();
        let plain = home.command(args);
        let set = plain.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let child = Command::new(plain.get_program())
            .args(plain.get_args())
            .env_clear()
            .envs(set)
            .env("TERM", "xterm")
            .current_dir(home.path())
            .spawn(pts)
            .unwrap();
        let (pty, written) = (Arc::new(pty), Arc::new(Mutex::new(Vec::new())));
        let reader = std::thread::spawn({
            let (pty, written) = (Arc::clone(&pty), Arc::clone(&written));
            move || {
                let mut bytes = [0; 4096];
                // The last process that has the terminal open ends this with an error.
                while let Ok(read @ 1..) = (&*pty).read(&mut bytes) {
                    written.lock().unwrap().extend_from_slice(&bytes[..read]);
                }
            }
        });
        Self { child, pty, written, reader, passed: 0 }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// Waits until these words were written, after those that were waited for before.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, words: &str) {
        let find = || self.text()[self.passed..].find(words);
        match until(WAIT_LIMIT, find) {
            Some(at) => self.passed += at + words.len(),
            None => panic!("{words:?} is not on the terminal:\n{}", self.text()),
        }
    }

    pub(crate) fn type_keys(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end. Returns the exit status, and the lines that are left on the screen.
    #[track_caller]
    pub(crate) fn end(mut self) -> (ExitStatus, Vec<String>) {
        let status = wait(&mut self.child, WAIT_LIMIT);
        self.reader.join().unwrap();
        let text = String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned();
        (status, screen(&text))
    }
}

/// The lines of a terminal after this output: with carriage returns, erased lines and upward movements, without colors.
fn screen(text: &str) -> Vec<String> {
    let mut lines: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0, 0);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\r' => column = 0,
            '\n' => {
                row += 1;
                lines.resize_with(lines.len().max(row + 1), Vec::new);
            }
            '\u{1b}' => {
                let mut number = String::new();
                let end = characters.by_ref().skip(1).find(|c| {
                    let is_end = c.is_ascii_alphabetic();
                    if !is_end {
                        number.push(*c);
                    }
                    is_end
                });
                match end {
                    Some('K') => lines[row].truncate(column),
                    Some('J') => {
                        lines.truncate(row + 1);
                        lines[row].truncate(column);
                    }
                    Some('A') => row -= number.parse().unwrap_or(1),
                    Some('m') => {}
                    other => panic!("unknown sequence {number:?} {other:?}"),
                }
            }
            character => {
                let line = &mut lines[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = character;
                column += 1;
            }
        }
    }
    lines.into_iter().map(|line| line.into_iter().collect::<String>().trim_end().to_owned()).collect()
}

#[test]
fn a_screen_shows_what_is_left() {
    assert_eq!(screen("one\r\x1b[Ktwo\r\nthree"), ["two", "three"]);
    assert_eq!(screen("a\r\nb\r\n\x1b[2A\r\x1b[J\x1b[1mc\x1b[0m"), ["c"]);
}
