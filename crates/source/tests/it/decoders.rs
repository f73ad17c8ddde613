//! One function for each format that this crate reads: it ends for any bytes, with a consistent result. `corpus` replays what
//! fuzzing found with them, and the targets of `fuzz/` call them.

use std::collections::BTreeMap;

use coder_source::{Flow, Inputs, Template};

/// Evaluates a template in both flows; the same source always has the same result.
fn evaluated(template: &Template) {
    for flow in [Flow::Dynamic, Flow::Classic] {
        let given = BTreeMap::from([("v".to_owned(), "[1, \"x\"]".to_owned())]);
        let inputs = Inputs { flow, variables: given.clone(), parameters: given, ..Inputs::default() };
        let tags = template.workspace_tags(&inputs);
        assert_eq!(template.workspace_tags(&inputs), tags);
        for error in tags.err().into_iter().flatten() {
            assert!(!error.to_string().is_empty());
        }
    }
    assert!(template.invalid_files().iter().all(|reason| !reason.is_empty()));
}

/// An uploaded archive.
pub(crate) fn archive(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    let kind = if first % 2 == 0 { "application/x-tar" } else { "application/zip" };
    if let Ok(template) = Template::read(bytes, kind) {
        evaluated(&template);
    }
}

/// A template of one file, by the first byte: configuration, JSON configuration, or values beside a fixed module.
pub(crate) fn configuration(data: &[u8]) {
    const MODULE: &str = "variable \"v\" {}\nlocals {\n  l = { a = var.v }\n}\n\
        data \"coder_parameter\" \"p\" {\n  name = \"v\"\n  default = \"x\"\n}\n\
        data \"coder_workspace_tags\" \"t\" {\n  tags = {\n    a = var.v\n    b = local.l.a\n  }\n}\n";
    let Some((first, bytes)) = data.split_first() else { return };
    let files: &[(&str, &[u8])] = match first % 6 {
        0 => &[("main.tf", bytes)],
        1 => &[("main.tf.json", bytes)],
        2 => &[("main.tf", MODULE.as_bytes()), ("terraform.tfvars", bytes)],
        3 => &[("main.tf", MODULE.as_bytes()), ("x.auto.tfvars.json", bytes)],
        4 => &[("main.tf", MODULE.as_bytes()), ("x_override.tf", bytes)],
        // One expression, which reaches the functions sooner.
        _ => {
            let text = String::from_utf8_lossy(bytes);
            let main = MODULE.replace("a = var.v\n    b", &format!("a = {text}\n    b"));
            return read(&[("main.tf", main.as_bytes())]);
        }
    };
    read(files);
}

fn read(files: &[(&str, &[u8])]) {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, *content).expect("memory has room");
    }
    let bytes = archive.into_inner().expect("memory has room");
    if let Ok(template) = Template::read(&bytes, "application/x-tar") {
        evaluated(&template);
    }
}

/// Reads arbitrary bytes.
pub(crate) type Decode = fn(&[u8]);

/// Every reader by the name of its corpus.
pub(crate) const DECODERS: [(&str, Decode); 2] = [("archive", archive), ("configuration", configuration)];
