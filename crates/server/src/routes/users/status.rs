//! Suspending and reactivating accounts.

use axum::extract::State;
use coder_api::users::User;
use coder_domain::rbac::{Action, Resource, SiteRole};
use coder_store::workspaces::schedules;
use coder_store::{organizations, tokens, transaction, users};

use super::{find, takeover, view};
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::events::hint::Hint;
use crate::events::written::write_down;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result};
use crate::provisioning::credentials::revoke;
use crate::routes::announce;

/// `PUT /users/{user}/status/suspend`
pub async fn suspend(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<User>> {
    set(&app, &caller, names, users::UserStatus::Suspended).await
}

/// `PUT /users/{user}/status/activate`
pub async fn activate(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<User>> {
    set(&app, &caller, names, users::UserStatus::Active).await
}

async fn set(app: &App, caller: &Caller, names: Names, status: users::UserStatus) -> Result<Json<User>> {
    let [name] = names.take()?;
    let now = app.now();
    let (user, memberships, signed_out) = transaction!(app.store, Error, |tx| {
        let mut user = find::visible(tx, caller, &name).await?;
        caller.require_site(Action::Update, Resource::User)?;
        if status == users::UserStatus::Suspended {
            if user.id == caller.user.id {
                return Err(Error::bad_request("You cannot suspend yourself."));
            }
            if user.site_roles.iter().any(|role| role == SiteRole::Owner.as_str()) {
                return Err(Error::bad_request(
                    "You cannot suspend a user with the \"owner\" role. Remove the role first.",
                ));
            }
        }
        takeover::require_still(tx, caller, user.id).await?;
        takeover::require(tx, caller, &user).await?;
        let event = Event::new(Verb::Write, Kind::User, user.id.0, user.username.as_str()).change(
            "status",
            user.status.as_str(),
            status.as_str(),
        );
        user.status = status;
        user.updated_at = now;
        users::update_status(tx, user.id, status, now).await?;
        schedules::owner_changed(tx, user.id, now).await?;
        // The account's own tokens are valid again when it is reactivated. Tokens that it created for others would stay valid.
        let mut signed_out = Vec::new();
        if status == users::UserStatus::Suspended {
            signed_out = tokens::list_affected_users(tx, user.id, None).await?;
            tokens::delete_for_others(tx, user.id).await?;
        }
        let memberships = organizations::list_of_user(tx, user.id).await?;
        event.by(tx, caller, now).await?;
        write_down(&app.store, tx, Hint::User(user.id), now).await?;
        revoke::write_down_tokens(app, tx, &signed_out, now).await?;
        Ok((user, memberships, signed_out))
    })?;
    announce::schedules_changed(app);
    revoke::user(app, user.id).await;
    revoke::tokens(app, &signed_out).await;
    Ok(Json(view::user(&user, memberships.into_iter().map(|found| found.id).collect())))
}
