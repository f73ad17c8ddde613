//! The decoders of every crate in one place: those of public interfaces, and by path the sources of private ones, so that no
//! crate makes anything public for fuzzing.
#![allow(dead_code, unused_imports, reason = "parts of other crates without their surroundings")]

#[path = "../../crates/provisioner/src/decoders.rs"]
mod daemon;
#[path = "../../crates/coder/src/duration.rs"]
mod duration;
mod files;
#[path = "../../crates/provisioner/src/output/mod.rs"]
mod output;
#[path = "../../crates/source/tests/it/decoders.rs"]
mod source;
#[path = "../../crates/api/tests/it/decoders.rs"]
mod api;
#[path = "../../crates/tailnet/tests/it/decoders.rs"]
mod tailnet;
mod terraform;
#[path = "../../crates/coder/src/template/tfvars.rs"]
mod tfvars;
#[path = "../../crates/server/src/routes/files/archive.rs"]
mod uploads;
#[path = "../../crates/wire/tests/it/decoders.rs"]
mod wire;

/// An uploaded archive in the server: its expanded size is bounded.
fn upload(data: &[u8]) {
    const LIMIT: usize = 4 << 20;
    let bound = LIMIT.min((data.len() * 200).max(1 << 20)) + 1024 * (10_000 + 2);
    if let Ok(tar) = uploads::zip_to_tar(data, LIMIT) {
        assert!(tar.len() <= bound, "{} bytes of {}", tar.len(), data.len());
        uploads::tar_to_zip(&tar, LIMIT).expect("our own archive is read");
    }
    let _ = uploads::tar_to_zip(data, LIMIT);
}

/// Arguments of the command line and files of values.
fn typed(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(duration) = duration::parse(&text) {
        assert_eq!(duration::parse(&duration::format(duration)), Ok(duration));
        let _ = duration::short(duration);
    }
    let _ = (tfvars::parse(&text), tfvars::parse_json(&text));
}

/// Decodes arbitrary bytes.
type Decode = fn(&[u8]);

/// Every target by its name.
const TARGETS: &[&[(&str, Decode)]] = &[
    &wire::DECODERS,
    &tailnet::DECODERS,
    &source::DECODERS,
    &api::DECODERS,
    &daemon::DECODERS,
    &[("upload", upload), ("typed", typed)],
];

/// Runs one target on one input.
pub fn run(name: &str, data: &[u8]) {
    let found = TARGETS.iter().copied().flatten().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("there is no target {name}")).1(data);
}
