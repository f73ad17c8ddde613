//! One function per decoder of input that templates, Terraform or users control: it terminates and its
//! assertions hold for any bytes. The test replays the fuzzing corpus, and the targets of `fuzz/` call the same
//! functions.

use std::path::Path;

use coder_wire::messages::provisioner::LogLevel;

use crate::files::archive::{ArchiveLimits, extract};
use crate::output::line_masker::LineMasker;
use crate::output::line_splitter::{LineSplitter, Piece};
use crate::output::log_rows::{ROW_BYTES, split_rows, strip_nul};
use crate::output::mask::{MASK, Masker, Secrets};
use crate::terraform::command::events::Event;
use crate::terraform::resources::convert::text::{TextSource, convert_text};
use crate::terraform::resources::graph::{Direction, Graph};
use crate::terraform::resources::state::from_state_file;
use crate::terraform::template::parse::RootModule;

/// Entries and bytes below a directory.
fn below(dir: &Path) -> (usize, u64) {
    let mut sum = (0, 0);
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let metadata = entry.metadata().expect("an entry");
        assert!(!metadata.is_symlink(), "no links");
        let (entries, bytes) = if metadata.is_dir() { below(&entry.path()) } else { (0, metadata.len()) };
        sum = (sum.0 + entries + 1, sum.1 + bytes);
    }
    sum
}

/// An archive of a template or of modules.
pub(crate) fn unpacked(data: &[u8]) {
    const LIMITS: ArchiveLimits =
        ArchiveLimits { entries: 100, entry_bytes: 4096, total_bytes: 16 << 10, ..ArchiveLimits::TEMPLATE };
    let root = tempfile::tempdir().expect("a folder");
    let dir = root.path().join("in");
    std::fs::create_dir(&dir).expect("a folder");
    let _ = extract(data, &dir, LIMITS);
    assert!(below(&dir).1 <= LIMITS.total_bytes, "no more than the limit is written");
    assert_eq!(std::fs::read_dir(root.path()).expect("a folder").count(), 1, "nothing is written elsewhere");
}

/// The output of `terraform show` for a state or a plan, then a NUL and the graph.
pub(crate) fn shown(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let at = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    let graph = String::from_utf8_lossy(rest.get(at + 1..).unwrap_or_default());
    let source = if first % 2 == 0 { TextSource::Plan } else { TextSource::State };
    let _ = from_state_file(&rest[..at]);
    if let Ok(value) = convert_text(source, &rest[..at], &graph) {
        let again = convert_text(source, &rest[..at], &graph).expect("what was read is read again");
        assert_eq!(again, value, "the same text is the same workspace");
    }
}

/// The output of `terraform graph`.
pub(crate) fn graph(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(graph) = Graph::parse(&text) else { return };
    let labels: Vec<_> = graph.labels().map(str::to_owned).collect();
    for label in labels.iter().take(8) {
        let node = graph.find(label).expect("a label has a node");
        for direction in [Direction::Up, Direction::Down] {
            let near = graph.nearest(node, direction, |_| true);
            assert!(near.is_none_or(|near| labels.iter().any(|label| label == near)));
        }
        let _ = (graph.has_resource_type(label), graph.root_edge(label, label));
    }
}

/// The source files of a template.
pub(crate) fn sources(data: &[u8]) {
    let Some((first, text)) = data.split_first() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let name = if first % 2 == 0 { "main.tf" } else { "main.tf.json" };
    std::fs::write(dir.path().join(name), text).expect("a file");
    if let Err(error) = RootModule::read(dir.path(), coder_source::files::Dialect::OpenTofu) {
        assert!(error.to_string().len() < 4096 + 4 * text.len());
    }
}

/// Terraform's output, split at arbitrary places: no byte is lost, and it parses into rows and events.
pub(crate) fn output(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    let mut lines = LineSplitter::default();
    let mut pieces = Vec::new();
    for part in bytes.chunks(usize::from(*first) + 1) {
        pieces.extend(lines.push(part));
    }
    pieces.extend(lines.finish());
    let mut joined = Vec::new();
    for piece in &pieces {
        let text = piece.text();
        let cleaned = strip_nul(&text);
        assert!(!cleaned.contains('\0'));
        let split_rows = split_rows(&cleaned);
        assert!(split_rows.iter().all(|row| row.len() <= ROW_BYTES));
        assert!(split_rows.iter().map(|row| row.len() + 1).sum::<usize>() > cleaned.len());
        if let Some(event) = Event::parse(&text) {
            let _ = (event.lines(), event.stderr_line(), event.error_text(), event.error_summary());
        }
        let (Piece::Line(bytes) | Piece::Part(bytes)) = piece;
        joined.extend_from_slice(bytes);
        joined.extend_from_slice(if matches!(piece, Piece::Line(_)) { b"\n" } else { b"" });
    }
    let want: Vec<_> = bytes.iter().filter(|byte| **byte != b'\n').collect();
    let got: Vec<_> = joined.iter().filter(|byte| **byte != b'\n').collect();
    assert!(got == want, "no byte is lost or added");
}

/// A secret in the first line, then lines that may contain it: no output contains the secret, and no line is
/// lost.
pub(crate) fn masked(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Some((secret, rest)) = text.split_once('\n') else { return };
    let masker = Masker::new([secret]);
    let shown = masker.mask(rest);
    let _ = masker.json(rest.as_bytes());
    let secret = secret.trim();
    // A mask can complete a text that looks like the secret only if the secret shares characters with the mask.
    let foreign = !secret.chars().any(|letter| MASK.contains(letter));
    if secret.len() >= 4 && foreign {
        assert!(!shown.contains(secret), "{shown:?} still has {secret:?}");
    }
    let secrets = Secrets::default();
    secrets.add([secret]);
    let mut stitcher = LineMasker::new(secrets);
    let mut said = Vec::new();
    let mut count = 0;
    for line in rest.split('\n') {
        said.extend(stitcher.push(LogLevel::Info, line));
        count += 1;
    }
    said.extend(stitcher.finish());
    assert_eq!(said.len(), count, "no line is lost");
    if secret.len() >= 4 && foreign {
        assert!(said.iter().all(|(_, line)| !line.contains(secret)), "{said:?} still has {secret:?}");
    }
}

/// A decoder of arbitrary bytes.
pub(crate) type Decode = fn(&[u8]);

/// Every decoder by the name of its corpus.
pub(crate) const DECODERS: [(&str, Decode); 6] = [
    ("unpacked", unpacked),
    ("shown", shown),
    ("graph", graph),
    ("sources", sources),
    ("output", output),
    ("masked", masked),
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_input_of_the_corpus_is_an_answer() {
        coder_testkit::corpus::replay(env!("CARGO_MANIFEST_DIR"), super::DECODERS);
    }
}
