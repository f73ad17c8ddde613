//! Masks secrets in a job's output: literal, in base64 and hexadecimal, and behind nested escapes, color codes
//! and line breaks (`unescape.rs`).

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use serde_json::Value;

use super::unescape;

/// Replaces a secret.
pub(crate) const MASK: &str = "(redacted)";

/// Shorter texts occur everywhere; masking them would hide everything and reveal what they are.
const MIN_SECRET: usize = 4;

/// Shorter parts of an encoded secret occur in ordinary words.
const MIN_ENCODED: usize = 6;

/// Shorter lines of a multi-line secret are not secrets of their own.
const MIN_LINE: usize = 8;

/// Bound on the encoded forms of all secrets, in bytes. Users choose their secrets, and searching for a form
/// takes many times its length in memory. Beyond the bound, only the literal text of longer secrets is masked.
const MAX_ENCODED_BYTES: usize = 256 << 10;

/// Bytes that are searched at once.
const WINDOW_BYTES: usize = 256 << 10;

/// A window starts this much earlier, so that it does not start inside an escape sequence of a secret.
const OVERLAP_BYTES: usize = 64;

/// A line that ends with this many bytes of a secret waits for the next line.
pub(crate) const PREFIX_BYTES: usize = 4;

/// Searches for the secrets that a job has at one time.
#[derive(Default)]
pub(crate) struct Masker {
    forms: Vec<Vec<u8>>,
    finder: Option<AhoCorasick>,
    /// All sequences of four bytes that occur in a form.
    grams: HashSet<[u8; PREFIX_BYTES]>,
    reach: usize,
}

impl Masker {
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut texts = BTreeSet::new();
        for secret in secrets {
            collect_texts(secret, &mut texts);
        }
        let forms: Vec<Vec<u8>> = forms_of(texts).into_iter().collect();
        if forms.is_empty() {
            return Self::default();
        }
        // The default kind takes several megabytes per job for the keys of one user.
        let kind = AhoCorasickKind::ContiguousNFA;
        let finder = match AhoCorasick::builder().kind(Some(kind)).build(&forms) {
            Ok(finder) => Some(finder),
            Err(error) => {
                // Reached only with absurdly many or long secrets.
                tracing::error!(%error, "the job's secrets cannot be searched for; masking all of its output");
                None
            }
        };
        let grams =
            forms.iter().flat_map(|form| form.windows(PREFIX_BYTES)).filter_map(|gram| gram.try_into().ok());
        let longest = forms.iter().map(Vec::len).max().unwrap_or(0);
        Self { grams: grams.collect(), reach: 3 * longest + OVERLAP_BYTES, finder, forms }
    }

    /// Whether there are no secrets.
    pub(crate) fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// Number of bytes over which a secret may extend, including ordinary escapes.
    pub(crate) fn reach(&self) -> usize {
        self.reach
    }

    /// The ranges of secrets; they may overlap. Takes time linear in the text, whatever it contains.
    pub(crate) fn find(&self, text: &[u8]) -> Vec<Range<usize>> {
        let Some(finder) = &self.finder else {
            // Without a search automaton a secret may be anywhere.
            return if self.forms.is_empty() { Vec::new() } else { std::iter::once(0..text.len()).collect() };
        };
        let mut found: Vec<_> = finder.find_overlapping_iter(text).map(|found| found.range()).collect();
        let step = WINDOW_BYTES.max(self.reach);
        for start in (0..text.len()).step_by(step) {
            let from = start.saturating_sub(OVERLAP_BYTES);
            let window = &text[from..text.len().min(start + step + self.reach)];
            for layer in unescape::layers(window, false) {
                let in_layer =
                    finder.find_overlapping_iter(&layer.bytes).map(|found| layer.original(found.range()));
                found.extend(in_layer.map(|range| from + range.start..from + range.end));
            }
        }
        found
    }

    /// How many of the last bytes may be the start of a secret that continues in the next text.
    pub(crate) fn open_suffix(&self, text: &[u8]) -> usize {
        let tail = &text[text.len().saturating_sub(self.reach)..];
        let in_layers = unescape::layers(tail, true).map(|layer| {
            let open = self.open_suffix_in(&layer.bytes);
            if open == 0 {
                0
            } else {
                tail.len() - layer.original(layer.bytes.len() - open..layer.bytes.len()).start
            }
        });
        in_layers.max().unwrap_or(0).max(self.open_suffix_in(tail))
    }

    fn open_suffix_in(&self, text: &[u8]) -> usize {
        let current = text.last_chunk::<PREFIX_BYTES>().is_some_and(|last| self.grams.contains(last));
        if !current {
            return 0;
        }
        let begins = |form: &Vec<u8>| {
            (PREFIX_BYTES..form.len().min(text.len() + 1))
                .rev()
                .find(|&length| text.ends_with(&form[..length]))
        };
        self.forms.iter().filter_map(begins).max().unwrap_or(0)
    }

    pub(crate) fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let found = self.find(text.as_bytes());
        if found.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(replace_ranges(text, found)) }
    }

    /// Masks the strings, names and numbers of a JSON document; `None` when it contains no secret.
    pub(crate) fn json(&self, document: &[u8]) -> Option<Vec<u8>> {
        if self.find(document).is_empty() {
            return None;
        }
        let mut value: Value = serde_json::from_slice(document).ok()?;
        self.walk(&mut value);
        serde_json::to_vec(&value).ok()
    }

    fn walk(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(masked) = self.mask(text) {
                    *text = masked;
                }
            }
            Value::Number(number) => {
                if !self.find(number.to_string().as_bytes()).is_empty() {
                    *value = Value::String(MASK.to_owned());
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.walk(value)),
            Value::Object(fields) => {
                let masked = std::mem::take(fields).into_iter().map(|(name, mut value)| {
                    self.walk(&mut value);
                    (self.mask(&name).into_owned(), value)
                });
                *fields = masked.collect();
            }
            Value::Null | Value::Bool(_) => {}
        }
    }
}

/// Replaces the ranges by the mask. They must lie on character boundaries.
pub(crate) fn replace_ranges(text: &str, mut ranges: Vec<Range<usize>>) -> String {
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut masked = String::with_capacity(text.len());
    let mut at = 0;
    let mut merged = ranges.into_iter().peekable();
    while let Some(mut range) = merged.next() {
        while let Some(next) = merged.next_if(|next| next.start <= range.end) {
            range.end = range.end.max(next.end);
        }
        masked.push_str(text.get(at..range.start).unwrap_or_default());
        masked.push_str(MASK);
        at = range.end;
    }
    masked.push_str(text.get(at..).unwrap_or_default());
    masked
}

/// Collects the texts that a secret makes secret.
fn collect_texts(secret: &str, texts: &mut BTreeSet<String>) {
    let secret = secret.trim();
    if secret.len() < MIN_SECRET {
        return;
    }
    texts.insert(secret.to_owned());
    if secret.contains('\n') {
        // Lines are logged one by one, without line ends.
        texts.insert(secret.replace(['\r', '\n'], ""));
        let lines = secret.lines().map(str::trim).filter(|line| line.len() >= MIN_LINE);
        texts.extend(lines.map(str::to_owned));
    }
    // The strings in a list or map.
    if let Ok(value @ (Value::Array(_) | Value::Object(_))) = serde_json::from_str::<Value>(secret) {
        leaves(&value, texts);
    }
}

fn leaves(value: &Value, texts: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => collect_texts(text, texts),
        Value::Array(values) => values.iter().for_each(|value| leaves(value, texts)),
        Value::Object(fields) => fields.values().for_each(|value| leaves(value, texts)),
        Value::Number(number) => collect_texts(&number.to_string(), texts),
        Value::Null | Value::Bool(_) => {}
    }
}

/// All forms of the texts, shorter ones first while there is room for encoded ones.
fn forms_of(texts: BTreeSet<String>) -> BTreeSet<Vec<u8>> {
    let mut texts: Vec<String> = texts.into_iter().collect();
    texts.sort_by_key(String::len);
    let mut forms = BTreeSet::new();
    let mut left = MAX_ENCODED_BYTES;
    for text in texts {
        let mut encoded = BTreeSet::new();
        // All encoded forms together take about sixteen bytes per byte.
        if text.len().saturating_mul(16) <= left {
            add_encoded(&text, &mut encoded);
        }
        let bytes = encoded.iter().map(Vec::len).sum();
        if let Some(rest) = left.checked_sub(bytes) {
            left = rest;
            forms.append(&mut encoded);
        }
        forms.insert(text.into_bytes());
    }
    forms
}

fn add_encoded(secret: &str, forms: &mut BTreeSet<Vec<u8>>) {
    // The secret itself may contain escapes, while text is searched with all escapes removed. URL forms encode
    // a space as a plus sign.
    let innermost = [secret.to_owned(), secret.replace(' ', "+")].map(|text| unescape::innermost(&text));
    forms.extend(innermost.into_iter().filter(|form| form.len() >= MIN_ENCODED));
    for digits in [hex::encode(secret), hex::encode_upper(secret)] {
        forms.insert(digits.into_bytes());
    }
    forms.extend(base64_cores(secret.as_bytes()));
}

/// The part of the base64 encoding that depends on the secret alone, for each of the three offsets at which it
/// can start.
fn base64_cores(secret: &[u8]) -> Vec<Vec<u8>> {
    let mut cores = Vec::new();
    for before in 0..3 {
        let padded = [&[0; 2][..before], secret].concat();
        let (start, end) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        for encoded in [BASE64_STANDARD_NO_PAD.encode(&padded), BASE64_URL_SAFE_NO_PAD.encode(&padded)] {
            if let Some(core) = encoded.get(start..end).filter(|core| core.len() >= MIN_ENCODED) {
                cores.push(core.as_bytes().to_vec());
            }
        }
    }
    cores
}

/// The secrets of a job; more can be added. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Arc<Mutex<KnownSecrets>>);

#[derive(Default)]
struct KnownSecrets {
    texts: BTreeSet<String>,
    masker: Arc<Masker>,
}

impl Secrets {
    pub(crate) fn add<'a>(&self, texts: impl IntoIterator<Item = &'a str>) {
        let mut current = self.0.lock();
        let before = current.texts.len();
        current
            .texts
            .extend(texts.into_iter().filter(|text| text.trim().len() >= MIN_SECRET).map(str::to_owned));
        if current.texts.len() > before {
            current.masker = Arc::new(Masker::new(current.texts.iter().map(String::as_str)));
        }
    }

    pub(crate) fn masker(&self) -> Arc<Masker> {
        Arc::clone(&self.0.lock().masker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "hunter2&<Ä";

    fn json(text: &str) -> String {
        serde_json::to_string(text).unwrap().trim_matches('"').to_owned()
    }

    #[test]
    fn a_secret_is_hidden_in_all_its_forms() {
        let masker = Masker::new([SECRET]);
        let html = "hunter2&amp;&lt;&Auml;".replace("&Auml;", "&#196;");
        for text in [
            SECRET.to_owned(),
            "hunter2%26%3C%C3%84".to_owned(),
            "hunter2%26%3c%c3%84".to_owned(),
            "hunter2&%3C%C3%84".to_owned(),
            "%68unter2&%3C%C3%84".to_owned(),
            r"hunter2\u0026\u003cÄ".to_owned(),
            r"hunter2\u0026\u003c\u00c4".to_owned(),
            r"\x68unter2&<\xc3\x84".to_owned(),
            json(r"hunter2\u0026\u003c\u00c4"),
            html.clone(),
            "hunter2&#38;&#x3c;Ä".to_owned(),
            // One encoding inside another.
            json(&html),
            "hunter2%26amp%3B%26lt%3BÄ".to_owned(),
            hex::encode(SECRET),
            hex::encode_upper(SECRET),
            "hun\x1b[1mter\x1b[0m2\x1b[38;5;9m&<Ä".to_owned(),
            r"hun\u001b[1mter2&<Ä".to_owned(),
            "hun\nter2\n    &<Ä".to_owned(),
        ] {
            let masked = masker.mask(&text).into_owned();
            assert_eq!(masked, MASK, "{text}");
        }
        for before in ["", "x", "xy", "user:", "user: "] {
            for after in ["", "z", "zz", "@host"] {
                let whole = format!("{before}{SECRET}{after}");
                for text in [BASE64_STANDARD_NO_PAD.encode(&whole), BASE64_URL_SAFE_NO_PAD.encode(&whole)] {
                    let masked = masker.mask(&text).into_owned();
                    assert!(masked.contains(MASK), "{whole}: {masked}");
                    // The rest decodes to at most one character at each border of the secret.
                    assert!(masked.replace(MASK, "").len() + 10 <= text.len(), "{whole}: {masked}");
                }
            }
        }
    }

    #[test]
    fn json_in_json_is_seen_through() {
        let secret = "a\"b\\c\nd<e>f";
        let masker = Masker::new([secret]);
        let mut text = secret.to_owned();
        for depth in 0..4 {
            let shown = masker.mask(&format!("x {text} y")).into_owned();
            assert_eq!(shown, "x (redacted) y", "{depth}");
            text = json(&text);
            let html = text.replace('<', "\\u003c").replace('>', "\\u003e");
            assert_eq!(masker.mask(&html), MASK, "{depth}");
        }
    }

    #[test]
    fn a_secret_that_looks_escaped_is_hidden_too() {
        for secret in [r"C:\new\table", "100%41sure", "a&amp;b&lt;c", r"pa\u0073sword"] {
            let masker = Masker::new([secret]);
            for text in [secret.to_owned(), json(secret), json(&json(secret)), secret.replace('%', "%25")] {
                assert_eq!(masker.mask(&format!("<{text}>")), "<(redacted)>", "{secret}: {text}");
            }
        }
    }

    #[test]
    fn wrapped_base64_in_one_text_is_hidden() {
        let secret = "a-very-long-secret-of-a-person-who-likes-long-secrets";
        let masker = Masker::new([secret]);
        let encoded = base64::prelude::BASE64_STANDARD.encode(format!("user:{secret}"));
        let lines: Vec<&str> =
            encoded.as_bytes().chunks(20).map(|line| std::str::from_utf8(line).unwrap()).collect();
        for separator in ["\n", "\r\n", "\n    ", "\\n", "\\\\n"] {
            let shown = masker.mask(&lines.join(separator)).into_owned();
            assert!(shown.replace(MASK, "").len() <= 10, "{separator:?}: {shown}");
        }
    }

    #[test]
    fn only_the_secret_is_taken_out_of_a_text() {
        let masker = Masker::new(["hunter2"]);
        let text = "\x1b[32mok\x1b[0m \x1b[31mhunt\x1b[0mer2\x1b[0m %20 a&amp;b\nnext";
        assert_eq!(masker.mask(text), "\x1b[32mok\x1b[0m \x1b[31m(redacted)\x1b[0m %20 a&amp;b\nnext");
    }

    #[test]
    fn secrets_are_found_at_the_borders_of_windows() {
        let masker = Masker::new(["hunter2-hunter2"]);
        let escaped = "hunter2%2Dhunter2";
        let step = WINDOW_BYTES.max(masker.reach());
        for at in (step - 80..step + 80).step_by(7).chain([0, 2 * step - 5]) {
            let mut text = "x".repeat(3 * step);
            text.replace_range(at..at + escaped.len(), escaped);
            let found = masker.find(text.as_bytes());
            assert!(
                !found.is_empty() && found.iter().all(|range| *range == (at..at + escaped.len())),
                "{at}: {found:?}"
            );
        }
    }

    /// Hostile output costs no more time than any other text.
    #[test]
    fn nested_escapes_cost_no_more_than_other_text() {
        let masker = Masker::new(["hunter2-hunter2"]);
        for unit in ["\\", "%", "&", "\x1b", "\x1b]", "\\u", "%2525252525", "&amp;amp;amp;", "\n"] {
            let text = unit.repeat((1 << 20) / unit.len());
            let started = std::time::Instant::now();
            assert!(masker.find(text.as_bytes()).is_empty());
            // A quadratic search would take hours.
            assert!(
                started.elapsed() < std::time::Duration::from_secs(60),
                "{unit:?}: {:?}",
                started.elapsed()
            );
        }
    }

    #[test]
    fn the_open_end_of_a_text_is_seen_through_its_escapes() {
        let masker = Masker::new(["hunter2&hunter2"]);
        for (text, wanted) in [
            ("say hunt", 4),
            ("say hunter2%26hu", 12),
            ("say hunter2%2", 9),
            ("say hunt\x1b[0m", 8),
            ("say hunter2&am", 10),
            ("say nothing", 0),
            ("say %", 0),
            ("", 0),
        ] {
            assert_eq!(masker.open_suffix(text.as_bytes()), wanted, "{text:?}");
        }
    }

    #[test]
    fn short_texts_are_left_alone() {
        let masker = Masker::new(["abc", "  ", "12 "]);
        assert_eq!(masker.mask("abc 12"), "abc 12");
        assert_eq!(masker.open_suffix(b"anything"), 0);
    }

    #[test]
    fn texts_are_hidden_from_their_least_length_on() {
        assert_eq!(Masker::new(["abc"]).mask("abc"), "abc");
        assert_eq!(Masker::new(["abcd"]).mask("abcd"), MASK);
        // A line of a longer secret is masked by itself from eight bytes on.
        let masker = Masker::new(["1234567\nabcdefgh\nend of it"]);
        assert_eq!(masker.mask("1234567 abcdefgh"), "1234567 (redacted)");
        // The invariant part of an encoded secret is masked from six characters on.
        assert_eq!(Masker::new(["a b!"]).mask("YSBiIQ"), "YSBiIQ", "five characters that are sure");
        assert_eq!(Masker::new(["a b!c"]).mask("YSBiIWM"), "(redacted)M");
    }

    #[test]
    fn the_texts_in_lists_and_the_lines_of_a_key_are_secrets_too() {
        let masker =
            Masker::new([r#"["first-one", {"k": "second-one"}]"#, "-----BEGIN-----\nabcdefghij\nkl\n"]);
        assert_eq!(
            masker.mask("a first-one b second-one c abcdefghij kl"),
            "a (redacted) b (redacted) c (redacted) kl"
        );
    }

    #[test]
    fn a_document_stays_a_document() {
        let masker = Masker::new(["12345", "pass\"word"]);
        let masked = masker.json(br#"{"a":12345,"b":["x pass\"word y"],"12345":null,"c":1}"#).unwrap();
        let value: Value = serde_json::from_slice(&masked).unwrap();
        assert_eq!(value, serde_json::json!({"a": MASK, "b": ["x (redacted) y"], MASK: null, "c": 1}));
        assert_eq!(masker.json(b"{\"c\":1}"), None);
    }

    #[test]
    fn the_secrets_of_a_usual_job_take_little_memory() {
        let line = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n";
        let key = format!("-----BEGIN KEY-----\n{}-----END KEY-----\n", line.repeat(6));
        let masker =
            Masker::new([key.as_str(), "cEr1lvlWmd-PcGqcZ8TfPOy2JYrcwpIVS4iZwO4wY", "another-token"]);
        let bytes: usize = masker.forms.iter().map(Vec::len).sum();
        let used = masker.finder.as_ref().unwrap().memory_usage();
        assert!(used <= 32 * bytes, "{used} for {bytes} bytes");
    }

    #[test]
    fn very_many_secrets_cost_a_bounded_multiple_of_themselves() {
        let many: Vec<_> = (0..2_000).map(|n| format!("secret-number-{n:06}/+")).collect();
        let list = serde_json::to_string(&many).unwrap();
        let masker = Masker::new([list.as_str(), "short/one"]);
        let bytes: usize = masker.forms.iter().map(Vec::len).sum();
        assert!(bytes <= MAX_ENCODED_BYTES + 2 * list.len(), "{bytes}");
        assert_eq!(masker.mask(&many[1_999]), MASK);
        assert_eq!(masker.mask("short%2Fone"), MASK, "the shorter are looked for in every form");
    }

    #[test]
    fn overlapping_finds_are_one() {
        let masker = Masker::new(["abcdef", "defghi"]);
        assert_eq!(masker.mask("-abcdefghi-abcdef-"), "-(redacted)-(redacted)-");
    }

    #[test]
    fn secrets_can_come_later() {
        let secrets = Secrets::default();
        assert_eq!(secrets.masker().mask("hidden"), "hidden");
        secrets.add(["hidden"]);
        assert_eq!(secrets.masker().mask("hidden"), MASK);
    }

    /// Each text takes memory for the search, and users choose how many there are.
    #[test]
    fn only_new_texts_of_enough_length_make_a_new_search() {
        let secrets = Secrets::default();
        assert!(secrets.masker().is_empty() && secrets.masker().reach() == 0);
        secrets.add(["abc", " abc ", ""]);
        assert!(secrets.masker().is_empty());
        secrets.add(["abcd"]);
        let masker = secrets.masker();
        assert!(!masker.is_empty());
        // Eight hexadecimal digits are its longest form.
        assert_eq!(masker.reach(), 3 * 8 + OVERLAP_BYTES);
        secrets.add(["abcd", "x"]);
        assert!(Arc::ptr_eq(&masker, &secrets.masker()), "nothing is new");
        secrets.add(["efgh"]);
        assert_eq!(secrets.masker().mask("abcd efgh"), "(redacted) (redacted)");
        assert_eq!(masker.mask("abcd efgh"), "(redacted) efgh");
    }

    #[test]
    fn ranges_become_one_mask_where_they_touch() {
        for (ranges, expected) in [
            (&[][..], "0123456789"),
            (&[(2, 4)], "01(redacted)456789"),
            (&[(2, 4), (4, 6)], "01(redacted)6789"),
            (&[(2, 4), (5, 6)], "01(redacted)4(redacted)6789"),
            (&[(5, 6), (2, 9), (3, 4)], "01(redacted)9"),
            (&[(0, 10)], "(redacted)"),
            (&[(0, 1), (9, 10)], "(redacted)12345678(redacted)"),
        ] {
            let of_text = ranges.iter().map(|&(from, to)| from..to).collect();
            assert_eq!(replace_ranges("0123456789", of_text), expected, "{ranges:?}");
        }
    }
}
