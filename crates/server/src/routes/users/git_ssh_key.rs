//! The public half of a user's key pair for Git.

use axum::extract::State;
use coder_api::agents::GitSshKey;
use coder_domain::rbac::Action;
use coder_store::{transaction, users};

use super::{find, takeover};
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::git_ssh_key;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result};

/// `GET /users/{user}/gitsshkey`: one is made when there is none.
pub async fn get(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<GitSshKey>> {
    let [name] = names.take()?;
    let user = find::visible(&mut app.store.reader().await?, &caller, &name).await?;
    caller.require(Action::ReadPersonal, find::object(&user))?;
    Ok(Json(view(git_ssh_key::of(&app.store, user.id, app.now()).await?)))
}

/// `PUT /users/{user}/gitsshkey`: makes another one. Workspaces get it when they ask Git's next question.
pub async fn regenerate(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<GitSshKey>> {
    let [name] = names.take()?;
    let now = app.now();
    let made = transaction!(app.store, Error, |tx| {
        let user = find::visible(tx, &caller, &name).await?;
        caller.require(Action::UpdatePersonal, find::object(&user))?;
        takeover::require(tx, &caller, &user).await?;
        let old = users::find_git_ssh_key(tx, user.id).await?;
        let made = git_ssh_key::make(user.id, now);
        let created_at = old.as_ref().map_or(now, |old| old.created_at);
        let made = users::GitSshKey { created_at, ..made };
        users::upsert_git_ssh_key(tx, &made).await?;
        let old = old.map(|old| old.public_key).unwrap_or_default();
        let event = Event::new(Verb::Write, Kind::GitSshKey, user.id.0, user.username.as_str());
        event.change("public_key", &old, &made.public_key).by(tx, &caller, now).await?;
        Ok(made)
    })?;
    Ok(Json(view(made)))
}

fn view(key: users::GitSshKey) -> GitSshKey {
    GitSshKey {
        user_id: key.user_id,
        created_at: key.created_at,
        updated_at: key.updated_at,
        public_key: key.public_key,
    }
}
