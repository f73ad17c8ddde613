//! The list of keys with which secrets of a database are encrypted. A server that lacks one of them refuses to start,
//! and a server with a new key re-encrypts everything with it.

pub mod keys;
pub mod rotation;

use jiff::Timestamp;

use self::keys::{Owner, StateKeys};
use self::rotation::{RotationReport, find_foreign_key};
use crate::engine::{Tx, sql, statements, values};
use crate::{Error, Result, Store, transaction};

/// This text is encrypted with each key, to prove that two keys with one id are the same.
const KNOWN_TEXT: &str = "coder";
/// The id in the list that means that no value is encrypted. With it, the columns are searched only once.
const NONE: &str = "";

statements! { "encryption_keys";
    LIST = sql("select id, proof, complete_us from encryption_keys order by created_us, id");
    INSERT = sql("insert into encryption_keys (id, proof, created_us) values ($1, $2, $3) on conflict (id) do nothing");
    COMPLETE = sql("update encryption_keys set complete_us = $2 where id = $1");
    DELETE_OTHERS = sql("delete from encryption_keys where id <> $1");
}

/// Records the store's first key, and checks that the store has all keys with which secrets of this database are
/// encrypted.
///
/// # Errors
/// [`Error::EncryptionKeyMissing`] when one is missing.
pub async fn register(store: &Store, now: Timestamp) -> Result<()> {
    let mut tx = store.reader().await?;
    let keys = tx.state_keys();
    let known = list(&mut tx).await?;
    if known.is_empty()
        && let Some(key) = find_foreign_key(&mut tx, &keys).await?
    {
        return Err(Error::EncryptionKeyMissing { key });
    }
    drop(tx);
    for RecordedKey { id, proof, .. } in known.iter().filter(|known| known.id != NONE) {
        let is_there =
            keys.has(id) && keys.open_text(owner(id), proof.clone()).is_ok_and(|text| text == KNOWN_TEXT);
        if !is_there {
            return Err(Error::EncryptionKeyMissing { key: id.clone() });
        }
    }
    let current = keys.current().unwrap_or_default();
    // The list already contains a key.
    if known.iter().any(|known| known.id == current) || (keys.is_empty() && !known.is_empty()) {
        return Ok(());
    }
    let proof = keys.seal_text(owner(&current), KNOWN_TEXT.to_owned());
    store.single().await?.execute(&INSERT, values![current, proof, now]).await.map(|_| ())
}

/// Encrypts every secret with the store's first key. Returns none when this was done before or there is no key.
///
/// # Errors
/// Those of [`rotation::rotate`]. The call can be repeated.
pub async fn complete(store: &Store, now: Timestamp) -> Result<Option<RotationReport>> {
    let mut tx = store.reader().await?;
    let keys = tx.state_keys();
    let known = list(&mut tx).await?;
    drop(tx);
    let Some(current) = keys.current() else {
        // Agent tokens become hashes, with and without a key.
        if known.iter().any(|known| known.id == NONE && !known.is_complete) {
            rotation::hash_tokens(store).await?;
            store.single().await?.execute(&COMPLETE, values![NONE.to_owned(), now]).await?;
        }
        return Ok(None);
    };
    if let [only] = &known[..]
        && only.id == current
        && only.is_complete
    {
        return Ok(None);
    }
    rotate(store, &keys, now).await.map(Some)
}

/// Encrypts every secret with the first of these keys, or decrypts it when there is none, and removes the other keys
/// from the list.
///
/// # Errors
/// Those of [`rotation::rotate`]. The call can be repeated.
pub async fn rotate(store: &Store, to: &StateKeys, now: Timestamp) -> Result<RotationReport> {
    let rotated = rotation::rotate(store, to).await?;
    let id = to.current().unwrap_or_default();
    let proof = to.seal_text(owner(&id), KNOWN_TEXT.to_owned());
    transaction!(store, Error, |tx| {
        tx.execute(&INSERT, values![id, proof, now]).await?;
        tx.execute(&COMPLETE, values![id, now]).await?;
        tx.execute(&DELETE_OTHERS, values![id]).await
    })?;
    Ok(rotated)
}

struct RecordedKey {
    id: String,
    proof: String,
    is_complete: bool,
}

async fn list(tx: &mut Tx) -> Result<Vec<RecordedKey>> {
    let rows = tx.fetch(&LIST, vec![]).await?;
    let read = |row: &crate::engine::Row| {
        let complete_at: Option<Timestamp> = row.get("complete_us")?;
        Ok(RecordedKey { id: row.get("id")?, proof: row.get("proof")?, is_complete: complete_at.is_some() })
    };
    rows.iter().map(read).collect()
}

const fn owner(id: &str) -> Owner<'_> {
    Owner::Cell { table: "encryption_keys", column: "proof", id }
}
