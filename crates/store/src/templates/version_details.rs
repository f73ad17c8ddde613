//! The results of a template version's import: variables, parameters, presets, workspace tags, external authentication,
//! and the cached plan. Each list is written with one statement.

use std::collections::BTreeMap;

use coder_domain::ids::{FileId, PresetId, TemplateVersionId};
use coder_domain::secret::Secret;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::{Tx, Value, batch, clean, json_column, record, sql, statements, values};

record! {
    /// A Terraform variable of the template.
    pub struct Variable {
        pub name: String,
        pub description: String,
        /// `string`, `number` or `bool`.
        pub kind: String = "type",
        /// The effective value.
        pub value: Secret,
        /// The default value.
        pub default_value: Secret,
        /// Whether a value is required.
        pub required: bool,
        /// Whether the value must not be shown.
        pub sensitive: bool,
    }
}

/// A rich parameter. Parameters are shown in the order of their list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Parameter {
    pub name: String,
    pub display_name: String,
    /// Markdown.
    pub description: String,
    /// `string`, `number`, `bool` or `list(string)`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The form type, for example `dropdown`.
    pub form_type: String,
    /// Whether it may change after the first build.
    pub mutable: bool,
    /// Used when no value is given.
    pub default_value: String,
    /// URL or emoji path.
    pub icon: String,
    /// The allowed values; empty when every value is allowed.
    pub options: Vec<ParameterOption>,
    /// A regular expression that a value must match.
    pub validation_regex: String,
    /// The message for a value that does not match.
    pub validation_error: String,
    /// The minimum of a number.
    pub validation_min: Option<i32>,
    /// The maximum of a number.
    pub validation_max: Option<i32>,
    /// `increasing`, `decreasing` or empty.
    pub validation_monotonic: String,
    /// Whether a value is required.
    pub required: bool,
    /// The display order. Parameters of equal order are sorted by name.
    pub order: i32,
    /// Whether its value applies to one build only.
    pub ephemeral: bool,
}

/// One allowed value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ParameterOption {
    /// For people.
    pub name: String,
    pub description: String,
    pub value: String,
    /// URL or emoji path.
    pub icon: String,
}

json_column!(Parameter);

record! {
    /// A named set of parameter values.
    pub struct Preset {
        pub id: PresetId,
        /// Unique in the version.
        pub name: String,
        pub is_default: bool,
        pub description: String,
        /// URL or emoji path.
        pub icon: String,
        /// The number of prebuilt workspaces.
        pub desired_instances: Option<i64>,
        /// Name and value.
        pub parameters: BTreeMap<String, String>,
        /// Expiration and schedule of the prebuilds, as the daemon reported.
        pub prebuild: serde_json::Value,
    }
}

record! {
    /// An external authentication provider the template needs.
    pub struct ExternalAuth {
        /// The provider's id.
        pub provider_id: String,
        /// Whether the user may skip it.
        pub optional: bool,
    }
}

/// Results of an import that later builds reuse.
#[derive(Clone, PartialEq, Eq)]
pub struct Plan {
    /// Terraform's JSON plan.
    pub plan: Vec<u8>,
    /// The modules as a tar.
    pub module_file_id: Option<FileId>,
    /// Version of the daemon that made it.
    pub provisioner_version: String,
}

statements! { "template_versions";
    INSERT_VARIABLES = sql("insert into template_version_variables
        (template_version_id, position, name, description, type, value, default_value, required, sensitive)
        select $1, cast(item.key as bigint), json_extract(item.value, '$.name'),
        json_extract(item.value, '$.description'), json_extract(item.value, '$.type'),
        json_extract(item.value, '$.value'), json_extract(item.value, '$.default_value'),
        cast(json_extract(item.value, '$.required') as boolean),
        cast(json_extract(item.value, '$.sensitive') as boolean)
        from json_each($2) as item where true
        on conflict (template_version_id, name) do update set position = excluded.position,
        description = excluded.description, type = excluded.type, value = excluded.value,
        default_value = excluded.default_value, required = excluded.required, sensitive = excluded.sensitive");
    LIST_VARIABLES = sql("select template_version_id || ' ' || name as sealed_id, name as id, name, description, type, value, default_value, required, sensitive
        from template_version_variables where template_version_id = $1 order by position");
    INSERT_PARAMETERS = sql("insert into template_version_parameters (template_version_id, position, name, definition)
        select $1, cast(item.key as bigint), json_extract(item.value, '$.name'),
        json_extract(item.value, '$.definition') from json_each($2) as item");
    LIST_PARAMETERS = sql("select name as id, definition from template_version_parameters
        where template_version_id = $1 order by position");
    INSERT_PRESETS = sql("insert into template_version_presets (template_version_id, position, id, name, is_default,
        description, icon, desired_instances, parameters, prebuild)
        select $1, cast(item.key as bigint), json_extract(item.value, '$.id'), json_extract(item.value, '$.name'),
        cast(json_extract(item.value, '$.is_default') as boolean), json_extract(item.value, '$.description'),
        json_extract(item.value, '$.icon'), cast(json_extract(item.value, '$.desired_instances') as bigint),
        json_extract(item.value, '$.parameters'), json_extract(item.value, '$.prebuild')
        from json_each($2) as item");
    LIST_PRESETS = sql("select id, name, is_default, description, icon, desired_instances, parameters, prebuild
        from template_version_presets where template_version_id = $1 order by position");
    DELETE_TAGS = sql("delete from template_version_workspace_tags where template_version_id = $1");
    INSERT_TAGS = sql("insert into template_version_workspace_tags (template_version_id, key, value)
        select $1, json_extract(item.value, '$.key'), json_extract(item.value, '$.value') from json_each($2) as item");
    LIST_TAGS = sql("select key, value from template_version_workspace_tags where template_version_id = $1 order by key");
    INSERT_AUTH = sql("insert into template_version_external_auth (template_version_id, position, provider_id, optional)
        select $1, cast(item.key as bigint), json_extract(item.value, '$.provider_id'),
        cast(json_extract(item.value, '$.optional') as boolean) from json_each($2) as item");
    LIST_AUTH = sql("select provider_id, optional from template_version_external_auth
        where template_version_id = $1 order by position");
    SET_PLAN = sql("insert into template_version_plans
        (template_version_id, plan, module_file_id, provisioner_version, updated_us) values ($1, $2, $3, $4, $5)
        on conflict (template_version_id) do update set plan = excluded.plan,
        module_file_id = excluded.module_file_id, provisioner_version = excluded.provisioner_version,
        updated_us = excluded.updated_us");
    /// Keeps the stored modules.
    SET_PLAN_ALONE = sql("insert into template_version_plans
        (template_version_id, plan, provisioner_version, updated_us) values ($1, $2, '', $3)
        on conflict (template_version_id) do update set plan = excluded.plan,
        provisioner_version = excluded.provisioner_version, updated_us = excluded.updated_us");
    SET_MODULE_FILE = sql("insert into template_version_plans
        (template_version_id, plan, module_file_id, provisioner_version, updated_us) values ($1, $2, $3, '', $4)
        on conflict (template_version_id) do update set module_file_id = excluded.module_file_id,
        updated_us = excluded.updated_us");
    FIND_PLAN = sql("select template_version_id as id, plan, module_file_id, provisioner_version
        from template_version_plans where template_version_id = $1");
    FIND_MODULE_FILE = sql("select module_file_id from template_version_plans where template_version_id = $1");
}

fn rows(version: TemplateVersionId, columns: &[&str], rows: impl Iterator<Item = Vec<Value>>) -> Vec<Value> {
    vec![crate::engine::Column::to_value(&version), batch(columns, rows)]
}

/// Stores the variables. An existing variable gets the new value.
pub async fn update_variables(tx: &mut Tx, version: TemplateVersionId, variables: &[Variable]) -> Result<()> {
    if variables.is_empty() {
        return Ok(());
    }
    // One statement must not change a row twice, so only the last of several equal names is stored.
    let unique: BTreeMap<&str, &Variable> =
        variables.iter().map(|variable| (&*variable.name, variable)).collect();
    let kept = variables.iter().filter(|variable| std::ptr::eq(unique[&*variable.name], *variable));
    let row = |variable: &Variable| {
        let (mut row, sealed_id) = (variable.values(), format!("{version} {}", clean(variable.name.clone())));
        for column in ["value", "default_value"] {
            tx.seal_in("template_version_variables", Variable::COLUMNS, column, &sealed_id, &mut row);
        }
        row
    };
    let rows = rows(version, Variable::COLUMNS, kept.map(row));
    tx.execute_pipelined(&INSERT_VARIABLES, rows, false).await
}

/// The variables in the order of the template.
pub async fn list_variables(tx: &mut Tx, version: TemplateVersionId) -> Result<Vec<Variable>> {
    tx.fetch(&LIST_VARIABLES, values![version]).await?.iter().map(Variable::from_row).collect()
}

/// Stores the rich parameters. Can be called once per version.
///
/// # Errors
/// A conflict on `name`.
pub async fn insert_parameters(
    tx: &mut Tx,
    version: TemplateVersionId,
    parameters: &[Parameter],
) -> Result<()> {
    if parameters.is_empty() {
        return Ok(());
    }
    let mut sorted: Vec<_> = parameters.iter().collect();
    sorted.sort_by_cached_key(|parameter| (parameter.order, parameter.name.to_lowercase()));
    let row = |parameter: &Parameter| values![parameter.name, *parameter];
    let rows = rows(version, &["name", "definition"], sorted.into_iter().map(row));
    tx.execute_pipelined(&INSERT_PARAMETERS, rows, false).await
}

/// The rich parameters by display order, then name.
///
/// # Errors
/// [`crate::Error::Corrupt`].
pub async fn list_parameters(tx: &mut Tx, version: TemplateVersionId) -> Result<Vec<Parameter>> {
    tx.fetch(&LIST_PARAMETERS, values![version]).await?.iter().map(|row| row.get("definition")).collect()
}

/// Stores the presets. Can be called once per version.
///
/// # Errors
/// A conflict on `name`.
pub async fn insert_presets(tx: &mut Tx, version: TemplateVersionId, presets: &[Preset]) -> Result<()> {
    if presets.is_empty() {
        return Ok(());
    }
    let rows = rows(version, Preset::COLUMNS, presets.iter().map(Preset::values));
    tx.execute_pipelined(&INSERT_PRESETS, rows, false).await
}

/// The presets in the order of the template.
pub async fn list_presets(tx: &mut Tx, version: TemplateVersionId) -> Result<Vec<Preset>> {
    tx.fetch(&LIST_PRESETS, values![version]).await?.iter().map(Preset::from_row).collect()
}

/// Replaces the workspace tags. Their values are source text.
pub async fn update_workspace_tags(
    tx: &mut Tx,
    version: TemplateVersionId,
    tags: &BTreeMap<String, String>,
) -> Result<()> {
    tx.execute(&DELETE_TAGS, values![version]).await?;
    if tags.is_empty() {
        return Ok(());
    }
    let row = |(key, value): (&String, &String)| values![*key, *value];
    let rows = rows(version, &["key", "value"], tags.iter().map(row));
    tx.execute(&INSERT_TAGS, rows).await.map(|_| ())
}

pub async fn list_workspace_tags(
    tx: &mut Tx,
    version: TemplateVersionId,
) -> Result<BTreeMap<String, String>> {
    let rows = tx.fetch(&LIST_TAGS, values![version]).await?;
    rows.iter().map(|row| Ok((row.get("key")?, row.get("value")?))).collect()
}

/// Stores the external authentication providers. Can be called once per version.
///
/// # Errors
/// A conflict on `provider_id`.
pub async fn insert_external_auth(
    tx: &mut Tx,
    version: TemplateVersionId,
    providers: &[ExternalAuth],
) -> Result<()> {
    if providers.is_empty() {
        return Ok(());
    }
    let rows = rows(version, ExternalAuth::COLUMNS, providers.iter().map(ExternalAuth::values));
    tx.execute_pipelined(&INSERT_AUTH, rows, false).await
}

/// The external authentication providers in the order of the template.
pub async fn list_external_auth(tx: &mut Tx, version: TemplateVersionId) -> Result<Vec<ExternalAuth>> {
    tx.fetch(&LIST_AUTH, values![version]).await?.iter().map(ExternalAuth::from_row).collect()
}

/// Encrypts the second parameter.
fn seal_plan(tx: &Tx, version: TemplateVersionId, row: &mut [Value]) {
    let plan = std::mem::replace(&mut row[1], Value::NullBytes);
    row[1] = tx.sealed("template_version_plans", "plan", &version.to_string(), plan);
}

/// Stores or replaces the cached plan.
///
/// # Errors
/// [`crate::Error::Reference`] when the module file is missing.
pub async fn update_plan(tx: &mut Tx, version: TemplateVersionId, plan: Plan, now: Timestamp) -> Result<()> {
    let mut row = values![version, plan.plan, plan.module_file_id, plan.provisioner_version, now];
    seal_plan(tx, version, &mut row);
    tx.execute_pipelined(&SET_PLAN, row, false).await
}

/// Stores or replaces the cached plan and keeps the modules.
pub async fn update_plan_alone(
    tx: &mut Tx,
    version: TemplateVersionId,
    plan: &[u8],
    now: Timestamp,
) -> Result<()> {
    let mut row = values![version, plan.to_vec(), now];
    seal_plan(tx, version, &mut row);
    tx.execute_pipelined(&SET_PLAN_ALONE, row, false).await
}

/// Stores or replaces the cached modules and keeps the plan.
///
/// # Errors
/// [`crate::Error::Reference`] when the file is missing.
pub async fn update_module_file(
    tx: &mut Tx,
    version: TemplateVersionId,
    file: FileId,
    now: Timestamp,
) -> Result<()> {
    let mut row = values![version, b"{}".to_vec(), Some(file), now];
    seal_plan(tx, version, &mut row);
    tx.execute(&SET_MODULE_FILE, row).await.map(|_| ())
}

/// The cached plan.
pub async fn find_plan(tx: &mut Tx, version: TemplateVersionId) -> Result<Option<Plan>> {
    let Some(row) = tx.fetch_opt(&FIND_PLAN, values![version]).await? else { return Ok(None) };
    Ok(Some(Plan {
        plan: row.open_bytes("plan")?.unwrap_or_default(),
        module_file_id: row.get("module_file_id")?,
        provisioner_version: row.get("provisioner_version")?,
    }))
}

/// The cached modules, without loading the plan.
pub async fn find_module_file(tx: &mut Tx, version: TemplateVersionId) -> Result<Option<FileId>> {
    let row = tx.fetch_opt(&FIND_MODULE_FILE, values![version]).await?;
    Ok(row.map(|row| row.get("module_file_id")).transpose()?.flatten())
}
