//! The committed messages are what the definition generates.

use std::path::Path;

/// Generates the messages into a string.
fn generate() -> String {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let descriptors = protox::compile(["tfplugin5.proto"], [crate_dir.join("proto")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    prost_build::Config::new().out_dir(folder.path()).compile_fds(descriptors).unwrap();
    let code = std::fs::read_to_string(folder.path().join("tfplugin5.rs")).unwrap();
    let marker = "// @generated from proto/tfplugin5.proto by prost-build; UPDATE_REFERENCE=1 cargo test rewrites it.\n";
    format!("{marker}{code}")
}

#[test]
fn committed_messages_are_current() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/generated/tfplugin5.rs");
    let code = generate();
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&committed, &code).unwrap();
    }
    let hint = "run UPDATE_REFERENCE=1 cargo test -p coder-tfprovider committed_messages_are_current";
    assert!(std::fs::read_to_string(&committed).unwrap() == code, "the messages are out of date: {hint}");
}
