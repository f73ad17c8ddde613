//! The dashboard, the alerts and the pages about operating name only metrics that exist, and the pages name them all.

use std::collections::BTreeSet;
use std::path::Path;

/// The words of a text that begin like the name of a metric of this project.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
    let is_name = |word: &&str| {
        ["coderd_", "process_"].iter().any(|start| word.len() > start.len() && word.starts_with(start))
    };
    words.filter(is_name).map(str::to_owned).collect()
}

/// The registered name. The text format adds suffixes to the names of counters and histograms.
fn registered(name: &str) -> &str {
    let ends = ["_total", "_bucket", "_count", "_sum"];
    ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names that the programs register.
fn known() -> BTreeSet<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = vec![crates.join("provisioner/src/metrics.rs")];
    for entry in std::fs::read_dir(crates.join("server/src/metrics")).unwrap() {
        files.push(entry.unwrap().path());
    }
    let all: BTreeSet<String> = files.iter().flat_map(|file| names(&read(file))).collect();
    all.iter().map(|name| registered(name).to_owned()).collect()
}

#[test]
fn dashboard_alerts_and_pages_name_metrics_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let known = known();
    assert!(known.len() > 20, "{known:?}");
    let mut told = BTreeSet::new();
    for file in [
        "deploy/grafana/dashboard.json",
        "deploy/grafana/alerts.yml",
        "docs/operators/monitoring.md",
        "docs/provisioners.md",
        "docs/extensions.md",
    ] {
        let used = names(&read(&root.join(file)));
        assert!(!used.is_empty() || file == "docs/extensions.md", "{file}");
        for name in used {
            assert!(known.contains(registered(&name)), "{file} names {name}, which is not registered");
            if file.starts_with("docs/") {
                told.insert(registered(&name).to_owned());
            }
        }
    }
    let untold: Vec<_> = known.difference(&told).collect();
    assert_eq!(untold, Vec::<&String>::new(), "metrics that no page names");
}
