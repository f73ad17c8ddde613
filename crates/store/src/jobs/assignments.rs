//! Reads everything for the message of a job, or for the end of a job, in one statement.

use std::collections::BTreeMap;

use coder_domain::build::Transition;
use coder_domain::ids::{
    BuildId, FileId, JobId, OrganizationId, TemplateId, TemplateVersionId, UserId, WorkspaceId,
};
use coder_domain::secret::Secret;

use super::job::{Job, job_columns};
use crate::encryption::keys::Owner;
use crate::engine::{Tx, record, sql, statements, values};
use crate::templates::Settings;
use crate::users::LoginType;
use crate::workspaces::builds::{Build, build_columns, read_parameter};
use crate::{Result, files};

/// The archive with a template's source.
pub struct Archive {
    /// The length of the archive.
    pub size: i64,
    /// The content, when it is stored in one row; otherwise it must be read part by part.
    pub data: Option<Vec<u8>>,
}

/// A job with everything that its message contains.
pub struct Assignment {
    pub job: Job,
    /// The username of the initiator; none when the account was deleted.
    pub initiator: Option<String>,
    /// None when the file was deleted.
    pub archive: Option<Archive>,
    /// Set for build jobs.
    pub context: Option<BuildContext>,
    /// Terraform's state, if the job is a build and has one.
    pub state: Option<Vec<u8>>,
}

record! {
    /// The workspace, owner and template of a build.
    pub struct BuildContext {
        pub build_id: BuildId,
        pub transition: Transition,
        /// From 1.
        pub build_number: i64,
        pub workspace_id: WorkspaceId,
        pub workspace_name: String,
        pub organization_id: OrganizationId,
        pub owner_id: UserId,
        /// None when the account was deleted.
        pub username: Option<String>,
        /// The owner's email address.
        pub email: Option<String>,
        /// The owner's full name.
        pub name: Option<String>,
        /// The owner's login type.
        pub login_type: Option<LoginType>,
        /// The owner's site roles.
        pub site_roles: Option<Vec<String>>,
        /// The owner's roles in the organization; none when the owner is not a member.
        pub member_roles: Option<Vec<String>>,
        /// The owner's public Git SSH key, if there is one.
        pub public_key: Option<String>,
        /// The owner's private Git SSH key, if there is one.
        pub private_key: Option<Secret>,
        pub template_id: TemplateId,
        pub template_name: String,
        pub version_id: TemplateVersionId,
        pub version_name: String,
        /// Whether the version has variables.
        pub has_variables: bool,
        /// The archive of the version's modules.
        pub module_file_id: Option<FileId>,
    }
}

statements! { "provisioner_jobs";
    GET = sql(concat!("select ", job_columns!(), ", build.id as build_id, build.transition, build.build_number, workspace.id as workspace_id,
        workspace.name as workspace_name, workspace.organization_id, workspace.owner_id, owner.username, owner.email,
        owner.name, owner.login_type, owner.site_roles, member.roles as member_roles, pair.public_key, pair.private_key,
        template.id as template_id, template.name as template_name, version.id as version_id,
        version.name as version_name, exists (select 1 from template_version_variables as variable
            where variable.template_version_id = version.id) as has_variables,
        plan.module_file_id, kept.state, initiator.username as initiator, source.size_bytes as archive_bytes, source.in_parts,
        source.data as archive
        from provisioner_jobs as job join tag_sets as interned on interned.id = job.tag_set_id
        left join users as initiator on initiator.id = job.initiator_id
        left join files as source on source.id = job.file_id
        left join workspace_builds as build on build.id = job.workspace_build_id
        left join workspaces as workspace on workspace.id = build.workspace_id
        left join users as owner on owner.id = workspace.owner_id and not owner.deleted
        left join organization_members as member
            on member.organization_id = workspace.organization_id and member.user_id = workspace.owner_id
        left join git_ssh_keys as pair on pair.user_id = workspace.owner_id
        left join templates as template on template.id = workspace.template_id
        left join template_versions as version on version.id = build.template_version_id
        left join template_version_plans as plan on plan.template_version_id = build.template_version_id
        left join workspace_build_states as kept on kept.workspace_build_id = build.id
        where job.id = $1"));
    PARAMETERS = sql("select false as earlier, own.workspace_build_id || ' ' || own.name as sealed_id, own.name, own.value from workspace_build_parameters as own
        where own.workspace_build_id = $1
        union all select true as earlier, theirs.workspace_build_id || ' ' || theirs.name as sealed_id, theirs.name,
        theirs.value from workspace_builds as build
        join workspace_build_parameters as theirs on theirs.workspace_build_id = build.id
        where build.workspace_id = $2 and build.build_number = $3");
    ENDING = sql(concat!("select ", job_columns!(), ", ", build_columns!(), ", workspace.ttl_ms, workspace.autostart_schedule,
        template.settings, quiet.schedule as quiet_hours
        from provisioner_jobs as job join tag_sets as interned on interned.id = job.tag_set_id
        left join workspace_builds as build on build.id = job.workspace_build_id
        left join workspaces as workspace on workspace.id = build.workspace_id
        left join templates as template on template.id = workspace.template_id
        left join user_quiet_hours as quiet on quiet.user_id = workspace.owner_id where job.id = $1"));
}

/// A job with everything that its message contains.
///
/// # Errors
/// [`Error::NotFound`](crate::Error::NotFound), and [`Error::RowKeyMissing`](crate::Error::RowKeyMissing) when the
/// state is encrypted with a key that is not configured.
pub async fn get(tx: &mut Tx, id: JobId) -> Result<Assignment> {
    let row = tx.fetch_one(&GET, values![id]).await?;
    let mut parts = row.parts();
    let job: Job = parts.next()?;
    let context: Option<BuildContext> = parts.next_joined()?;
    let state = match (&context, row.get::<Option<Vec<u8>>>("state")?) {
        (Some(context), Some(stored)) => Some(tx.state_keys().open(Owner::Build(context.build_id), stored)?),
        _ => None,
    };
    let archive = match row.get::<Option<i64>>("archive_bytes")? {
        Some(size) if row.get("in_parts")? => Some(Archive { size, data: None }),
        Some(size) => Some(Archive { size, data: Some(files::open(tx, job.file_id, row.get("archive")?)?) }),
        None => None,
    };
    Ok(Assignment { job, context, state, initiator: row.get("initiator")?, archive })
}

/// The parameters of a build and of the previous build of the workspace.
pub async fn list_parameters(
    tx: &mut Tx,
    context: &BuildContext,
) -> Result<(BTreeMap<String, String>, BTreeMap<String, String>)> {
    let rows = values![context.build_id, context.workspace_id, context.build_number - 1];
    let (mut own, mut earlier) = (BTreeMap::new(), BTreeMap::new());
    for row in tx.fetch(&PARAMETERS, rows).await? {
        let of = if row.get("earlier")? { &mut earlier } else { &mut own };
        of.insert(row.get("name")?, read_parameter(&row, "value")?);
    }
    Ok((own, earlier))
}

/// A job that may be about to end.
#[derive(Clone, Debug)]
pub struct JobWithBuild {
    pub job: Job,
    pub build: Option<Build>,
    pub schedules: Schedules,
}

record! {
    /// What decides when the workspace of a build stops.
    pub struct Schedules {
        /// The workspace's time to live in milliseconds.
        pub ttl_ms: Option<i64>,
        /// The workspace's autostart schedule.
        pub autostart_schedule: Option<String>,
        /// The settings of its template.
        pub settings: Option<Settings>,
        /// The quiet hours that its owner chose.
        pub quiet_hours: Option<String>,
    }
}

/// A job with its build. For the end of a job.
pub async fn find_with_build(tx: &mut Tx, id: JobId) -> Result<Option<JobWithBuild>> {
    let Some(row) = tx.fetch_opt(&ENDING, values![id]).await? else { return Ok(None) };
    let mut parts = row.parts();
    let (job, build) = (parts.next()?, parts.next_joined()?);
    Ok(Some(JobWithBuild { job, build, schedules: parts.next()? }))
}
