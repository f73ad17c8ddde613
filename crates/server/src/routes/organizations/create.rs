//! Making organizations.

use axum::extract::State;
use coder_api::organizations::{CreateOrganizationRequest, Organization};
use coder_domain::ids::OrganizationId;
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::{organizations as store, transaction};

use super::{check, taken, view};
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::{Caller, Error, Json, Result, body};
use crate::routes::users::create::membership;

/// `POST /organizations`: the caller becomes a plain member of it.
pub async fn create(
    State(app): State<App>,
    caller: Caller,
    Json(request): Json<CreateOrganizationRequest>,
) -> Result<body::Created<Organization>> {
    caller.require(Action::Create, Object::site(Resource::Organization))?;
    let now = app.now();
    let display_name = Some(request.display_name).filter(|name| !name.is_empty());
    let organization = store::Organization {
        id: OrganizationId::random(),
        display_name: display_name.unwrap_or_else(|| request.name.clone()),
        name: request.name,
        description: request.description,
        icon: request.icon,
        is_default: false,
        created_at: now,
        updated_at: now,
    };
    check(&organization)?;
    let id = organization.id;
    transaction!(app.store, Error, |tx| {
        store::insert(tx, &organization).await.map_err(taken)?;
        store::insert_member(tx, &membership(id, caller.user.id, now)).await?;
        Event::new(Verb::Create, Kind::Organization, id.0, organization.name.as_str())
            .in_organization(id)
            .icon(organization.icon.as_str())
            .change("display_name", "", &organization.display_name)
            .by(tx, &caller, now)
            .await?;
        Event::new(Verb::Create, Kind::Member, caller.user.id.0, caller.user.username.as_str())
            .in_organization(id)
            .by(tx, &caller, now)
            .await?;
        Ok(())
    })?;
    Ok(body::Created(view(&organization)))
}
