//! The inputs of resources and data sources.

use uuid::Uuid;

use crate::environment::Environment;
use crate::value::Value;

/// The URL when neither the configuration nor the job has one.
pub(crate) const DEFAULT_URL: &str = "https://mydeployment.coder.com";

/// The inputs of one call.
pub(crate) struct Context<'a> {
    /// The variables of the job.
    pub(crate) environment: &'a Environment,
    /// The configured URL of the deployment; it is valid.
    pub(crate) url: &'a str,
}

/// A new random identifier.
pub(crate) fn random_id() -> Value {
    Value::text(Uuid::new_v4().to_string())
}
