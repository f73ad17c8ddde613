//! The tables that `docs/provisioners.md` prints are those of the code; `UPDATE_REFERENCE=1` rewrites them.

use std::path::Path;

use coder_domain::explain::published_reasons;
use coder_domain::tags::published_table;

/// Text with the part between two marker lines replaced, and what stood there.
fn replaced(text: &str, name: &str, new: &str) -> (String, String) {
    let begin =
        format!("<!-- begin: {name}, made by UPDATE_REFERENCE=1 cargo test -p coder-domain guide -->\n");
    let end = format!("<!-- end: {name} -->\n");
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("the line {begin:?} is missing"));
    let (old, after) = rest.split_once(&end).unwrap_or_else(|| panic!("the line {end:?} is missing"));
    (format!("{before}{begin}{new}{end}{after}"), old.to_owned())
}

#[test]
fn the_guide_prints_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/provisioners.md");
    let mut guide = std::fs::read_to_string(&path).expect("docs/provisioners.md");
    let update = std::env::var_os("UPDATE_REFERENCE").is_some();
    for (name, table) in [("tag table", published_table()), ("reasons of waiting", published_reasons())] {
        let (current, printed) = replaced(&guide, name, &table);
        assert!(update || printed == table, "the {name} is not current: run once with UPDATE_REFERENCE=1");
        guide = current;
    }
    if update {
        std::fs::write(&path, guide).expect("docs/provisioners.md");
    }
}
