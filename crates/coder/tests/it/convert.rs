//! `coder exp terraform convert`: the converted plan or state, through the binary.

use crate::program::Home;

#[test]
fn captured_plans_and_states_become_the_captured_results() {
    let dir = coder_requirements::require!(directory ConversionFixtures);
    let dir = dir.canonicalize().unwrap();
    let home = Home::new();
    let mut compared = 0;
    for case in std::fs::read_dir(dir).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
        for source in ["plan", "state"] {
            let file = |name: String| case.path().join(name).to_str().unwrap().to_owned();
            let (shown, graph) = (file(format!("tf{source}.json")), file(format!("tf{source}.dot")));
            let args =
                ["exp", "terraform", "convert", "--json", &shown, "--graph", &graph, "--source", source];
            let out = home.run(&args).success().out;
            let ours: serde_json::Value = serde_json::from_str(&out).unwrap();
            let golden = std::fs::read(file(format!("{source}.golden"))).unwrap();
            let golden: serde_json::Value = serde_json::from_slice(&golden).unwrap();
            assert_eq!(ours, golden, "{} {source}", case.path().display());
            compared += 1;
        }
    }
    assert!(compared > 0);
}

const GRAPH: &str = r#"digraph { "m" [label = "coder_metadata.m"] "n" [label = "coder_metadata.n"] "a" [label = "x.a"]
    "m" -> "a" "n" -> "a" }"#;
const STATE: &str = r#"{"values":{"root_module":{"resources":[
    {"address":"coder_metadata.m","mode":"managed","type":"coder_metadata","name":"m","values":{}},
    {"address":"coder_metadata.n","mode":"managed","type":"coder_metadata","name":"n","values":{}},
    {"address":"x.a","mode":"managed","type":"x","name":"a","values":{}}]}}}"#;

#[test]
fn a_broken_rule_is_the_result_and_an_error() {
    let home = Home::new();
    std::fs::write(home.path().join("graph"), GRAPH).unwrap();
    let outcome = home.answer(
        &["exp", "terraform", "convert", "--json", "-", "--graph", "graph", "--source", "state"],
        STATE,
    );
    assert_eq!(outcome.status.code(), Some(1));
    assert_eq!(outcome.out.trim(), "\"duplicate metadata resource: x.a\"");
    assert!(outcome.err.contains("duplicate metadata resource: x.a"), "{}", outcome.err);
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let home = Home::new();
    std::fs::write(home.path().join("graph"), GRAPH).unwrap();
    let run = |json: &str, graph: &str| {
        home.run(&["exp", "terraform", "convert", "--json", json, "--graph", graph, "--source", "plan"])
    };
    run("-", "-").refused("only one of --json and --graph");
    run("missing", "graph").refused("missing");
    run("graph", "graph").refused("error: graph: the plan cannot be read");
    std::fs::write(home.path().join("state"), STATE).unwrap();
    run("state", "graph").refused("error: state: this is a state, so pass --source state");
    std::fs::write(home.path().join("plan"), "{\"planned_values\":{}}").unwrap();
    run("plan", "state").refused("error: state: parse graph");
}
