//! Deleting a template that no workspace uses.

use axum::extract::State;
use coder_api::error::Message;
use coder_domain::ids::TemplateId;
use coder_domain::rbac::Action;
use coder_store::templates;

use super::find;
use crate::context::App;
use crate::http::params::Id;
use crate::http::{Caller, Error, Json, Result, body};

/// `DELETE /templates/{template}`
pub async fn delete(State(app): State<App>, caller: Caller, Id(id): Id<TemplateId>) -> Result<Json<Message>> {
    let mut tx = app.store.begin().await?;
    find::by_id(&mut tx, &caller, id, Action::Delete).await?;
    match templates::delete(&mut tx, id, app.now()).await {
        Ok(()) => {}
        Err(coder_store::Error::Stale { .. }) => {
            return Err(Error::bad_request(
                "All workspaces must be deleted before a template can be removed.",
            ));
        }
        Err(error) => return Err(error.into()),
    }
    tx.commit().await?;
    Ok(body::message("Template has been deleted!"))
}
