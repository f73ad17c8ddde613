//! Brings states that are stored already under the present keys (`coder server states`), while servers may be running.

use coder_domain::ids::{BuildId, JobId};

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
}

/// Reads every state with the store's keys and stores it as `to` has it: encrypted with its first key, or plain when
/// it has none. States that are so already are left alone.
///
/// # Errors
/// [`Error::Locked`] when the store lacks a key; what was changed before stays changed, and the call can be repeated.
pub async fn rotate(store: &Store, to: &StateKeys) -> Result<Rotated> {
    let mut rotated = Rotated::default();
    for journals in [false, true] {
        let mut after = String::new();
        loop {
            let (next, page) = transaction!(store, Error, |tx| {
                let mut page = Rotated::default();
                let mut next = None;
                for row in tx.fetch(list(journals), values![after, PAGE]).await? {
                    let (id, stored): (String, Vec<u8>) = (row.get("id")?, row.get("state")?);
                    page.total += 1;
                    page.changed += put(tx, journals, &id, stored, to).await?;
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

const fn list(journals: bool) -> &'static Statement {
    if journals { &JOURNAL_STATES } else { &BUILD_STATES }
}

fn owner(journals: bool, id: &str) -> Option<Owner> {
    let id = uuid::Uuid::parse_str(id).ok()?;
    Some(if journals { Owner::Journal(JobId(id)) } else { Owner::Build(BuildId(id)) })
}

async fn put(tx: &mut Tx, journals: bool, id: &str, stored: Vec<u8>, to: &StateKeys) -> Result<u64> {
    let Some(owner) = owner(journals, id).filter(|_| !to.is_current(&stored)) else { return Ok(0) };
    let state = to.seal(owner, tx.state_keys().open(owner, stored.clone())?);
    if journals {
        tx.execute(&PUT_JOURNAL_STATE, values![id.to_owned(), state, stored, to.cipher()]).await
    } else {
        tx.execute(&PUT_BUILD_STATE, values![id.to_owned(), state, stored]).await
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
    for journals in [false, true] {
        let mut after = String::new();
        loop {
            let rows = tx.fetch(list(journals), values![after, PAGE]).await?;
            for row in &rows {
                after = row.get("id")?;
                let opened =
                    owner(journals, &after).map(|owner| keys.open(owner, row.get("state")?)).transpose();
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
