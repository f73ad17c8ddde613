//! The inputs of a new build, read in three statements: the workspace with its template and its last build, the version
//! with its import, and the parameters.

use std::collections::BTreeMap;

use coder_domain::ids::{BuildId, TemplateVersionId, WorkspaceId};
use jiff::Timestamp;

use crate::Result;
use crate::encryption::keys::MARK;
use crate::engine::{Tx, record, sql, statements, values};
use crate::jobs::job::{Job, job_columns};
use crate::templates::Template;
use crate::templates::version_details::Parameter;
use crate::templates::versions::Version;
use crate::workspaces::builds::{Build, build_columns, read_parameter};
use crate::workspaces::{Workspace, workspace_columns};

/// A workspace with the inputs of its next build.
#[derive(Clone, Debug)]
pub struct BuildInputs {
    /// May be deleted.
    pub workspace: Workspace,
    pub template: Template,
    /// The previous build.
    pub previous: PreviousBuild,
}

/// The build before a new one.
#[derive(Clone, Debug, Default)]
pub struct PreviousBuild {
    pub last: Option<Build>,
    /// When the last build's job ended.
    pub last_ended_at: Option<Timestamp>,
    /// Whether the last build's state is encrypted; none when the build has no state.
    pub last_state_sealed: Option<bool>,
    /// The username of the workspace's owner; empty when the account was deleted.
    pub owner_name: String,
    /// The URL of the owner's avatar.
    pub owner_avatar_url: String,
}

record! {
    struct PreviousBuildFields {
        pub last_ended_at: Option<Timestamp> = "last_ended_us",
        pub last_state_sealed: Option<bool>,
        pub owner_name: Option<String>,
        pub owner_avatar_url: Option<String>,
    }
}

statements! { "workspaces";
    FIND = sql(concat!("select ", workspace_columns!(), ", template.id, template.organization_id, template.name,
        template.display_name, template.description, template.icon, template.provisioner, template.active_version_id,
        template.created_by, template.deprecated, template.settings, template.created_us, template.updated_us,
        template.deleted, ", build_columns!(), ", last_job.completed_us as last_ended_us,
        (select substr(kept.state, 1, 5) = $2 from workspace_build_states as kept
            where kept.workspace_build_id = build.id) as last_state_sealed,
        owner.username as owner_name, owner.avatar_url as owner_avatar_url
        from workspaces as workspace join templates as template on template.id = workspace.template_id
        left join users as owner on owner.id = workspace.owner_id and not owner.deleted
        left join workspace_builds as build on build.workspace_id = workspace.id
            and build.build_number = (select max(newest.build_number) from workspace_builds as newest
                where newest.workspace_id = $1)
        left join provisioner_jobs as last_job on last_job.id = build.job_id
        where workspace.id = $1"));
    FIND_VERSION = sql(concat!("select version.id, version.organization_id, version.template_id, version.name,
        version.message, version.readme, version.job_id, version.created_by, version.source_example_id,
        version.archived, version.has_ai_task, version.has_external_agent, version.created_us, version.updated_us, ",
        job_columns!(), " from template_versions as version join provisioner_jobs as job on job.id = version.job_id
        join tag_sets as interned on interned.id = job.tag_set_id where version.id = $1"));
    PARAMETERS = sql("select 'definition' as kind, '' as sealed_id, known.position, known.name, known.definition as content
        from template_version_parameters as known where known.template_version_id = $1
        union all select 'value' as kind, given.workspace_build_id || ' ' || given.name as sealed_id, 0 as position,
        given.name, given.value as content
        from workspace_build_parameters as given where given.workspace_build_id = $2
        union all select 'preset' as kind, '' as sealed_id, preset.position, preset.name, '' as content
        from template_version_presets as preset where preset.template_version_id = $1 order by 3");
}

/// A workspace with the inputs of its next build.
pub async fn find(tx: &mut Tx, id: WorkspaceId) -> Result<Option<BuildInputs>> {
    let Some(row) = tx.fetch_opt(&FIND, values![id, MARK.to_vec()]).await? else { return Ok(None) };
    let mut parts = row.parts();
    let (workspace, template, last) = (parts.next()?, parts.next()?, parts.next_joined()?);
    let PreviousBuildFields { last_ended_at, last_state_sealed, owner_name, owner_avatar_url } =
        parts.next()?;
    let (owner_name, owner_avatar_url) =
        (owner_name.unwrap_or_default(), owner_avatar_url.unwrap_or_default());
    let previous = PreviousBuild { last, last_ended_at, last_state_sealed, owner_name, owner_avatar_url };
    Ok(Some(BuildInputs { workspace, template, previous }))
}

/// A version with its import.
pub async fn find_version(tx: &mut Tx, id: TemplateVersionId) -> Result<Option<(Version, Job)>> {
    let Some(row) = tx.fetch_opt(&FIND_VERSION, values![id]).await? else { return Ok(None) };
    let mut parts = row.parts();
    Ok(Some((parts.next()?, parts.next()?)))
}

/// The parameters of a version, and their values in a build.
#[derive(Debug, Default)]
pub struct BuildParameters {
    /// In display order.
    pub definitions: Vec<Parameter>,
    pub values: BTreeMap<String, String>,
    pub has_presets: bool,
}

/// The parameters of a version and their values in a build.
///
/// # Errors
/// [`crate::Error::Corrupt`].
pub async fn list_parameters(
    tx: &mut Tx,
    version: TemplateVersionId,
    build: Option<BuildId>,
) -> Result<BuildParameters> {
    let mut found = BuildParameters::default();
    for row in tx.fetch(&PARAMETERS, values![version, build]).await? {
        match row.get::<String>("kind")?.as_str() {
            "definition" => found.definitions.push(row.get("content")?),
            "value" => drop(found.values.insert(row.get("name")?, read_parameter(&row, "content")?)),
            _ => found.has_presets = true,
        }
    }
    Ok(found)
}
