//! The conversion from text to text: Terraform's output in, the messages as JSON out.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{ConvertError, convert, json};
use crate::terraform::resources::graph::{Graph, GraphError};
use crate::terraform::resources::plan::Plan;
use crate::terraform::resources::state::{Module, ShowOutput};

/// What Terraform's output describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextSource {
    /// `terraform show -json PLANFILE`.
    Plan,
    /// `terraform show -json` of a state.
    State,
}

/// Why Terraform's output could not be converted.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The first text is not output of `terraform show -json`.
    #[error("the {what} cannot be read: {reason}; it must be what `terraform show -json` prints")]
    Json {
        /// Plan or state.
        what: &'static str,
        /// The parser's error.
        reason: serde_json::Error,
    },
    /// The first text is a state instead of a plan, or the other way round.
    #[error("this is a {0}, so pass --source {0}")]
    Source(&'static str),
    /// The second text is not a graph.
    #[error("{0}; it must be what `terraform graph -type=plan` prints")]
    Graph(String),
    /// The template violates a rule of the conversion.
    #[error("{0}")]
    Template(String),
}

impl From<GraphError> for TextError {
    fn from(error: GraphError) -> Self {
        Self::Graph(error.to_string())
    }
}

impl From<ConvertError> for TextError {
    fn from(error: ConvertError) -> Self {
        Self::Template(error.to_string())
    }
}

/// The fields that distinguish plans from states.
#[derive(Default, Deserialize)]
struct OutputMarkers {
    planned_values: Option<IgnoredAny>,
    values: Option<IgnoredAny>,
}

/// Converts a plan or a state and the graph of its configuration, as the graph step of a job does (terraform
/// section 4).
///
/// The result has the names of the protocol's messages, no zero values, and lists in a fixed order. Ids of apps
/// are derived from slug and name, because those of a plan are random; two runs give the same text.
///
/// # Errors
/// [`TextError`].
pub fn convert_text(source: TextSource, shown: &[u8], graph: &str) -> Result<Value, TextError> {
    let unreadable = |what| move |reason| TextError::Json { what, reason };
    // Either would parse as an empty one of the other kind.
    match (source, serde_json::from_slice(shown).unwrap_or_default()) {
        (TextSource::Plan, OutputMarkers { planned_values: None, values: Some(_) }) => {
            return Err(TextError::Source("state"));
        }
        (TextSource::State, OutputMarkers { planned_values: Some(_), .. }) => {
            return Err(TextError::Source("plan"));
        }
        _ => {}
    }
    let modules: Vec<Module> = match source {
        TextSource::Plan => {
            let plan: Plan = serde_json::from_slice(shown).map_err(unreadable("plan"))?;
            plan.into_modules()
        }
        TextSource::State => {
            let state: ShowOutput = serde_json::from_slice(shown).map_err(unreadable("state"))?;
            state.values.map(|values| values.root_module).into_iter().collect()
        }
    };
    let graph = Graph::parse(graph)?;
    Ok(json::of(convert(&modules, &graph)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_without_values_is_empty() {
        let shown = br#"{"format_version":"1.0","values":{"root_module":{"resources":[
            {"address":"a.b","mode":"managed","type":"a","name":"b","values":{}}]}}}"#;
        let one = convert_text(TextSource::State, shown, "digraph {}").unwrap();
        assert_eq!(one["Resources"][0]["name"], "b");
        let gone = convert_text(TextSource::State, br#"{"format_version":"1.0"}"#, "digraph {}").unwrap();
        assert_eq!(gone["Resources"], serde_json::json!([]));
    }

    #[test]
    fn a_plan_is_not_taken_for_a_state_nor_a_state_for_a_plan() {
        let plan = br#"{"planned_values":{"root_module":{}},"prior_state":{"values":{}}}"#;
        let state = br#"{"values":{"root_module":{}}}"#;
        let convert = |source, shown: &[u8]| {
            convert_text(source, shown, "digraph {}").map_err(|error| error.to_string())
        };
        assert!(convert(TextSource::Plan, plan).is_ok() && convert(TextSource::State, state).is_ok());
        assert_eq!(convert(TextSource::State, plan).unwrap_err(), "this is a plan, so pass --source plan");
        assert_eq!(convert(TextSource::Plan, state).unwrap_err(), "this is a state, so pass --source state");
    }

    #[test]
    fn errors_say_which_text_is_wrong() {
        let text = |source, shown: &[u8], graph| convert_text(source, shown, graph).unwrap_err().to_string();
        assert!(text(TextSource::Plan, b"{", "digraph {}").starts_with("the plan cannot be read"));
        assert!(text(TextSource::State, b"[]", "digraph {}").starts_with("the state cannot be read"));
        assert!(text(TextSource::Plan, b"{}", "graph").starts_with("parse graph"));
    }
}
