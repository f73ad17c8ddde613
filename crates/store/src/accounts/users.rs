//! User accounts and their Git SSH keys.

use std::str::FromStr;

use coder_domain::ids::UserId;
use coder_domain::secret::Secret;
use jiff::Timestamp;

use crate::engine::{
    Column, Row, Tx, Value, forks, list as list_value, optional_list, record, sql, statements, values,
};
use crate::{Result, external_auth_links};

/// An enum that is stored as a word.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// The word in JSON and in the database.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl FromStr for $name {
            type Err = coder_domain::job::UnknownVariant;
            fn from_str(word: &str) -> std::result::Result<Self, Self::Err> {
                match word {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(Self::Err { what: stringify!($name), value: word.to_owned() }),
                }
            }
        }

        impl Column for $name {
            const NULL: Value = Value::NullText;
            fn to_value(&self) -> Value {
                self.as_str().to_owned().to_value()
            }
            fn read(row: &Row, column: &'static str) -> Result<Option<Self>> {
                let parse = |text: String| text.parse().map_err(|_| row.corrupt(column, "not one of the expected words"));
                String::read(row, column)?.map(parse).transpose()
            }
        }
    };
}

words! {
    /// Whether an account may be used.
    pub enum UserStatus {
        /// In use.
        Active = "active",
        /// Not used yet, or not used for long. Becomes active with the next use.
        Dormant = "dormant",
        /// Suspended by an administrator.
        Suspended = "suspended",
    }
}

words! {
    /// How an account or a session authenticates.
    pub enum LoginType {
        /// With e-mail and password.
        Password = "password",
        /// Through GitHub.
        Github = "github",
        /// Through OpenID Connect.
        Oidc = "oidc",
        /// With an API token. Only API keys have this type.
        Token = "token",
        /// The account cannot sign in.
        None = "none",
    }
}

record! {
    /// An account.
    pub struct User {
        pub id: UserId,
        /// Unique regardless of case.
        pub username: String,
        /// Unique regardless of case, unless empty.
        pub email: String,
        /// The person's full name.
        pub name: String,
        /// Picture.
        pub avatar_url: String,
        /// Theme of the web pages.
        pub theme_preference: String,
        /// Whether it may be used.
        pub status: UserStatus,
        /// How it logs in.
        pub login_type: LoginType,
        /// Empty for other login types.
        pub password_hash: Option<Secret>,
        /// Names of site roles, without the implied `member`.
        pub site_roles: Vec<String>,
        /// Whether this is a system account (prebuilds), which lists omit.
        pub is_system: bool,
        pub created_at: Timestamp = "created_us",
        /// When it was last changed.
        pub updated_at: Timestamp = "updated_us",
        /// When it was last used.
        pub last_seen_at: Option<Timestamp> = "last_seen_us",
    }
}

record! {
    /// A user's key pair for Git.
    pub struct GitSshKey {
        pub user_id: UserId,
        /// One line of authorized_keys.
        pub public_key: String,
        /// PEM.
        pub private_key: Secret,
        pub created_at: Timestamp = "created_us",
        /// When the key was last replaced.
        pub updated_at: Timestamp = "updated_us",
    }
}

/// Selects the users of a list. All conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct UserFilter {
    /// Part of the username, email address or name.
    pub search: Option<String>,
    /// One of these.
    pub status: Option<Vec<UserStatus>>,
    /// One of these.
    pub login_type: Option<Vec<LoginType>>,
    /// Only users with this site role.
    pub role: Option<String>,
    /// Only these.
    pub ids: Option<Vec<UserId>>,
}

macro_rules! columns {
    () => {
        "id, username, email, name, avatar_url, theme_preference, status, login_type, password_hash, site_roles, \
         is_system, created_us, updated_us, last_seen_us"
    };
}

macro_rules! filter {
    () => {
        " from users where not deleted and not is_system
        and (cast($1 as text) is null or instr(username_lower, $1) > 0 or instr(email_lower, $1) > 0 or instr(name_lower, $1) > 0)
        and (cast($2 as text) is null or status in (select value from json_each($2)))
        and (cast($3 as text) is null or login_type in (select value from json_each($3)))
        and (cast($4 as text) is null or instr(site_roles, $4) > 0)
        and (cast($5 as text) is null or id in (select value from json_each($5)))"
    };
}

statements! { "users";
    INSERT = sql("insert into users (id, username, email, name, avatar_url, theme_preference, status, login_type,
        password_hash, site_roles, is_system, created_us, updated_us, last_seen_us, username_lower, email_lower, name_lower, deleted)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, false)");
    FIND = sql(concat!("select ", columns!(), " from users where id = $1 and not deleted"));
    FIND_BY_USERNAME = sql(concat!("select ", columns!(), " from users where username_lower = $1 and not deleted"));
    FIND_BY_EMAIL = sql(concat!("select ", columns!(), " from users where email_lower = $1 and not deleted"));
    FIND_MANY = sql(concat!("select ", columns!(), " from users where id in (select value from json_each($1))"));
    ANY = sql("select exists (select 1 from users where not deleted and not is_system) as found");
    LIST = sql(concat!("select ", columns!(), filter!(), " order by username_lower limit $6 offset $7"));
    COUNT = sql(concat!("select count(*) as total", filter!()));
    UPDATE_PROFILE = sql("update users set username = $2, username_lower = $3, name = $4, name_lower = $5, updated_us = $6
        where id = $1 and not deleted");
    UPDATE_PASSWORD = sql("update users set password_hash = $2, updated_us = $3 where id = $1 and not deleted");
    UPDATE_STATUS = sql("update users set status = $2, updated_us = $3 where id = $1 and not deleted");
    UPDATE_ROLES = sql("update users set site_roles = $2, updated_us = $3 where id = $1 and not deleted");
    LOCK = sql("update users set updated_us = updated_us where id in (select value from json_each($1))");
    UPDATE_SEEN = sql("update users set last_seen_us = $2,
        status = case when status = 'dormant' then 'active' else status end where id = $1 and not deleted");
    DELETE = sql("update users set deleted = true, updated_us = $2 where id = $1 and not deleted and not is_system");
    FIND_SSH_KEY = sql("select user_id, public_key, private_key, created_us, updated_us from git_ssh_keys
        where user_id = $1");
    ADD_SSH_KEY = sql("insert into git_ssh_keys (user_id, public_key, private_key, created_us, updated_us)
        values ($1, $2, $3, $4, $5) on conflict (user_id) do nothing");
    REPLACE_SSH_KEY = sql("insert into git_ssh_keys (user_id, public_key, private_key, created_us, updated_us)
        values ($1, $2, $3, $4, $5) on conflict (user_id) do update set public_key = excluded.public_key,
        private_key = excluded.private_key, updated_us = excluded.updated_us");
}

/// Adds a user.
///
/// # Errors
/// A conflict on `username_lower` or `email_lower`.
pub async fn insert(tx: &mut Tx, user: &User) -> Result<()> {
    let mut row = user.values();
    row.extend(values![user.username.to_lowercase(), user.email.to_lowercase(), user.name.to_lowercase()]);
    // The column is never null. An account without a password has an empty hash, which no password produces.
    if user.password_hash.is_none() {
        row[8] = Value::Text(String::new());
    }
    tx.execute(&INSERT, row).await.map(|_| ())
}

pub(crate) fn read(row: &Row) -> Result<User> {
    let mut user = User::from_row(row)?;
    user.password_hash = user.password_hash.filter(|hash| !hash.expose().is_empty());
    Ok(user)
}

pub async fn find(tx: &mut Tx, id: UserId) -> Result<Option<User>> {
    tx.fetch_opt(&FIND, values![id]).await?.as_ref().map(read).transpose()
}

/// By id.
///
/// # Errors
/// [`crate::Error::NotFound`].
pub async fn get(tx: &mut Tx, id: UserId) -> Result<User> {
    read(&tx.fetch_one(&FIND, values![id]).await?)
}

/// Finds a user by username, regardless of case.
pub async fn find_by_username(tx: &mut Tx, username: &str) -> Result<Option<User>> {
    tx.fetch_opt(&FIND_BY_USERNAME, values![username.to_lowercase()]).await?.as_ref().map(read).transpose()
}

/// Finds a user by email address, regardless of case.
pub async fn find_by_email(tx: &mut Tx, email: &str) -> Result<Option<User>> {
    tx.fetch_opt(&FIND_BY_EMAIL, values![email.to_lowercase()]).await?.as_ref().map(read).transpose()
}

/// The existing users of `ids`, including deleted and system accounts. For showing who did something.
pub async fn find_many(tx: &mut Tx, ids: &[UserId]) -> Result<Vec<User>> {
    tx.fetch(&FIND_MANY, vec![list_value(ids.iter().copied())]).await?.iter().map(read).collect()
}

/// Whether the first user exists.
pub async fn any(tx: &mut Tx) -> Result<bool> {
    tx.fetch_one(&ANY, vec![]).await?.get("found")
}

fn filter_values(filter: &UserFilter) -> Vec<Value> {
    vec![
        filter.search.as_ref().map(|text| text.to_lowercase()).to_value(),
        optional_list(filter.status.as_deref()),
        optional_list(filter.login_type.as_deref()),
        filter.role.as_ref().map(|role| format!("\"{role}\"")).to_value(),
        optional_list(filter.ids.as_deref()),
    ]
}

/// A page of users by username, without system accounts.
pub async fn list(tx: &mut Tx, filter: &UserFilter, limit: i64, offset: i64) -> Result<Vec<User>> {
    let mut parameters = filter_values(filter);
    parameters.extend(values![limit, offset]);
    tx.fetch(&LIST, parameters).await?.iter().map(read).collect()
}

/// The number of users that match a filter.
pub async fn count(tx: &mut Tx, filter: &UserFilter) -> Result<i64> {
    tx.fetch_one(&COUNT, filter_values(filter)).await?.get("total")
}

/// Changes username and name.
///
/// # Errors
/// A conflict on `username_lower`; [`crate::Error::Stale`] when the user does not exist any more.
pub async fn update_profile(
    tx: &mut Tx,
    id: UserId,
    username: &str,
    name: &str,
    now: Timestamp,
) -> Result<()> {
    let row =
        values![id, username.to_owned(), username.to_lowercase(), name.to_owned(), name.to_lowercase(), now];
    tx.change_one(&UPDATE_PROFILE, row).await
}

/// Replaces the hashed password.
///
/// # Errors
/// [`crate::Error::Stale`] when the user does not exist any more.
pub async fn update_password(tx: &mut Tx, id: UserId, hash: &Secret, now: Timestamp) -> Result<()> {
    tx.change_one(&UPDATE_PASSWORD, values![id, *hash, now]).await
}

/// Changes the status.
///
/// # Errors
/// [`crate::Error::Stale`] when the user does not exist any more.
pub async fn update_status(tx: &mut Tx, id: UserId, status: UserStatus, now: Timestamp) -> Result<()> {
    tx.change_one(&UPDATE_STATUS, values![id, status, now]).await
}

/// Replaces the site roles.
///
/// # Errors
/// [`crate::Error::Stale`] when the user does not exist any more.
pub async fn update_roles(tx: &mut Tx, id: UserId, roles: &[String], now: Timestamp) -> Result<()> {
    tx.change_one(&UPDATE_ROLES, values![id, roles.to_vec(), now]).await
}

/// Whether the user exists. If so, it is not deleted before this transaction ends: call it before adding what belongs to
/// it.
pub async fn keep(tx: &mut Tx, id: UserId) -> Result<bool> {
    tx.fetch_one(&forks::KEEP_USER, values![id]).await?.get("found")
}

/// Locks users until the end of the transaction: transactions that keep or change them wait, and what is read from here on is
/// what earlier ones committed.
pub async fn lock(tx: &mut Tx, ids: &[UserId]) -> Result<()> {
    tx.execute(&LOCK, vec![list_value(ids.iter().copied())]).await.map(|_| ())
}

/// Records that the account was used. A dormant account becomes active (scheduling-and-auth TOK-7).
///
/// # Errors
/// [`crate::Error::Stale`] when the user does not exist any more.
pub async fn update_seen(tx: &mut Tx, id: UserId, now: Timestamp) -> Result<()> {
    tx.change_one(&UPDATE_SEEN, values![id, now]).await
}

/// Marks a user as deleted. Username and email address can be used again, and the user's external authentication tokens
/// are deleted.
///
/// # Errors
/// [`crate::Error::Stale`] when the user does not exist any more.
pub async fn delete(tx: &mut Tx, id: UserId, now: Timestamp) -> Result<()> {
    tx.change_one(&DELETE, values![id, now]).await?;
    external_auth_links::delete_all(tx, id).await
}

/// The Git SSH key, if the user has one.
pub async fn find_git_ssh_key(tx: &mut Tx, user: UserId) -> Result<Option<GitSshKey>> {
    tx.fetch_opt(&FIND_SSH_KEY, values![user]).await?.as_ref().map(GitSshKey::from_row).transpose()
}

/// Stores the Git SSH key of a user who has none.
pub async fn insert_git_ssh_key(tx: &mut Tx, key: &GitSshKey) -> Result<()> {
    let mut row = key.values();
    tx.seal_in("git_ssh_keys", GitSshKey::COLUMNS, "private_key", &key.user_id.to_string(), &mut row);
    tx.execute(&ADD_SSH_KEY, row).await.map(|_| ())
}

/// Stores the Git SSH key of a user in the place of an earlier one.
pub async fn upsert_git_ssh_key(tx: &mut Tx, key: &GitSshKey) -> Result<()> {
    let mut row = key.values();
    tx.seal_in("git_ssh_keys", GitSshKey::COLUMNS, "private_key", &key.user_id.to_string(), &mut row);
    tx.execute(&REPLACE_SSH_KEY, row).await.map(|_| ())
}
