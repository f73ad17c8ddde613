//! Changes the names and texts of an organization.

use axum::extract::State;
use coder_api::organizations::{Organization, UpdateOrganizationRequest};
use coder_domain::rbac::Action;
use coder_store::{organizations as store, transaction};

use super::{check, named, object, taken, view};
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result};

/// `PATCH /organizations/{organization}`: an absent field stays as it is.
pub async fn update(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    Json(request): Json<UpdateOrganizationRequest>,
) -> Result<Json<Organization>> {
    let [name] = names.take()?;
    let now = app.now();
    let after = transaction!(app.store, Error, |tx| {
        let before = named(&app, tx, &caller, &name).await?;
        caller.require(Action::Update, object(&before))?;
        let given = |text: &String, old: &String| if text.is_empty() { old.clone() } else { text.clone() };
        let after = store::Organization {
            name: given(&request.name, &before.name),
            display_name: given(&request.display_name, &before.display_name),
            description: request.description.clone().unwrap_or_else(|| before.description.clone()),
            icon: request.icon.clone().unwrap_or_else(|| before.icon.clone()),
            updated_at: now,
            ..before.clone()
        };
        check(&after)?;
        store::update(tx, &after).await.map_err(taken)?;
        Event::new(Verb::Write, Kind::Organization, after.id.0, after.name.as_str())
            .in_organization(after.id)
            .icon(after.icon.as_str())
            .change("name", &before.name, &after.name)
            .change("display_name", &before.display_name, &after.display_name)
            .change("description", &before.description, &after.description)
            .change("icon", &before.icon, &after.icon)
            .by(tx, &caller, now)
            .await?;
        Ok(after)
    })?;
    Ok(Json(view(&after)))
}
