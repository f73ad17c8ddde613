//! Creates a version: the row, and the job that imports it, in one transaction.

use std::collections::BTreeMap;

use axum::extract::State;
use coder_api::versions::{CreateTemplateVersionRequest, StorageMethod, TemplateVersion};
use coder_domain::ids::{JobId, TemplateVersionId};
use coder_domain::job::Type;
use coder_domain::rbac::Action;
use coder_domain::tags::{self, JobRequirements};
use coder_domain::{Timestamp, names};
use coder_store::jobs::{Job, NewJob, queue::QueuePosition};
use coder_store::templates::versions;
use coder_store::{Document, Tx, files, jobs, transaction};
use http::StatusCode;
use serde_json::json;

use super::{tags as source_tags, view};
use crate::audit::job_end::AuditContext;
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result, body};
use crate::owners;
use crate::routes::files::find::usable;
use crate::routes::{announce, matching_daemons, organizations, random_name, templates, users};

/// Longest message, in bytes.
const MESSAGE_BYTES: usize = 1 << 20;

/// `POST /organizations/{organization}/templateversions`
///
/// The source is read here for its `coder_workspace_tags`: they decide who can import it (scheduling-and-auth TAG-11).
pub async fn create(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    Json(request): Json<CreateTemplateVersionRequest>,
) -> Result<body::Created<TemplateVersion>> {
    let [organization] = names.take()?;
    let mut tx = app.store.reader().await?;
    let organization = organizations::id_of(&app, &mut tx, &caller, &organization).await?;
    // A version of an existing template needs the right to change it, which is checked below.
    match request.template_id {
        Some(_) => {}
        None => caller.require(Action::Create, templates::find::object(organization))?,
    }
    check(&request)?;
    let file = source(&mut tx, &caller, &request).await?;
    let mut template = None;
    if let Some(id) = request.template_id {
        let found = templates::find::by_id(&mut tx, &caller, id, Action::Update).await?;
        if found.organization_id != organization {
            return Err(Error::new(StatusCode::NOT_FOUND, "Template does not exist."));
        }
        template = Some(found);
    }
    let now = app.now();
    let version_id = TemplateVersionId::random();
    let flow = source_tags::flow(template.as_ref());
    let variables = source_tags::variables(&mut tx, template.as_ref(), &request.user_variable_values).await?;
    let file_id = file.id;
    // Parsing and evaluating take time, so the connection is returned first.
    drop(tx);
    let place = app.memory.work_place(caller.user.id).await?;
    let read = source_tags::read(&app.store, &file).await?;
    let requester = (caller.user.id, owners::caller(&caller, organization));
    let tags = source_tags::for_import(read, flow, variables, requester, &request.tags, now).await?;
    drop(place);
    let mut job = NewJob {
        id: JobId::random(),
        organization_id: organization,
        initiator_id: caller.user.id,
        automatic: false,
        kind: Type::TemplateVersionImport,
        provisioner: request.provisioner.as_str().to_owned(),
        file_id,
        tags,
        template_version_id: Some(version_id),
        workspace_build_id: None,
        input: Document(json!({
            "template_id": request.template_id,
            "template_version_id": version_id,
            "user_variable_values": request.user_variable_values,
        })),
        trace_metadata: BTreeMap::new(),
    };
    let demand = JobRequirements { organization, provisioner: &job.provisioner, tags: &job.tags };
    let mut tx = app.store.reader().await?;
    let matching = matching_daemons::count(&app, &mut tx, &demand, now).await?;
    drop(tx);
    let chosen = !request.name.is_empty();
    let mut version = versions::Version {
        id: version_id,
        organization_id: organization,
        template_id: request.template_id,
        name: if chosen { request.name } else { random_name::generate() },
        message: request.message,
        readme: String::new(),
        job_id: job.id,
        created_by: caller.user.id,
        source_example_id: String::new(),
        archived: false,
        has_ai_task: None,
        has_external_agent: None,
        created_at: now,
        updated_at: now,
    };
    loop {
        AuditContext::new(&version.name, "", &caller.origin).store_in(&mut job.input.0);
        match insert(&app, &caller, &job, &version, now).await {
            Ok(()) => break,
            Err(error) if error.is_conflict_on("template_versions", "name") => {
                if chosen {
                    return Err(Error::name_taken(format!(
                        "A template version with name {:?} already exists for this template.",
                        version.name
                    )));
                }
                version.name = random_name::generate();
            }
            // The file was purged meanwhile.
            Err(coder_store::Error::Reference(_)) => return Err(no_file()),
            Err(error) => return Err(error.into()),
        }
    }
    announce::job_waiting(&app, &job);
    if matching.count == 0 {
        tracing::warn!(job_id = %job.id, tags = %job.tags, "no matching provisioners found for job");
    } else if matching.available == 0 {
        tracing::warn!(job_id = %job.id, tags = %job.tags, "no active provisioners found for job");
    }
    let author = users::view::minimal(&caller.user);
    Ok(body::Created(view::one(
        version,
        &waiting(job, now),
        QueuePosition::default(),
        author,
        Some(matching),
    )))
}

async fn insert(
    app: &App,
    caller: &Caller,
    job: &NewJob,
    version: &versions::Version,
    now: Timestamp,
) -> std::result::Result<(), coder_store::Error> {
    transaction!(app.store, coder_store::Error, |tx| {
        jobs::insert_with_tag_set(tx, job, app.scheduler.tag_sets().known_id(&job.tags), now).await?;
        versions::insert(tx, version).await?;
        Event::new(Verb::Create, Kind::TemplateVersion, version.id.0, version.name.as_str())
            .in_organization(version.organization_id)
            .change("template_id", (), version.template_id)
            .change("file_id", (), job.file_id)
            .change("provisioner_tags", (), job.tags.as_map())
            .by(tx, caller, now)
            .await
    })
}

/// A job that was just inserted, without reading it back.
pub fn waiting(job: NewJob, now: Timestamp) -> Job {
    Job {
        id: job.id,
        organization_id: job.organization_id,
        initiator_id: job.initiator_id,
        kind: job.kind,
        provisioner: job.provisioner,
        file_id: job.file_id,
        tag_set_id: 0,
        tags: job.tags,
        prebuild: false,
        automatic: job.automatic,
        template_version_id: job.template_version_id,
        workspace_build_id: job.workspace_build_id,
        input: Document::default(),
        trace_metadata: job.trace_metadata,
        created_at: now,
        updated_at: now,
        started_at: None,
        canceled_at: None,
        completed_at: None,
        error: String::new(),
        error_code: String::new(),
        worker_id: None,
        session_hash: None,
        token_hash: None,
        attempt: 0,
        lost_at: None,
        logs_sequence: 0,
        logs_last_id: 0,
        logs_bytes: 0,
        logs_overflowed: false,
        program_product: String::new(),
        program_version: String::new(),
    }
}

fn check(request: &CreateTemplateVersionRequest) -> Result<()> {
    if !request.name.is_empty() {
        names::template_version(&request.name)
            .map_err(|e| Error::invalid("name", format!("The name {e}.")))?;
    }
    if request.message.len() > MESSAGE_BYTES {
        return Err(Error::invalid("message", "The message must be at most 1 MiB."));
    }
    if request.storage_method != StorageMethod::File {
        return Err(Error::invalid("storage_method", "Only the storage method \"file\" is supported."));
    }
    if !request.provisioner.is_known() {
        return Err(Error::invalid("provisioner", "The provisioner must be \"terraform\" or \"echo\"."));
    }
    if request.file_id.is_some() && !request.example_id.is_empty() {
        return Err(Error::bad_request("You cannot specify both an example_id and a file_id."));
    }
    tags::validate(&request.tags).map_err(|e| Error::invalid("tags", e))
}

async fn source(
    tx: &mut Tx,
    caller: &Caller,
    request: &CreateTemplateVersionRequest,
) -> Result<files::FileInfo> {
    if !request.example_id.is_empty() {
        return Err(Error::bad_request("Example not found.").field(
            "example_id",
            "The server keeps no examples; \"coder templates init\" writes one to push.",
        ));
    }
    let id = request.file_id.ok_or_else(|| Error::invalid("file_id", "A file is required."))?;
    usable(tx, caller, id).await?.ok_or_else(no_file)
}

fn no_file() -> Error {
    Error::new(StatusCode::NOT_FOUND, "File not found.").field("file_id", "File not found")
}
