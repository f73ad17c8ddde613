//! The real binary, driven as people and scripts drive it.
#![expect(clippy::unwrap_used, reason = "tests")]
