//! Templates.

pub mod version_details;
pub mod versions;

use coder_domain::ids::{OrganizationId, TemplateId, TemplateVersionId, UserId};
use coder_domain::schedule::{TemplateRules, Weekdays};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::{
    Tx, forks, json_column, list as list_value, optional_list, record, sql, statements, values,
};

/// The settings of a template. They are read and written as a whole and never searched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The default time to live of workspaces in milliseconds; 0 for no limit.
    pub default_ttl_ms: i64,
    /// How much activity prolongs a workspace, in milliseconds.
    pub activity_bump_ms: i64,
    /// Stop a failed workspace after this time in milliseconds; 0 for never.
    pub failure_ttl_ms: i64,
    /// Make an unused workspace dormant after this time in milliseconds; 0 for never.
    pub time_til_dormant_ms: i64,
    /// Delete a dormant workspace after this time in milliseconds; 0 for never.
    pub time_til_dormant_autodelete_ms: i64,
    /// Days on which workspaces must stop, in lower-case English.
    pub autostop_days: Vec<String>,
    /// The interval of these stops in weeks.
    pub autostop_weeks: i64,
    /// Days on which workspaces may start by schedule.
    pub autostart_days: Vec<String>,
    /// Whether owners may set a start schedule.
    pub allow_user_autostart: bool,
    /// Whether owners may change the time to live.
    pub allow_user_autostop: bool,
    /// Whether owners may cancel builds.
    pub allow_user_cancel_workspace_jobs: bool,
    /// Whether members must use the active version.
    pub require_active_version: bool,
    /// `owner`, `authenticated`, `organization` or `public`.
    pub max_port_share_level: String,
    /// `simple` or `passthru`.
    pub cors_behavior: String,
    /// Whether the older parameter flow is used.
    pub use_classic_parameter_flow: bool,
    /// Whether all members of the organization may use it.
    pub everyone_may_use: bool,
}

impl Default for Settings {
    /// The settings of a new template (http-api 6.2).
    fn default() -> Self {
        let days = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
        Self {
            default_ttl_ms: 0,
            activity_bump_ms: 3_600_000,
            failure_ttl_ms: 0,
            time_til_dormant_ms: 0,
            time_til_dormant_autodelete_ms: 0,
            autostop_days: Vec::new(),
            autostop_weeks: 1,
            autostart_days: days.map(str::to_owned).to_vec(),
            allow_user_autostart: true,
            allow_user_autostop: true,
            allow_user_cancel_workspace_jobs: false,
            require_active_version: false,
            max_port_share_level: "public".to_owned(),
            cors_behavior: "simple".to_owned(),
            use_classic_parameter_flow: false,
            everyone_may_use: true,
        }
    }
}

json_column!(Settings);

impl Settings {
    /// The rules about the schedules of workspaces.
    #[must_use]
    pub fn schedule_rules(&self) -> TemplateRules {
        let millis = |value: i64| SignedDuration::from_millis(value.max(0));
        let days = |names: &[String]| Weekdays::from_names(names.iter().map(String::as_str));
        TemplateRules {
            default_ttl: millis(self.default_ttl_ms),
            activity_bump: millis(self.activity_bump_ms),
            failure_ttl: millis(self.failure_ttl_ms),
            time_til_dormant: millis(self.time_til_dormant_ms),
            time_til_deletion: millis(self.time_til_dormant_autodelete_ms),
            autostart_days: days(&self.autostart_days),
            autostop_days: days(&self.autostop_days),
            autostop_weeks: self.autostop_weeks,
            allow_user_autostart: self.allow_user_autostart,
            allow_user_autostop: self.allow_user_autostop,
        }
    }
}

record! {
    pub struct Template {
        pub id: TemplateId,
        pub organization_id: OrganizationId,
        /// Unique in the organization, regardless of case.
        pub name: String,
        pub display_name: String,
        pub description: String,
        /// URL or emoji path.
        pub icon: String,
        /// `terraform`.
        pub provisioner: String,
        /// New workspaces are built from this version.
        pub active_version_id: TemplateVersionId,
        /// Who made it.
        pub created_by: UserId,
        /// The deprecation message; empty when the template is not deprecated.
        pub deprecated: String,
        /// Policy.
        pub settings: Settings,
        pub created_at: Timestamp = "created_us",
        /// When it was last changed.
        pub updated_at: Timestamp = "updated_us",
        pub deleted: bool,
    }
}

/// Selects the templates of a list. All conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct TemplateFilter {
    /// One of these organizations.
    pub organization_ids: Option<Vec<OrganizationId>>,
    /// Exactly this name, regardless of case.
    pub exact_name: Option<String>,
    /// Part of the name, regardless of case.
    pub name: Option<String>,
    /// Exactly this display name, regardless of case.
    pub exact_display_name: Option<String>,
    /// Part of the display name (of the name if there is none), regardless of case.
    pub display_name: Option<String>,
    /// Only these.
    pub ids: Option<Vec<TemplateId>>,
    pub deprecated: Option<bool>,
    /// Who made it.
    pub created_by: Option<UserId>,
}

macro_rules! columns {
    () => {
        "id, organization_id, name, display_name, description, icon, provisioner, active_version_id, created_by, \
         deprecated, settings, created_us, updated_us, deleted"
    };
}

statements! { "templates";
    INSERT = sql(concat!("insert into templates (", columns!(), ", name_lower, display_name_lower)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)"));
    FIND = sql(concat!("select ", columns!(), " from templates where id = $1"));
    FIND_MANY = sql(concat!("select ", columns!(), " from templates where id in (select value from json_each($1))"));
    FIND_BY_NAME = sql(concat!("select ", columns!(), " from templates
        where organization_id = $1 and name_lower = $2 and not deleted"));
    LIST = sql(concat!("select ", columns!(), " from templates where not deleted
        and (cast($1 as text) is null or organization_id in (select value from json_each($1)))
        and (cast($2 as text) is null or name_lower = $2)
        and (cast($3 as text) is null or instr(name_lower, $3) > 0)
        and (cast($4 as text) is null or display_name_lower = $4)
        and (cast($5 as text) is null or instr(case when display_name = '' then name_lower else display_name_lower end, $5) > 0)
        and (cast($6 as text) is null or id in (select value from json_each($6)))
        and (cast($7 as boolean) is null or (deprecated <> '') = $7)
        and (cast($8 as text) is null or created_by = $8)
        order by name_lower, id"));
    UPDATE = sql("update templates set name = $2, name_lower = $3, display_name = $4, description = $5, icon = $6,
        deprecated = $7, settings = $8, updated_us = $9, display_name_lower = $10 where id = $1 and not deleted");
    SET_ACTIVE = sql("update templates set active_version_id = $2, updated_us = $3 where id = $1 and not deleted
        and exists (select 1 from template_versions as version where version.id = $2 and version.template_id = $1)");
    LOCK = sql("update templates set updated_us = updated_us where id = $1");
    DELETE = sql("update templates set deleted = true, updated_us = $2 where id = $1 and not deleted
        and not exists (select 1 from workspaces where template_id = $1 and not deleted)");
}

/// Adds a template. Attach its first version in the same transaction
/// ([`versions::update_template`](crate::templates::versions::update_template)).
///
/// # Errors
/// A conflict on `name_lower`.
pub async fn insert(tx: &mut Tx, template: &Template) -> Result<()> {
    let mut row = template.values();
    row.extend(values![template.name.to_lowercase(), template.display_name.to_lowercase()]);
    tx.execute(&INSERT, row).await.map(|_| ())
}

/// By id, also when it is deleted.
pub async fn find(tx: &mut Tx, id: TemplateId) -> Result<Option<Template>> {
    tx.fetch_opt(&FIND, values![id]).await?.as_ref().map(Template::from_row).transpose()
}

/// The existing templates of `ids`, including deleted ones.
pub async fn find_many(tx: &mut Tx, ids: &[TemplateId]) -> Result<Vec<Template>> {
    tx.fetch(&FIND_MANY, vec![list_value(ids.iter().copied())])
        .await?
        .iter()
        .map(Template::from_row)
        .collect()
}

/// Finds a template that is not deleted by name, regardless of case.
pub async fn find_by_name(tx: &mut Tx, organization: OrganizationId, name: &str) -> Result<Option<Template>> {
    let row = tx.fetch_opt(&FIND_BY_NAME, values![organization, name.to_lowercase()]).await?;
    row.as_ref().map(Template::from_row).transpose()
}

/// The templates that match a filter, by name.
pub async fn list(tx: &mut Tx, filter: &TemplateFilter) -> Result<Vec<Template>> {
    let lower = |text: &Option<String>| text.as_ref().map(|text| text.to_lowercase());
    let mut parameters = vec![optional_list(filter.organization_ids.as_deref())];
    parameters.extend(values![
        lower(&filter.exact_name),
        lower(&filter.name),
        lower(&filter.exact_display_name),
        lower(&filter.display_name),
    ]);
    parameters.push(optional_list(filter.ids.as_deref()));
    parameters.extend(values![filter.deprecated, filter.created_by]);
    tx.fetch(&LIST, parameters).await?.iter().map(Template::from_row).collect()
}

/// Changes names, description, icon, deprecation and settings.
///
/// # Errors
/// A conflict on `name_lower`; [`crate::Error::Stale`] when it does not exist any more.
pub async fn update(tx: &mut Tx, changed: &Template) -> Result<()> {
    let row = values![
        changed.id,
        changed.name,
        changed.name.to_lowercase(),
        changed.display_name,
        changed.description,
        changed.icon,
        changed.deprecated,
        changed.settings,
        changed.updated_at,
        changed.display_name.to_lowercase(),
    ];
    tx.change_one(&UPDATE, row).await
}

/// Sets the active version.
///
/// # Errors
/// [`crate::Error::Stale`] when the template does not exist any more or the version belongs to another one.
pub async fn update_active_version(
    tx: &mut Tx,
    id: TemplateId,
    version: TemplateVersionId,
    now: Timestamp,
) -> Result<()> {
    tx.change_one(&SET_ACTIVE, values![id, version, now]).await
}

/// Whether the template exists. If so, it is not deleted before this transaction ends: call it before adding what belongs to
/// it.
pub async fn keep(tx: &mut Tx, id: TemplateId) -> Result<bool> {
    tx.fetch_one(&forks::KEEP_TEMPLATE, values![id]).await?.get("found")
}

/// Locks a template until the end of the transaction: transactions that keep or change it wait, and what is read from here
/// on is what earlier ones committed.
pub async fn lock(tx: &mut Tx, id: TemplateId) -> Result<()> {
    tx.execute(&LOCK, values![id]).await.map(|_| ())
}

/// Marks a template as deleted. Its name can be used again. [`lock`] it before.
///
/// # Errors
/// [`crate::Error::Stale`] when it does not exist any more or workspaces still use it.
pub async fn delete(tx: &mut Tx, id: TemplateId, now: Timestamp) -> Result<()> {
    tx.change_one(&DELETE, values![id, now]).await
}
