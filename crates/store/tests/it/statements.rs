//! Both engines accept every statement. This replaces a check of the SQL at compile time.

use std::error::Error as _;

use crate::fixture::{Fixture, on_both_engines};

on_both_engines!(every_statement_can_be_prepared);

async fn every_statement_can_be_prepared(fixture: Fixture) {
    let mut refused = Vec::new();
    for statement in coder_store::all_statements() {
        let mut tx = fixture.store.single().await.unwrap();
        if let Err(error) = tx.prepare(&statement).await {
            refused.push(format!("{}: {}", statement.name(), error.source().unwrap()));
        }
    }
    assert_eq!(refused, Vec::<String>::new());
}

/// The test above would miss a statement in a file that is not listed.
#[test]
fn every_file_with_statements_is_listed() {
    let list = include_str!("../../src/statements.rs");
    let listed = list.matches("STATEMENTS").count();
    let mut defined = 0;
    for file in source_files(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))) {
        defined += std::fs::read_to_string(file).unwrap().matches("statements! { \"").count();
    }
    assert_eq!(listed, defined);
}

fn source_files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(source_files(&path)) } else { files.push(path) }
    }
    files
}

#[test]
fn forks_stay_within_their_budget() {
    let forked: Vec<_> =
        coder_store::all_statements().into_iter().filter(|s| s.is_forked()).map(|s| s.name()).collect();
    assert!(forked.len() <= 10, "{forked:?}");
}
