//! The quiet hours that users chose.

use coder_domain::ids::UserId;

use crate::Result;
use crate::engine::{Tx, sql, statements, values};

statements! { "user_quiet_hours";
    FIND = sql("select schedule from user_quiet_hours where user_id = $1");
    PUT = sql("insert into user_quiet_hours (user_id, schedule) values ($1, $2)
        on conflict (user_id) do update set schedule = excluded.schedule");
}

/// The schedule that a user chose, if any.
pub async fn find(tx: &mut Tx, user: UserId) -> Result<Option<String>> {
    tx.fetch_opt(&FIND, values![user]).await?.map(|row| row.get("schedule")).transpose()
}

/// Stores the schedule of a user.
///
/// # Errors
/// [`crate::Error::Reference`] when the user is missing.
pub async fn upsert(tx: &mut Tx, user: UserId, schedule: &str) -> Result<()> {
    tx.execute(&PUT, values![user, schedule.to_owned()]).await.map(|_| ())
}
