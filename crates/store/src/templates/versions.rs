//! Template versions. The results of their imports are in `version_details.rs`.

use coder_domain::ids::{JobId, OrganizationId, TemplateId, TemplateVersionId, UserId};
use jiff::Timestamp;

use crate::Result;
use crate::engine::{Tx, list as list_value, record, sql, statements, values};

record! {
    /// A version of a template, or one that is not attached to a template yet.
    pub struct Version {
        pub id: TemplateVersionId,
        pub organization_id: OrganizationId,
        /// The template it belongs to.
        pub template_id: Option<TemplateId>,
        /// Unique in the template. Case-sensitive.
        pub name: String,
        /// The message of its author.
        pub message: String,
        /// The template's README.
        pub readme: String,
        /// The import job.
        pub job_id: JobId,
        /// Who pushed it.
        pub created_by: UserId,
        /// The example from which it was created, or empty.
        pub source_example_id: String,
        /// Whether it is hidden.
        pub archived: bool,
        /// Known after the import.
        pub has_ai_task: Option<bool>,
        /// Known after the import.
        pub has_external_agent: Option<bool>,
        pub created_at: Timestamp = "created_us",
        /// When it was last changed.
        pub updated_at: Timestamp = "updated_us",
    }
}

macro_rules! columns {
    () => {
        "id, organization_id, template_id, name, message, readme, job_id, created_by, source_example_id, archived, \
         has_ai_task, has_external_agent, created_us, updated_us"
    };
}

statements! { "template_versions";
    INSERT = sql(concat!("insert into template_versions (", columns!(),
        ") values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"));
    FIND = sql(concat!("select ", columns!(), " from template_versions where id = $1"));
    FIND_MANY = sql(concat!("select ", columns!(), " from template_versions
        where id in (select value from json_each($1))"));
    FIND_BY_JOB = sql(concat!("select ", columns!(), " from template_versions where job_id = $1"));
    FIND_BY_NAME = sql(concat!("select ", columns!(), " from template_versions where template_id = $1 and name = $2"));
    FIND_PREVIOUS = sql(concat!("select ", columns!(), " from template_versions
        where template_id = $1 and (created_us, id) < ($2, $3) order by created_us desc, id desc limit 1"));
    LIST = sql(concat!("select ", columns!(), " from template_versions where template_id = $1
        and ($2 or not archived)
        and (cast($3 as text) is null or (created_us, id) >
            (select after.created_us, after.id from template_versions as after where after.id = $3))
        order by created_us, id limit $4 offset $5"));
    UPDATE = sql("update template_versions set name = $2, message = $3, updated_us = $4 where id = $1");
    ATTACH = sql("update template_versions set template_id = $2, updated_us = $3
        where id = $1 and template_id is null");
    SET_README = sql("update template_versions set readme = $2, updated_us = $3 where id = $1");
    SET_FLAGS = sql("update template_versions set has_ai_task = $2, has_external_agent = $3, updated_us = $4
        where id = $1");
    SET_ARCHIVED = sql("update template_versions set archived = $2, updated_us = $3 where id = $1 and archived <> $2
        and template_id is not null and (not $2 or (
            not exists (select 1 from templates where active_version_id = template_versions.id)
            and not exists (select 1 from workspaces as workspace
                join workspace_builds as build on build.workspace_id = workspace.id
                where not workspace.deleted and build.template_version_id = template_versions.id
                and build.build_number = (select max(newer.build_number) from workspace_builds as newer
                    where newer.workspace_id = workspace.id))))");
}

/// Adds a version. Its job must exist.
///
/// # Errors
/// A conflict on `name` within the template.
pub async fn insert(tx: &mut Tx, version: &Version) -> Result<()> {
    tx.execute_pipelined(&INSERT, version.values(), false).await
}

pub async fn find(tx: &mut Tx, id: TemplateVersionId) -> Result<Option<Version>> {
    tx.fetch_opt(&FIND, values![id]).await?.as_ref().map(Version::from_row).transpose()
}

/// By id.
///
/// # Errors
/// [`crate::Error::NotFound`].
pub async fn get(tx: &mut Tx, id: TemplateVersionId) -> Result<Version> {
    Version::from_row(&tx.fetch_one(&FIND, values![id]).await?)
}

/// Those of `ids` that exist.
pub async fn find_many(tx: &mut Tx, ids: &[TemplateVersionId]) -> Result<Vec<Version>> {
    tx.fetch(&FIND_MANY, vec![list_value(ids.iter().copied())]).await?.iter().map(Version::from_row).collect()
}

/// The version that a job imports.
pub async fn find_by_job(tx: &mut Tx, job: JobId) -> Result<Option<Version>> {
    tx.fetch_opt(&FIND_BY_JOB, values![job]).await?.as_ref().map(Version::from_row).transpose()
}

/// By exact name.
pub async fn find_by_name(tx: &mut Tx, template: TemplateId, name: &str) -> Result<Option<Version>> {
    let row = tx.fetch_opt(&FIND_BY_NAME, values![template, name.to_owned()]).await?;
    row.as_ref().map(Version::from_row).transpose()
}

/// The version before this one in its template.
pub async fn find_previous(tx: &mut Tx, version: &Version) -> Result<Option<Version>> {
    let row =
        tx.fetch_opt(&FIND_PREVIOUS, values![version.template_id, version.created_at, version.id]).await?;
    row.as_ref().map(Version::from_row).transpose()
}

/// Which page of a template's versions.
#[derive(Clone, Copy, Debug, Default)]
pub struct VersionPage {
    /// Include archived versions.
    pub include_archived: bool,
    /// Only versions after this one.
    pub after: Option<TemplateVersionId>,
    /// At most this many; 0 for all.
    pub limit: i64,
    /// Leave out this many.
    pub offset: i64,
}

/// The versions of a template, oldest first.
pub async fn list(tx: &mut Tx, template: TemplateId, page: VersionPage) -> Result<Vec<Version>> {
    let limit = if page.limit == 0 { crate::config::UNLIMITED } else { page.limit };
    let parameters = values![template, page.include_archived, page.after, limit, page.offset];
    tx.fetch(&LIST, parameters).await?.iter().map(Version::from_row).collect()
}

/// Changes name and message.
///
/// # Errors
/// A conflict on `name`; [`crate::Error::Stale`] when it does not exist any more.
pub async fn update(
    tx: &mut Tx,
    id: TemplateVersionId,
    name: &str,
    message: &str,
    now: Timestamp,
) -> Result<()> {
    tx.change_one(&UPDATE, values![id, name.to_owned(), message.to_owned(), now]).await
}

/// Attaches a version to a template.
///
/// # Errors
/// A conflict on `name` within the template; [`crate::Error::Stale`] when it belongs to a template already.
pub async fn update_template(
    tx: &mut Tx,
    id: TemplateVersionId,
    template: TemplateId,
    now: Timestamp,
) -> Result<()> {
    tx.change_one(&ATTACH, values![id, template, now]).await
}

/// Stores the README found by the import.
///
/// # Errors
/// [`crate::Error::Stale`] when the version does not exist any more.
pub async fn update_readme(tx: &mut Tx, id: TemplateVersionId, readme: &str, now: Timestamp) -> Result<()> {
    tx.execute_pipelined(&SET_README, values![id, readme.to_owned(), now], true).await
}

/// Stores the flags that the import found.
///
/// # Errors
/// [`crate::Error::Stale`] when the version does not exist any more.
pub async fn update_flags(
    tx: &mut Tx,
    id: TemplateVersionId,
    has_ai_task: bool,
    has_external_agent: bool,
    now: Timestamp,
) -> Result<()> {
    tx.execute_pipelined(&SET_FLAGS, values![id, has_ai_task, has_external_agent, now], true).await
}

/// Archives or unarchives a version.
///
/// # Errors
/// [`crate::Error::Stale`] when it is so already, belongs to no template, or is to be archived while it is active or
/// used by a workspace's latest build.
pub async fn update_archived(
    tx: &mut Tx,
    id: TemplateVersionId,
    archived: bool,
    now: Timestamp,
) -> Result<()> {
    tx.change_one(&SET_ARCHIVED, values![id, archived, now]).await
}
