//! The workspace tags of a root module: source text for `{ key = value }`, evaluated otherwise.

use std::collections::{BTreeMap, BTreeSet};

use coder_domain::clock::{Clock as _, SystemClock};
use coder_source::{Inputs, Template};
use hcl_edit::Span as _;
use hcl_edit::structure::Body;

use super::{ParseError, line_of, source};
use crate::terraform::template::literal::quote;

/// The workspace tags of a module.
#[derive(Default)]
pub(super) struct Tags {
    found: BTreeMap<String, String>,
    /// Keys without quotes and parentheses.
    seen: BTreeSet<String>,
    /// The position of the first block whose tags are an expression.
    expression: Option<String>,
    /// Whether some blocks must be evaluated.
    pub(super) must_evaluate_some: bool,
}

impl Tags {
    pub(super) fn read(&mut self, file: &str, text: &str, body: &Body) -> Result<(), ParseError> {
        for block in body.get_blocks("data") {
            if block.labels.first().map(|label| label.as_str()) != Some("coder_workspace_tags") {
                continue;
            }
            let place = || format!("{file}:{}", line_of(text, block.span()));
            let attribute =
                block.body.get_attribute("tags").ok_or_else(|| ParseError::TagsMissing(place()))?;
            let Some(object) = attribute.value.as_object() else {
                self.expression.get_or_insert_with(place);
                continue;
            };
            for (key, value) in object {
                let key = match key {
                    hcl_edit::expr::ObjectKey::Ident(ident) => ident.as_str().to_owned(),
                    hcl_edit::expr::ObjectKey::Expression(expression) => {
                        source(text, expression).trim_matches('"').to_owned()
                    }
                };
                // The parser puts a duplicate key into parentheses.
                let plain = key.trim_matches(['(', ')', '"']).to_owned();
                if !self.seen.insert(plain.clone()) {
                    return Err(ParseError::DuplicateTag(plain));
                }
                self.found.insert(key, source(text, value.expr()).to_owned());
            }
        }
        Ok(())
    }

    /// Adds evaluated tags as quoted text.
    pub(super) fn complete(
        mut self,
        files: Vec<(String, Vec<u8>)>,
    ) -> Result<BTreeMap<String, String>, ParseError> {
        if self.expression.is_none() && !self.must_evaluate_some {
            return Ok(self.found);
        }
        match (evaluated(files), self.expression) {
            (Ok(evaluated), _) => {
                for (key, value) in evaluated {
                    if !self.seen.contains(&key) {
                        self.found.insert(key, quote(&value));
                    }
                }
                Ok(self.found)
            }
            (Err(reason), Some(place)) => Err(ParseError::TagsUnknown { place, reason }),
            // Official daemons ignore tags in JSON too; a server that supports them has evaluated them itself.
            (Err(_), None) => Ok(self.found),
        }
    }
}

fn evaluated(files: Vec<(String, Vec<u8>)>) -> Result<BTreeMap<String, String>, String> {
    let template = Template::from_files(files).map_err(|error| error.to_string())?;
    let inputs = Inputs { now: SystemClock.now(), ..Inputs::default() };
    let first = |errors: Vec<coder_source::TagError>| errors.first().map(|error| error.reason.to_string());
    template.workspace_tags(&inputs).map_err(|errors| first(errors).unwrap_or_default())
}
