//! Every test of the store runs on both engines.
#![expect(clippy::unwrap_used, reason = "tests")]

mod statements;
