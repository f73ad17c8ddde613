//! Brings states and tokens that are stored already under the present keys (`coder server states`), while servers may be
//! running.

use coder_domain::ids::{BuildId, JobId, UserId};

use crate::check::Violation;
use crate::engine::{Statement, Tx, sql, statements, values};
use crate::state_keys::{Owner, StateKeys};
use crate::{Error, Result, Store, transaction};

/// States per transaction.
const PAGE: i64 = 16;

/// What came of a rotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotated {
    /// States that were written anew.
    pub changed: u64,
    /// All states that were looked at.
    pub total: u64,
}

statements! { "state_rotation";
    BUILD_STATES = sql("select workspace_build_id as id, state from workspace_build_states
        where workspace_build_id > $1 order by workspace_build_id limit $2");
    JOURNAL_STATES = sql("select job_id as id, state from provisioner_job_journals
        where job_id > $1 order by job_id limit $2");
    /// A server may have stored a newer one since.
    PUT_BUILD_STATE = sql("update workspace_build_states set state = $2 where workspace_build_id = $1 and state = $3");
    PUT_JOURNAL_STATE = sql("update provisioner_job_journals set state = $2, cipher = $4
        where job_id = $1 and state = $3");
    LINKS = sql("select user_id || ' ' || provider_id as id, tokens as state from external_auth_links
        where user_id || ' ' || provider_id > $1 order by user_id || ' ' || provider_id limit $2");
    PUT_LINK = sql("update external_auth_links set tokens = $2
        where user_id = $1 and tokens = $3 and provider_id = $4");
}

/// What is encrypted.
#[derive(Clone, Copy)]
enum Kind {
    Builds,
    Journals,
    Links,
}

const KINDS: [Kind; 3] = [Kind::Builds, Kind::Journals, Kind::Links];

/// Reads every state with the store's keys and stores it as `to` has it: encrypted with its first key, or plain when
/// it has none. States that are so already are left alone.
///
/// # Errors
/// [`Error::Locked`] when the store lacks a key; what was changed before stays changed, and the call can be repeated.
pub async fn rotate(store: &Store, to: &StateKeys) -> Result<Rotated> {
    let mut rotated = Rotated::default();
    for kind in KINDS {
        let mut after = String::new();
        loop {
            let (next, page) = transaction!(store, Error, |tx| {
                let mut page = Rotated::default();
                let mut next = None;
                for row in tx.fetch(list(kind), values![after, PAGE]).await? {
                    let (id, stored): (String, Vec<u8>) = (row.get("id")?, row.get("state")?);
                    page.total += 1;
                    page.changed += put(tx, kind, &id, stored, to).await?;
                    next = Some(id);
                }
                Ok((next, page))
            })?;
            rotated.changed += page.changed;
            rotated.total += page.total;
            match next {
                Some(next) => after = next,
                None => break,
            }
        }
    }
    Ok(rotated)
}

const fn list(kind: Kind) -> &'static Statement {
    match kind {
        Kind::Builds => &BUILD_STATES,
        Kind::Journals => &JOURNAL_STATES,
        Kind::Links => &LINKS,
    }
}

fn owner(kind: Kind, id: &str) -> Option<Owner<'_>> {
    let (uuid, provider) = id.split_once(' ').unwrap_or((id, ""));
    let uuid = uuid::Uuid::parse_str(uuid).ok()?;
    Some(match kind {
        Kind::Builds => Owner::Build(BuildId(uuid)),
        Kind::Journals => Owner::Journal(JobId(uuid)),
        Kind::Links => Owner::Link(UserId(uuid), provider),
    })
}

async fn put(tx: &mut Tx, kind: Kind, id: &str, stored: Vec<u8>, to: &StateKeys) -> Result<u64> {
    let Some(owner) = owner(kind, id).filter(|_| !to.is_current(&stored)) else { return Ok(0) };
    let state = to.seal(owner, tx.state_keys().open(owner, stored.clone())?);
    match owner {
        Owner::Build(id) => tx.execute(&PUT_BUILD_STATE, values![id, state, stored]).await,
        Owner::Journal(id) => tx.execute(&PUT_JOURNAL_STATE, values![id, state, stored, to.cipher()]).await,
        Owner::Link(user, provider) => {
            tx.execute(&PUT_LINK, values![user, state, stored, provider.to_owned()]).await
        }
    }
}

/// The states that cannot be read with the store's keys.
///
/// # Errors
/// Only when the database fails.
pub async fn unreadable(store: &Store) -> Result<Vec<Violation>> {
    let mut tx = store.reader().await?;
    let keys = tx.state_keys();
    let mut found = Vec::new();
    for kind in KINDS {
        let mut after = String::new();
        loop {
            let rows = tx.fetch(list(kind), values![after, PAGE]).await?;
            for row in &rows {
                after = row.get("id")?;
                let opened = owner(kind, &after).map(|owner| keys.open(owner, row.get("state")?)).transpose();
                if let Err(error) = opened {
                    let invariant = "every state can be decrypted";
                    found.push(Violation { invariant, id: after.clone(), detail: error.to_string() });
                }
            }
            if rows.is_empty() {
                break;
            }
        }
    }
    Ok(found)
}
