//! What fuzzing found, and the seeds it began with, again; and each of them with a few bytes changed.

use std::path::Path;

use super::decoders::DECODERS;

// By its path: as a dependency it would bring the whole server into every build of these tests.
#[path = "../../../testkit/src/corpus.rs"]
#[expect(unreachable_pub, reason = "it is a part of another crate")]
mod files;

#[test]
fn every_input_of_the_corpus_is_an_answer() {
    files::replay(env!("CARGO_MANIFEST_DIR"), DECODERS);
}

/// Changes some bytes, cuts, repeats. The same in every run.
fn mutate(input: &[u8], dice: &mut impl FnMut() -> usize) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=dice() % 4 {
        let at = dice() % (bytes.len() + 1);
        match dice() % 5 {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, u8::try_from(dice() % 256).unwrap()),
            2 => {
                let again = bytes[at..].to_vec();
                bytes.extend_from_slice(&again);
            }
            3 if at < bytes.len() => {
                bytes.remove(at);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << (dice() % 8);
                }
            }
        }
    }
    bytes
}

#[test]
fn changed_inputs_are_answers_too() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut dice = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap()
    };
    for (name, decode) in DECODERS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name);
        for entry in std::fs::read_dir(folder).unwrap() {
            let input = std::fs::read(entry.unwrap().path()).unwrap();
            for _ in 0..300 {
                decode(&mutate(&input, &mut dice));
            }
        }
    }
}
