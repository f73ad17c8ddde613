//! Recovery of access for administrators who are locked out. It works directly on the database, whether servers are
//! running or not, and needs no password.

use coder_domain::ids::UserId;
use coder_domain::rbac::{OrgRole, SiteRole};
use coder_domain::secret::Secret;
use coder_domain::{Timestamp, names, password};
use coder_store::{Store, Tx, organizations, sessions, transaction, users};

use crate::audit::{Event, Kind, Verb};
use crate::authn::password::Hasher;
use crate::events::hint::Hint;
use crate::events::written::write_down;
use crate::http::origin::Origin;
use crate::routes::users::create;

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody has this name or address.
    #[error("there is no user with the name or e-mail address {0:?}")]
    NoSuchUser(String),
    /// The account signs in at another provider.
    #[error("the user {0:?} does not log in with a password")]
    NoPassword(String),
    /// A user name, e-mail address or password that no account may have.
    #[error("{0}")]
    Invalid(String),
    /// Another account has the name or the address.
    #[error("another user has the name {0:?} or the e-mail address {1:?}")]
    Taken(String, String),
    /// Hashing did not happen.
    #[error("hash the password")]
    Hash(#[from] crate::authn::password::Stopping),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] coder_store::Error),
}

/// Who to make an administrator.
#[derive(Clone, Debug)]
pub struct NewAdministrator {
    /// User name.
    pub username: String,
    /// E-mail address.
    pub email: String,
    pub password: Secret,
}

fn origin(program: &str) -> Origin {
    Origin { user_agent: program.to_owned(), ..Origin::default() }
}

async fn hash(password: Secret) -> Result<Secret, Error> {
    password::validate(password.expose()).map_err(|error| Error::Invalid(error.to_string()))?;
    Ok(Hasher::new(1).hash(password).await?)
}

/// Checks that [`reset_password`] can set the password of this user, before it is asked for.
///
/// # Errors
/// See [`Error`].
pub async fn check_user(store: &Store, user: &str) -> Result<(), Error> {
    transaction!(store, Error, |tx| { account(tx, user).await.map(|_| ()) })
}

/// The account with a password that has this name or e-mail address.
async fn account(tx: &mut Tx, user: &str) -> Result<users::User, Error> {
    let found = match users::find_by_username(tx, user).await? {
        Some(found) => Some(found),
        None => users::find_by_email(tx, user).await?,
    };
    let found = found.ok_or_else(|| Error::NoSuchUser(user.to_owned()))?;
    if found.login_type == users::LoginType::Password {
        Ok(found)
    } else {
        Err(Error::NoPassword(found.username))
    }
}

/// Sets the password of the user with this name or e-mail address. All sessions and tokens of the account end.
///
/// # Errors
/// See [`Error`].
pub async fn reset_password(
    store: &Store,
    user: &str,
    password: Secret,
    now: Timestamp,
) -> Result<users::User, Error> {
    let hash = hash(password).await?;
    transaction!(store, Error, |tx| {
        let found = account(tx, user).await?;
        users::update_password(tx, found.id, &hash, now).await?;
        // No session has an empty id, so no session is kept.
        sessions::delete_others(tx, found.id, "").await?;
        Event::new(Verb::Write, Kind::User, found.id.0, found.username.as_str())
            .secret("hashed_password")
            .write(tx, found.id, &origin("coder reset-password"), now)
            .await?;
        write_down(store, tx, Hint::Tokens(found.id), now).await?;
        Ok(found)
    })
}

/// Makes an account that owns the deployment and administers every organization.
///
/// # Errors
/// See [`Error`].
pub async fn create_administrator(
    store: &Store,
    new: NewAdministrator,
    now: Timestamp,
) -> Result<users::User, Error> {
    let NewAdministrator { username, email, password } = new;
    names::user(&username).map_err(|error| Error::Invalid(format!("the user name {username:?} {error}")))?;
    if !names::email(&email) {
        return Err(Error::Invalid(format!("{email:?} is not an e-mail address")));
    }
    let mut user = create::row(UserId::random(), &email, &username, "", now);
    user.status = users::UserStatus::Active;
    user.password_hash = Some(hash(password).await?);
    user.site_roles = vec![SiteRole::Owner.as_str().to_owned()];
    transaction!(store, Error, |tx| {
        users::insert(tx, &user).await.map_err(|error| taken(error, &user))?;
        for organization in organizations::list(tx).await? {
            let mut member = create::membership(organization.id, user.id, now);
            member.roles = vec![OrgRole::Admin.as_str().to_owned()];
            organizations::insert_member(tx, &member).await?;
        }
        Event::new(Verb::Create, Kind::User, user.id.0, user.username.as_str())
            .change("rbac_roles", [""; 0], &user.site_roles)
            .write(tx, user.id, &origin("coder server create-admin-user"), now)
            .await?;
        Ok(user.clone())
    })
}

fn taken(error: coder_store::Error, user: &users::User) -> Error {
    let is_taken =
        ["username_lower", "email_lower"].iter().any(|column| error.is_conflict_on("users", column));
    if is_taken { Error::Taken(user.username.clone(), user.email.clone()) } else { error.into() }
}
