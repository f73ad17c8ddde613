//! Renaming a version and changing its message.

use axum::extract::State;
use coder_api::versions::{TemplateVersion, UpdateTemplateVersionRequest};
use coder_domain::ids::TemplateVersionId;
use coder_domain::names;
use coder_domain::rbac::Action;
use coder_store::versions;

use super::{find, view};
use crate::context::App;
use crate::http::params::Id;
use crate::http::{Caller, Error, Json, Result};

/// `PATCH /templateversions/{version}`
pub async fn update(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TemplateVersionId>,
    Json(request): Json<UpdateTemplateVersionRequest>,
) -> Result<Json<TemplateVersion>> {
    let mut tx = app.store.begin().await?;
    let mut version = find::by_id(&mut tx, &caller, id, Action::Update).await?;
    if !request.name.is_empty() {
        names::template_version(&request.name)
            .map_err(|e| Error::invalid("name", format!("The name {e}.")))?;
        version.name = request.name;
    }
    if let Some(message) = request.message {
        if message.len() > 1 << 20 {
            return Err(Error::invalid("message", "The message must be at most 1 MiB."));
        }
        version.message = message;
    }
    version.updated_at = app.now();
    let taken = |error: coder_store::Error| {
        if error.is_conflict_on("template_versions", "name") {
            return Error::name_taken(format!(
                "A template version with name {:?} already exists for this template.",
                version.name
            ));
        }
        error.into()
    };
    versions::update(&mut tx, id, &version.name, &version.message, version.updated_at)
        .await
        .map_err(taken)?;
    let view = view::load_one(&app, &mut tx, version).await?;
    tx.commit().await?;
    Ok(Json(view))
}
