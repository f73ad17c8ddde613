//! See the function of this name in the decoders of the crates.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| coder_fuzz::run("app-addresses", data));
