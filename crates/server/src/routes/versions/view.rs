//! Converts versions to the API type.

use std::collections::HashMap;

use coder_api::daemons::MatchedProvisioners;
use coder_api::users::MinimalUser;
use coder_api::versions::TemplateVersion;
use coder_domain::job::Status;
use coder_store::jobs::Job;
use coder_store::jobs::queue::QueuePosition;
use coder_store::templates::versions::Version;
use coder_store::{Tx, jobs as store, users as accounts};

use crate::context::App;
use crate::http::Result;
use crate::routes::{jobs, matching_daemons, users};

/// Rows with their jobs and authors.
pub async fn load(app: &App, tx: &mut Tx, rows: Vec<Version>) -> Result<Vec<TemplateVersion>> {
    let ids: Vec<_> = rows.iter().map(|row| row.job_id).collect();
    let imports = store::find_many(tx, &ids).await?;
    let places = jobs::places(app, tx, &imports.iter().collect::<Vec<_>>()).await?;
    let imports: HashMap<_, _> = imports.into_iter().map(|job| (job.id, job)).collect();
    let authors: Vec<_> = rows.iter().map(|row| row.created_by).collect();
    let authors = accounts::find_many(tx, &authors).await?;
    let authors: HashMap<_, _> = authors.iter().map(|user| (user.id, users::view::minimal(user))).collect();
    let mut views = Vec::with_capacity(rows.len());
    for row in rows {
        let Some(job) = imports.get(&row.job_id) else { continue };
        let place = places.get(&job.id).copied().unwrap_or_default();
        let author = authors.get(&row.created_by).cloned().unwrap_or_default();
        views.push(one(row, job, place, author, None));
    }
    Ok(views)
}

/// One row. While its import waits, it contains the number of matching daemons (http-api 5.5).
pub async fn load_one(app: &App, tx: &mut Tx, row: Version) -> Result<TemplateVersion> {
    let job = store::get(tx, row.job_id).await?;
    let author = accounts::find_many(tx, &[row.created_by]).await?;
    let author = author.first().map(users::view::minimal).unwrap_or_default();
    let (mut place, mut matching) = (QueuePosition::default(), None);
    if job.status() == Status::Pending {
        place = jobs::places(app, tx, &[&job]).await?.remove(&job.id).unwrap_or_default();
        matching = Some(matching_daemons::for_job(app, tx, &job, app.now()).await?);
    }
    Ok(one(row, &job, place, author, matching))
}

/// Builds the view.
pub fn one(
    row: Version,
    job: &Job,
    place: QueuePosition,
    created_by: MinimalUser,
    matched_provisioners: Option<MatchedProvisioners>,
) -> TemplateVersion {
    TemplateVersion {
        id: row.id,
        template_id: row.template_id,
        organization_id: row.organization_id,
        created_at: row.created_at,
        updated_at: row.updated_at,
        name: row.name,
        message: row.message,
        job: jobs::view(job, place),
        readme: row.readme,
        created_by,
        archived: row.archived,
        warnings: Vec::new(),
        matched_provisioners,
        has_external_agent: row.has_external_agent.unwrap_or(false),
    }
}
