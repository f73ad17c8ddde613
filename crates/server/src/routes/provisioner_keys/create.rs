//! Making a provisioner key.

use axum::extract::State;
use coder_api::keys::{CreateProvisionerKeyRequest, NewKey};
use coder_domain::ids::KeyId;
use coder_domain::key::{Hashed, new_provisioner_key};
use coder_domain::rbac::Action;
use coder_domain::tags::{self, SCOPE, SCOPE_USER, TagSet};
use coder_store::keys::{self, Key};

use super::{is_reserved, object};
use crate::authn::token;
use crate::context::App;
use crate::http::body::Created;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result};
use crate::routes::organizations;

/// Longest name in characters (KEY-2).
const NAME_CHARACTERS: usize = 64;

/// `POST /organizations/{organization}/provisionerkeys`: the only answer that shows the secret.
pub async fn create(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    Json(request): Json<CreateProvisionerKeyRequest>,
) -> Result<Created<NewKey>> {
    let [organization] = names.take()?;
    let mut tx = app.store.reader().await?;
    let organization = organizations::named(&app, &mut tx, &caller, &organization).await?;
    drop(tx);
    caller.require(Action::Create, object(organization.id))?;
    let name = request.name.to_lowercase();
    check(&name, &request)?;
    let secret = new_provisioner_key(token::random);
    let tags = TagSet::from_stored(request.tags);
    let key = Key::new(KeyId::random(), organization.id, name, tags, app.now());
    match keys::insert(&mut app.store.single().await?, &key, Hashed::of(secret.expose())).await {
        Ok(()) => {}
        Err(error) if error.is_conflict_on("provisioner_keys", "name_lower") => {
            return Err(Error::conflict(format!(
                "Provisioner key with name {:?} already exists in organization.",
                key.name
            )));
        }
        Err(error) => return Err(error.into()),
    }
    tracing::info!(key = key.name, organization = organization.name, by = %caller.user.id, "provisioner key created");
    Ok(Created(NewKey { key: secret }))
}

fn check(name: &str, request: &CreateProvisionerKeyRequest) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid("name", "A name is required."));
    }
    if name.chars().count() > NAME_CHARACTERS {
        return Err(Error::invalid("name", format!("The name has at most {NAME_CHARACTERS} characters.")));
    }
    // It is part of paths, and of what `provisioner keys list` prints.
    if name.chars().any(|character| character.is_control() || character == '/') {
        return Err(Error::invalid("name", "The name has neither slashes nor control characters."));
    }
    if is_reserved(name) {
        return Err(Error::bad_request(format!("Provisioner key name {name:?} is reserved.")));
    }
    tags::validate(&request.tags).map_err(|error| Error::invalid("tags", error))?;
    if request.tags.get(SCOPE).is_some_and(|scope| scope == SCOPE_USER) {
        let detail =
            "A key has no user: only daemons that join with a user's token can have the tag scope=user.";
        return Err(Error::invalid("tags", detail));
    }
    Ok(())
}
