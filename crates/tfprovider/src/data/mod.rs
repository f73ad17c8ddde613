//! The data sources: one file each, and the list of them.

mod external_auth;
mod parameter;
mod preset;
mod provisioner;
mod task;
mod workspace;
mod workspace_owner;
mod workspace_tags;

use crate::context::Context;
use crate::diagnostics::Diagnostics;
use crate::schema::Schema;
use crate::value::Value;

/// A data source. Its state starts as its configuration with defaults; `read` adds the rest.
pub(crate) struct DataSource {
    pub(crate) name: &'static str,
    pub(crate) schema: Schema,
    /// Gets the state to complete and the configuration as it was written.
    pub(crate) read: fn(&mut Value, &Value, &Context<'_>, &mut Diagnostics),
}

/// Every data source there is.
pub(crate) fn all() -> Vec<DataSource> {
    vec![
        external_auth::data_source(),
        parameter::data_source(),
        preset::data_source(),
        provisioner::data_source(),
        task::data_source(),
        workspace::data_source(),
        workspace_owner::data_source(),
        workspace_tags::data_source(),
    ]
}
