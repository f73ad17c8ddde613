//! The crate's tests, through its public interface.
#![expect(clippy::unwrap_used, reason = "tests")]

mod archives;
mod corpus;
mod decoders;
mod functions;
mod hostile;
mod language;
mod parameters;
mod references;
mod workspace_tags;

use std::collections::BTreeMap;

use coder_source::{Inputs, Reason, TagError, Template};

/// An archive of files.
fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap()
}

fn template(files: &[(&str, &str)]) -> Template {
    Template::read(&tar(files), "application/x-tar").unwrap()
}

/// A module with these lines and one block of tags.
fn module(lines: &str, tags: &str) -> String {
    format!("{lines}\ndata \"coder_workspace_tags\" \"tags\" {{\n  tags = {{\n{tags}\n  }}\n}}\n")
}

type Outcome = Result<BTreeMap<String, String>, Vec<TagError>>;

fn tags(lines: &str, tags: &str, inputs: &Inputs) -> Outcome {
    let template = template(&[("main.tf", &module(lines, tags))]);
    assert_eq!(template.invalid_files(), [] as [String; 0]);
    template.workspace_tags(inputs)
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The value of one expression as a string, or its error.
fn value(lines: &str, expression: &str) -> Result<String, Reason> {
    match tags(lines, &format!("x = {expression}"), &Inputs::default()) {
        Ok(mut tags) => Ok(tags.remove("x").unwrap()),
        Err(mut errors) => Err(errors.remove(0).reason),
    }
}
