//! The audit log: who did what.

use coder_domain::ids::{OrganizationId, UserId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::Result;
use crate::engine::{Tx, record, sql, statements, values};

record! {
    /// One entry.
    pub struct Entry {
        /// Id.
        pub id: Uuid,
        /// When.
        pub created_at: Timestamp = "created_us",
        /// Who.
        pub user_id: UserId,
        /// Where.
        pub organization_id: OrganizationId,
        /// From which address.
        pub ip: String,
        /// With which program.
        pub user_agent: String,
        /// Kind of thing.
        pub resource_type: String,
        /// Which thing.
        pub resource_id: Uuid,
        /// Its name.
        pub resource_target: String,
        /// Its icon.
        pub resource_icon: String,
        /// What was done.
        pub action: String,
        /// What changed.
        pub diff: serde_json::Value,
        /// HTTP status of the answer.
        pub status_code: i64,
        /// More.
        pub additional_fields: serde_json::Value,
        /// The request.
        pub request_id: Uuid,
    }
}

macro_rules! columns {
    () => {
        "id, created_us, user_id, organization_id, ip, user_agent, resource_type, resource_id, resource_target, \
         resource_icon, action, diff, status_code, additional_fields, request_id"
    };
}

statements! { "audit_logs";
    INSERT = sql(concat!("insert into audit_logs (", columns!(),
        ") values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"));
    LIST = sql(concat!("select ", columns!(), " from audit_logs order by created_us desc, id desc limit $1 offset $2"));
    PURGE = sql("delete from audit_logs where created_us < $1");
}

/// Adds an entry.
///
/// # Errors
/// Only when the database fails.
pub async fn insert(tx: &mut Tx, entry: &Entry) -> Result<()> {
    tx.execute(&INSERT, entry.values()).await.map(|_| ())
}

/// A page of entries, newest first.
///
/// # Errors
/// Only when the database fails.
pub async fn list(tx: &mut Tx, limit: i64, offset: i64) -> Result<Vec<Entry>> {
    tx.fetch(&LIST, values![limit, offset]).await?.iter().map(Entry::from_row).collect()
}

/// Removes entries made before `before`.
///
/// # Errors
/// Only when the database fails.
pub async fn purge(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    tx.execute(&PURGE, values![before]).await
}
