//! What a resource or data source can look at while it does its work.

use uuid::Uuid;

use crate::environment::Environment;
use crate::value::Value;

/// Used when neither the configuration nor the job names the address of the deployment.
pub(crate) const DEFAULT_URL: &str = "https://mydeployment.coder.com";

/// The inputs of one call.
pub(crate) struct Context<'a> {
    /// The variables of the job.
    pub(crate) environment: &'a Environment,
    /// The address of the deployment, as the provider was configured; it can be parsed as a URL.
    pub(crate) url: &'a str,
}

/// A new random identifier.
pub(crate) fn random_id() -> Value {
    Value::text(Uuid::new_v4().to_string())
}
