//! Deleting a template that no workspace uses.

use axum::extract::State;
use coder_api::error::Message;
use coder_domain::ids::TemplateId;
use coder_domain::rbac::Action;
use coder_store::{templates, transaction};

use super::find;
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::params::Id;
use crate::http::{Caller, Error, Json, Result, body};

/// `DELETE /templates/{template}`
pub async fn delete(State(app): State<App>, caller: Caller, Id(id): Id<TemplateId>) -> Result<Json<Message>> {
    let now = app.now();
    transaction!(app.store, Error, |tx| {
        let template = find::by_id(tx, &caller, id, Action::Delete).await?;
        templates::lock(tx, id).await?;
        match templates::delete(tx, id, now).await {
            Ok(()) => {}
            Err(coder_store::Error::Stale { .. }) => {
                return Err(Error::bad_request(
                    "All workspaces must be deleted before a template can be removed.",
                ));
            }
            Err(error) => return Err(error.into()),
        }
        let event = Event::new(Verb::Delete, Kind::Template, id.0, template.name);
        event.in_organization(template.organization_id).icon(template.icon).by(tx, &caller, now).await?;
        Ok(())
    })?;
    Ok(body::message("Template has been deleted!"))
}
