//! What fuzzing found, and the seeds it began with, again.

use crate::decoders::DECODERS;

#[test]
fn every_input_of_the_corpus_is_an_answer() {
    coder_testkit::corpus::replay(env!("CARGO_MANIFEST_DIR"), DECODERS);
}
