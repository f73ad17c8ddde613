//! Masks secrets that are split over two lines or two writes of a program's output.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use coder_wire::messages::provisioner::LogLevel;

use super::mask::{Masker, Secrets, replace_ranges};

/// Maximum number of sources; beyond it the tails are cleared.
const MAX_SOURCES: usize = 64;

/// Maximum number of lines that wait for the rest of a secret.
const MAX_WAITING: usize = 256;

/// Separates the name of a provisioner from its output.
const PROVISIONER_PREFIXES: [&str; 2] = [" (local-exec): ", " (remote-exec): "];

struct PendingLine {
    level: LogLevel,
    source: String,
    text: String,
    hidden: Vec<Range<usize>>,
}

impl PendingLine {
    fn masked(self) -> (LogLevel, String) {
        (self.level, self.source + &replace_ranges(&self.text, self.hidden))
    }
}

#[derive(Default)]
struct SourceTail {
    /// Without line ends.
    text: String,
    /// This many of the last bytes may be the start of a secret.
    open: usize,
}

/// One stream of lines. A line whose end may be the start of a secret waits for the next line of its source.
pub(crate) struct LineMasker {
    secrets: Secrets,
    masker: Arc<Masker>,
    /// The last output of each source.
    tails: HashMap<String, SourceTail>,
    waiting: VecDeque<PendingLine>,
}

impl LineMasker {
    pub(crate) fn new(secrets: Secrets) -> Self {
        let masker = secrets.masker();
        Self { secrets, masker, tails: HashMap::new(), waiting: VecDeque::new() }
    }

    /// Takes a line, and returns the lines that are complete, in order.
    pub(crate) fn push(&mut self, level: LogLevel, text: &str) -> Vec<(LogLevel, String)> {
        self.masker = self.secrets.masker();
        if self.masker.is_empty() {
            return vec![(level, text.to_owned())];
        }
        let (source, text) = split(text);
        let tail = self.tails.remove(source).unwrap_or_default().text;
        let border = tail.len();
        let joined = tail + text;
        let mut line =
            PendingLine { level, source: source.to_owned(), text: text.to_owned(), hidden: Vec::new() };
        for found in self.masker.find(joined.as_bytes()) {
            if found.end <= border {
                continue;
            }
            line.hidden.push(found.start.saturating_sub(border)..found.end - border);
            if found.start < border {
                self.mask_previous(source, border - found.start);
            }
        }
        self.waiting.push_back(line);
        let keep = joined.len().saturating_sub(self.masker.reach());
        let keep = joined.ceil_char_boundary(keep);
        if self.tails.len() >= MAX_SOURCES {
            self.tails.clear();
        }
        let text = joined[keep..].to_owned();
        let open = self.masker.open_suffix(text.as_bytes());
        self.tails.insert(source.to_owned(), SourceTail { text, open });
        self.release()
    }

    /// The remaining lines at the end of the stream.
    pub(crate) fn finish(&mut self) -> Vec<(LogLevel, String)> {
        self.waiting.drain(..).map(PendingLine::masked).collect()
    }

    /// Masks the last bytes of a source in lines that still wait.
    fn mask_previous(&mut self, source: &str, mut bytes: usize) {
        for line in self.waiting.iter_mut().rev().filter(|line| line.source == source) {
            let length = line.text.len();
            line.hidden.push(length.saturating_sub(bytes)..length);
            bytes = bytes.saturating_sub(length);
            if bytes == 0 {
                return;
            }
        }
    }

    fn release(&mut self) -> Vec<(LogLevel, String)> {
        // All lines wait from the first one that may contain the start of a secret.
        let mut first_open = self.waiting.len();
        for (source, tail) in &self.tails {
            let mut open = tail.open;
            for (index, line) in self.waiting.iter().enumerate().rev() {
                if open == 0 {
                    break;
                }
                if line.source == *source {
                    first_open = first_open.min(index);
                    open = open.saturating_sub(line.text.len());
                }
            }
        }
        let count = first_open.max(self.waiting.len().saturating_sub(MAX_WAITING));
        self.waiting.drain(..count).map(PendingLine::masked).collect()
    }
}

/// Splits a line into its source and its text.
fn split(text: &str) -> (&str, &str) {
    let end = PROVISIONER_PREFIXES.iter().filter_map(|mark| text.find(mark).map(|at| at + mark.len())).min();
    text.split_at(end.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(secrets: &[&str], lines: &[&str]) -> Vec<String> {
        let known = Secrets::default();
        known.add(secrets.iter().copied());
        let mut stitcher = LineMasker::new(known);
        let mut masked: Vec<_> =
            lines.iter().flat_map(|line| stitcher.push(LogLevel::Info, line)).map(|(_, text)| text).collect();
        masked.extend(stitcher.finish().into_iter().map(|(_, text)| text));
        masked
    }

    #[test]
    fn a_secret_over_lines_is_hidden_in_each_of_them() {
        let secret = "correct-horse";
        for at in 1..secret.len() {
            let (head, tail) = secret.split_at(at);
            let lines = [format!("a (local-exec): say {head}"), format!("a (local-exec): {tail} end")];
            let masked = run(&[secret], &[&lines[0], &lines[1]]);
            // Less than four bytes of a secret may stay visible, or every line would wait.
            let first = if at < 4 { lines[0].as_str() } else { "a (local-exec): say (redacted)" };
            assert_eq!(masked, [first, "a (local-exec): (redacted) end"], "{at}");
        }
        let masked = run(&[secret], &["corre", "ct-h", "orse"]);
        assert_eq!(masked, ["(redacted)"; 3]);
    }

    #[test]
    fn lines_of_others_in_between_change_nothing_but_wait() {
        let masked = run(
            &["correct-horse"],
            &["a (local-exec): correct", "b (local-exec): x", "a (local-exec): -horse"],
        );
        assert_eq!(masked, ["a (local-exec): (redacted)", "b (local-exec): x", "a (local-exec): (redacted)"]);
    }

    #[test]
    fn nothing_is_lost_or_held_without_need() {
        let known = Secrets::default();
        known.add(["correct-horse"]);
        let mut stitcher = LineMasker::new(known);
        let mut push = |text: &str| stitcher.push(LogLevel::Info, text).len();
        assert_eq!(push("plain"), 1);
        assert_eq!(push("it is correct"), 0);
        assert_eq!(push("something else"), 2);
        assert_eq!(push("correct"), 0);
        for _ in 0..MAX_WAITING - 1 {
            assert_eq!(push("b (local-exec): x"), 0);
        }
        assert_eq!(push("b (local-exec): x"), 1, "no line waits for ever");
    }

    #[test]
    fn a_secret_in_colours_and_escapes_is_hidden_over_lines() {
        let secret = "correct&horse&battery";
        for (first, second) in [
            ("\x1b[31mcorrect\x1b[0m", "&hor\x1b[1mse&battery"),
            ("correct%26ho", "rse%26battery"),
            ("correct%2", "6horse%26battery"),
            ("correct&amp;ho", "rse&amp;battery"),
            ("636f72726563742668", "6f7273652662617474657279"),
        ] {
            let masked = run(&[secret], &[&format!("a {first}"), &format!("{second} end")]).concat();
            let rest = masked.replace(crate::output::mask::MASK, "").replace("\x1b[31m", "");
            assert_eq!(rest, "a  end", "{first:?} {second:?}");
        }
    }

    #[test]
    fn a_secret_over_the_border_of_two_parts_of_a_long_line_is_hidden() {
        use crate::output::line_splitter::{LineSplitter, MAX_LINE_BYTES};
        let secret = "correct-horse-battery";
        for before in [MAX_LINE_BYTES - 20, MAX_LINE_BYTES - 10, MAX_LINE_BYTES - 5] {
            let text = format!("{}{secret} end\n", "x".repeat(before));
            let pieces: Vec<String> =
                LineSplitter::default().push(text.as_bytes()).iter().map(|piece| piece.text()).collect();
            assert_eq!(pieces.len(), 2);
            let masked = run(&[secret], &[&pieces[0], &pieces[1]]).concat();
            assert_eq!(
                masked.trim_start_matches('x').replace(crate::output::mask::MASK, ""),
                " end",
                "{before}"
            );
        }
    }

    #[test]
    fn base64_in_columns_is_hidden() {
        use base64::Engine as _;
        let secret = "a-very-long-secret-of-a-person-who-likes-long-secrets";
        let encoded = base64::prelude::BASE64_STANDARD.encode(format!("user:{secret}"));
        let lines: Vec<&str> =
            encoded.as_bytes().chunks(20).map(|line| std::str::from_utf8(line).unwrap()).collect();
        let masked = run(&[secret], &lines).concat();
        assert!(masked.replace(crate::output::mask::MASK, "").len() <= 10, "{masked}");
    }
}
