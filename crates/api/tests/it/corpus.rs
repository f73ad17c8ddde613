//! Replays the findings and the seeds of fuzzing.

use crate::decoders::DECODERS;

#[test]
fn every_corpus_input_ends_in_time() {
    coder_testkit::corpus::replay(env!("CARGO_MANIFEST_DIR"), DECODERS);
}
