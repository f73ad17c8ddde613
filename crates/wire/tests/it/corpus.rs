//! Replays the findings and the seeds of fuzzing.

use super::decoders::DECODERS;

#[test]
fn every_input_of_the_corpus_ends() {
    coder_testkit::corpus::replay(env!("CARGO_MANIFEST_DIR"), DECODERS);
}
