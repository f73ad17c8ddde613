//! What fuzzing found, and the seeds it began with, again.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::decoders::DECODERS;

/// Longest time for one input, unoptimised and on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn every_input_of_the_corpus_is_an_answer() {
    for (name, decode) in DECODERS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name);
        let mut count = 0;
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let start = Instant::now();
            decode(&std::fs::read(&path).unwrap());
            assert!(start.elapsed() < PATIENCE, "{}: {:?}", path.display(), start.elapsed());
            count += 1;
        }
        assert!(count > 0, "{name} has no corpus");
    }
}
