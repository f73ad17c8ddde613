//! Replays the findings and the seeds of fuzzing.

use crate::decoders::DECODERS;

#[test]
fn every_input_of_the_corpus_is_an_answer() {
    coder_testkit::corpus::replay(env!("CARGO_MANIFEST_DIR"), DECODERS);
}
