//! Resources and modules that a job planned or created. Their agents are in `agents.rs`.

use coder_domain::build::Transition;
use coder_domain::ids::{JobId, ResourceId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::{Tx, batch, list as list_value, record, sealed_json_column, sql, statements, values};

/// One item of a resource's metadata.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// Name.
    pub key: String,
    pub value: String,
    /// Whether the value is hidden until the user reveals it.
    pub sensitive: bool,
}

impl std::fmt::Debug for Metadata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Metadata({:?}, …)", self.key)
    }
}

sealed_json_column!(Vec<Metadata>);

record! {
    pub struct Resource {
        pub id: ResourceId,
        /// The job that reported it.
        pub job_id: JobId,
        /// Its position in the report.
        pub position: i64,
        pub transition: Transition,
        /// Terraform type.
        pub kind: String = "type",
        /// Terraform name.
        pub name: String,
        /// Whether the overview omits it.
        pub hide: bool,
        /// URL or emoji path.
        pub icon: String,
        /// Of virtual machines.
        pub instance_type: String,
        /// The daily cost.
        pub daily_cost: i64,
        /// Terraform module; empty for the root.
        pub module_path: String,
        /// Metadata in display order.
        pub metadata: Vec<Metadata>,
        /// When it was reported.
        pub created_at: Timestamp = "created_us",
    }
}

record! {
    /// A Terraform module.
    pub struct Module {
        pub transition: Transition,
        /// The source of the module.
        pub source: String,
        pub version: String,
        /// Its address.
        pub key: String,
    }
}

statements! { "workspace_resources";
    INSERT = sql("insert into workspace_resources (id, job_id, position, transition, type, name, hide, icon,
        instance_type, daily_cost, module_path, metadata, created_us)
        select json_extract(item.value, '$.id'), json_extract(item.value, '$.job_id'),
        cast(json_extract(item.value, '$.position') as bigint), json_extract(item.value, '$.transition'),
        json_extract(item.value, '$.type'), json_extract(item.value, '$.name'),
        cast(json_extract(item.value, '$.hide') as boolean), json_extract(item.value, '$.icon'),
        json_extract(item.value, '$.instance_type'), cast(json_extract(item.value, '$.daily_cost') as bigint),
        json_extract(item.value, '$.module_path'), json_extract(item.value, '$.metadata'),
        cast(json_extract(item.value, '$.created_us') as bigint)
        from json_each($1) as item");
    LIST = sql("select id, job_id, position, transition, type, name, hide, icon, instance_type, daily_cost, module_path,
        metadata, created_us from workspace_resources where job_id in (select value from json_each($1))
        order by job_id, transition, position, id");
    FIND = sql("select id, job_id, position, transition, type, name, hide, icon, instance_type, daily_cost, module_path,
        metadata, created_us from workspace_resources where id = $1");
    INSERT_MODULES = sql("insert into workspace_modules (job_id, position, transition, source, version, key)
        select $1, cast(item.key as bigint), json_extract(item.value, '$.transition'),
        json_extract(item.value, '$.source'), json_extract(item.value, '$.version'), json_extract(item.value, '$.key')
        from json_each($2) as item");
    LIST_MODULES = sql("select transition, source, version, key from workspace_modules where job_id = $1
        order by transition, position");
}

/// Stores all resources of a job with one statement.
///
/// # Errors
/// [`crate::Error::Reference`] when the job is missing.
pub async fn insert(tx: &mut Tx, resources: &[Resource]) -> Result<()> {
    if resources.is_empty() {
        return Ok(());
    }
    let row = |resource: &Resource| {
        let (mut row, id) = (resource.values(), resource.id.to_string());
        tx.seal_in("workspace_resources", Resource::COLUMNS, "metadata", &id, &mut row);
        row
    };
    let rows = batch(Resource::COLUMNS, resources.iter().map(row));
    tx.execute_pipelined(&INSERT, vec![rows], false).await
}

/// The resources of these jobs, in the reported order.
pub async fn list(tx: &mut Tx, jobs: &[JobId]) -> Result<Vec<Resource>> {
    tx.fetch(&LIST, vec![list_value(jobs.iter().copied())]).await?.iter().map(Resource::from_row).collect()
}

pub async fn find(tx: &mut Tx, id: ResourceId) -> Result<Option<Resource>> {
    tx.fetch_opt(&FIND, values![id]).await?.as_ref().map(Resource::from_row).transpose()
}

/// Stores all modules of a job. Can be called once per job.
///
/// # Errors
/// A conflict when the job has modules already.
pub async fn insert_modules(tx: &mut Tx, job: JobId, modules: &[Module]) -> Result<()> {
    if modules.is_empty() {
        return Ok(());
    }
    let mut row = values![job];
    row.push(batch(Module::COLUMNS, modules.iter().map(Module::values)));
    tx.execute_pipelined(&INSERT_MODULES, row, false).await
}

/// The modules of a job in the reported order.
pub async fn list_modules(tx: &mut Tx, job: JobId) -> Result<Vec<Module>> {
    tx.fetch(&LIST_MODULES, values![job]).await?.iter().map(Module::from_row).collect()
}
