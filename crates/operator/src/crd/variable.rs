//! A variable of a container.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A variable. Its value, or the source of it, is passed on as it is: newer clusters know sources that this program does not.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Variable {
    pub name: String,
    #[serde(flatten)]
    source: Map<String, Value>,
}
