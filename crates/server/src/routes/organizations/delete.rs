//! Removes empty organizations.

use axum::extract::State;
use coder_api::error::Message;
use coder_domain::ids::OrganizationId;
use coder_domain::rbac::Action;
use coder_store::{Tx, UNLIMITED, keys, organizations as store, templates, transaction, workspaces};

use super::{named, object};
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::events::hint::Hint;
use crate::events::written::write_down;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result, body};
use crate::provisioning::credentials::revoke;

/// `DELETE /organizations/{organization}`: 400 for the default one, 409 while something is in it.
pub async fn delete(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<Message>> {
    let [name] = names.take()?;
    let now = app.now();
    let id = transaction!(app.store, Error, |tx| {
        let organization = named(&app, tx, &caller, &name).await?;
        caller.require(Action::Delete, object(&organization))?;
        if organization.is_default {
            return Err(Error::bad_request("The default organization cannot be deleted."));
        }
        let id = organization.id;
        store::lock(tx, id).await?;
        let members = store::list_members(tx, id, UNLIMITED, 0).await?;
        let others = members.iter().filter(|member| member.user_id != caller.user.id).count();
        let mut left = contents(tx, id).await?;
        left.push(("members", others));
        left.retain(|(_, count)| *count > 0);
        if !left.is_empty() {
            let left: Vec<_> = left.iter().map(|(what, count)| format!("{count} {what}")).collect();
            return Err(Error::conflict("The organization is not empty.")
                .detail(format!("Remove them first: {}.", left.join(", "))));
        }
        // The row stays. Without memberships no list shows it.
        for member in members {
            store::delete_member(tx, id, member.user_id).await?;
        }
        store::delete(tx, id, now).await?;
        let event = Event::new(Verb::Delete, Kind::Organization, id.0, organization.name);
        event.in_organization(id).icon(organization.icon).by(tx, &caller, now).await?;
        write_down(&app.store, tx, Hint::Organization(id), now).await?;
        Ok(id)
    })?;
    revoke::organization(&app, id).await;
    Ok(body::message("Organization has been deleted."))
}

async fn contents(tx: &mut Tx, id: OrganizationId) -> Result<Vec<(&'static str, usize)>> {
    let of_templates = templates::TemplateFilter {
        organization_ids: Some(vec![id]),
        ..templates::TemplateFilter::default()
    };
    let of_workspaces = workspaces::WorkspaceFilter {
        organization_ids: Some(vec![id]),
        ..workspaces::WorkspaceFilter::default()
    };
    Ok(vec![
        ("workspaces", workspaces::list(tx, &of_workspaces).await?.len()),
        ("templates", templates::list(tx, &of_templates).await?.len()),
        ("provisioner keys", keys::list(tx, id).await?.len()),
    ])
}
