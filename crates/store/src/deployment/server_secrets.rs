//! Keys that the servers of a deployment share and that no person chose. They are made at first use and encrypted at rest.

use coder_domain::secret::Secret;

use crate::encryption::keys::Owner;
use crate::engine::{Row, Tx, sql, statements, values};
use crate::{Error, Result};

statements! { "server_secrets";
    FIND = sql("select value from server_secrets where name = $1");
    INSERT = sql("insert into server_secrets (name, value) values ($1, $2) on conflict (name) do nothing");
}

const fn owner(name: &str) -> Owner<'_> {
    Owner::Cell { table: "server_secrets", column: "value", id: name }
}

/// A secret, if it was made.
///
/// # Errors
/// [`Error::RowKeyMissing`] when it is encrypted with a key that is not there.
pub async fn find(tx: &mut Tx, name: &str) -> Result<Option<Secret>> {
    let row = tx.fetch_opt(&FIND, values![name.to_owned()]).await?;
    row.map(|row| read(tx, name, &row)).transpose()
}

/// Stores a secret unless there is one, and returns the one that is there now.
///
/// # Errors
/// As [`find`].
pub async fn find_or_insert(tx: &mut Tx, name: &str, secret: &Secret) -> Result<Secret> {
    let sealed = tx.state_keys().seal_text(owner(name), secret.expose().to_owned());
    tx.execute(&INSERT, values![name.to_owned(), sealed]).await?;
    find(tx, name).await?.ok_or(Error::NotFound { table: "server_secrets" })
}

fn read(tx: &Tx, name: &str, row: &Row) -> Result<Secret> {
    tx.state_keys().open_text(owner(name), row.get("value")?).map(Secret::new)
}
