//! Settings of the deployment, such as its id: named texts.

use crate::engine::{Tx, sql, statements, values};
use crate::{Error, Result};

/// The deployment's random id, made with the database.
pub const DEPLOYMENT_ID: &str = "deployment_id";

/// The first user's id. When two requests create the first user at the same moment, the one that sets it wins.
pub const FIRST_USER_ID: &str = "first_user_id";

statements! { "settings";
    FIND = sql("select value from settings where key = $1");
    SET = sql("insert into settings (key, value) values ($1, $2)
        on conflict (key) do update set value = excluded.value");
    INSERT = sql("insert into settings (key, value) values ($1, $2) on conflict (key) do nothing");
}

/// The value of a setting.
pub async fn find(tx: &mut Tx, key: &str) -> Result<Option<String>> {
    tx.fetch_opt(&FIND, values![key.to_owned()]).await?.map(|row| row.get("value")).transpose()
}

/// Sets a value.
pub async fn update(tx: &mut Tx, key: &str, value: &str) -> Result<()> {
    tx.execute(&SET, values![key.to_owned(), value.to_owned()]).await.map(|_| ())
}

/// Sets a value unless there is one. Returns the present value.
pub async fn find_or_insert(tx: &mut Tx, key: &str, value: &str) -> Result<String> {
    tx.execute(&INSERT, values![key.to_owned(), value.to_owned()]).await?;
    find(tx, key).await?.ok_or(Error::NotFound { table: "settings" })
}

/// The deployment's id.
pub async fn deployment_id(tx: &mut Tx) -> Result<String> {
    find(tx, DEPLOYMENT_ID).await?.ok_or(Error::NotFound { table: "settings" })
}
