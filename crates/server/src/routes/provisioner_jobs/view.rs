//! Loads provisioner jobs and converts them to the API type.

use coder_api::jobs::{ProvisionerJob, ProvisionerJobMetadata};
use coder_domain::ids::OrganizationId;
use coder_domain::rbac::{Object, Resource};
use coder_domain::tags::{DaemonCapabilities, JobRequirements, matches};
use coder_store::jobs::list::{JobFilter, ListedJob};
use coder_store::jobs::queue::{self, QueuePosition};
use coder_store::{Tx, daemons};

use crate::routes::jobs;

pub(super) const fn object(organization: OrganizationId) -> Object {
    Object::in_organization(Resource::ProvisionerJob, organization)
}

/// The jobs that match a filter. The queue is that of the deployment, and every row contains its size (http-api 5.5).
pub(super) async fn load(
    tx: &mut Tx,
    organization: OrganizationId,
    filter: &JobFilter,
    limit: i64,
) -> Result<Vec<ProvisionerJob>, coder_store::Error> {
    let rows = coder_store::jobs::list::list(tx, filter, limit).await?;
    let ids: Vec<_> = rows.iter().map(|row| row.job.id).collect();
    let positions = queue::positions(tx, &ids).await?;
    let size = queue::count(tx).await?;
    let mut workers = Vec::new();
    if rows.iter().any(|row| row.job.started_at.is_none()) {
        let filter =
            daemons::DaemonFilter { organization_id: Some(organization), ..daemons::DaemonFilter::default() };
        workers = daemons::list(tx, &filter).await?;
        workers.sort_by_key(|daemon| daemon.created_at);
    }
    let shown = |row: ListedJob| {
        let position = positions.get(&row.job.id).copied().unwrap_or_default();
        show(row, QueuePosition { position, size }, &workers)
    };
    Ok(rows.into_iter().map(shown).collect())
}

/// `available_workers` are the daemons that could run a pending job, including offline ones (QUE-8).
fn show(row: ListedJob, place: QueuePosition, workers: &[daemons::Daemon]) -> ProvisionerJob {
    let ListedJob { job, metadata } = row;
    let demand =
        JobRequirements { organization: job.organization_id, provisioner: &job.provisioner, tags: &job.tags };
    let could = |daemon: &&daemons::Daemon| {
        let organization = daemon.organization_id;
        matches(
            &DaemonCapabilities { organization, provisioners: &daemon.provisioners, tags: &daemon.tags },
            &demand,
        )
    };
    let available = if job.started_at.is_none() {
        workers.iter().filter(could).map(|daemon| daemon.id).collect()
    } else {
        Vec::new()
    };
    ProvisionerJob {
        worker_name: metadata.worker_name,
        available_workers: available,
        metadata: ProvisionerJobMetadata {
            template_version_name: metadata.template_version_name,
            template_id: metadata.template_id,
            template_name: metadata.template_name,
            template_display_name: metadata.template_display_name,
            template_icon: metadata.template_icon,
            workspace_id: metadata.workspace_id,
            workspace_name: metadata.workspace_name,
        },
        ..jobs::view(&job, place)
    }
}
