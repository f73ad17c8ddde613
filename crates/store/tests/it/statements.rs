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
    assert!(forked.contains(&"schema_migrations.TABLE_EXISTS"), "{forked:?}");
}

#[test]
fn statements_have_a_name_and_a_text() {
    let all = coder_store::all_statements();
    assert!(all.len() > 400, "{}", all.len());
    // Merged statements are found by the names of their parts.
    let changes: Vec<_> = all.iter().filter(|one| !one.postgres().starts_with("select")).collect();
    let names: std::collections::BTreeSet<_> = changes.iter().map(|one| one.name()).collect();
    assert_eq!(names.len(), changes.len());
    for statement in all {
        let (table, name) = statement.name().split_once('.').unwrap();
        assert!(
            !table.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || "_0123456789".contains(c))
        );
        for text in [statement.sqlite(), statement.postgres()] {
            let verb = text.split_whitespace().next().unwrap();
            assert!(["select", "insert", "update", "delete", "with"].contains(&verb), "{text}");
        }
    }
}
