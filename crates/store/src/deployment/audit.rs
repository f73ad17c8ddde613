//! The audit log: who did what.

use coder_domain::ids::{OrganizationId, UserId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::Result;
use crate::engine::{Tx, Value, record, sql, statements, values};

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

macro_rules! filter {
    () => {
        "(cast($1 as text) is null or organization_id = $1) and (cast($2 as text) is null or user_id = $2)
        and (cast($3 as text) is null or resource_type = $3) and (cast($4 as text) is null or resource_id = $4)
        and (cast($5 as text) is null or resource_target = $5) and (cast($6 as text) is null or action = $6)
        and (cast($7 as bigint) is null or created_us >= $7) and (cast($8 as bigint) is null or created_us < $8)
        and (cast($9 as text) is null or request_id = $9)
        and (cast($10 as text) is null or json_extract(additional_fields, '$.build_reason') = $10)"
    };
}

statements! { "audit_logs";
    INSERT = sql(concat!("insert into audit_logs (", columns!(),
        ") values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"));
    LIST = sql(concat!("select ", columns!(), " from audit_logs where ", filter!(),
        " order by created_us desc, id desc limit $11 offset $12"));
    LIST_OF = sql(concat!("select ", columns!(), " from audit_logs where organization_id = $1 and ", filter!(),
        " order by created_us desc, id desc limit $11 offset $12"));
    COUNT = sql(concat!("select count(*) as total from audit_logs where ", filter!()));
    PURGE = sql("delete from audit_logs where created_us < $1");
}

/// Adds an entry.
///
/// # Errors
/// Only when the database fails.
pub async fn insert(tx: &mut Tx, entry: &Entry) -> Result<()> {
    tx.execute_pipelined(&INSERT, entry.values(), false).await
}

/// Which entries a list has; every condition must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only of this organization.
    pub organization_id: Option<OrganizationId>,
    /// Only by this user.
    pub user_id: Option<UserId>,
    /// Only about things of this kind.
    pub resource_type: Option<String>,
    /// Only about this thing.
    pub resource_id: Option<Uuid>,
    /// Only about things of this name.
    pub resource_target: Option<String>,
    /// Only this action.
    pub action: Option<String>,
    /// Only made at this instant or later.
    pub since: Option<Timestamp>,
    /// Only made before this instant.
    pub until: Option<Timestamp>,
    /// Only of this request, or of this job.
    pub request_id: Option<Uuid>,
    /// Only of builds made for this reason.
    pub build_reason: Option<String>,
}

impl Filter {
    fn values(&self) -> Vec<Value> {
        values![
            self.organization_id,
            self.user_id,
            self.resource_type,
            self.resource_id,
            self.resource_target,
            self.action,
            self.since,
            self.until,
            self.request_id,
            self.build_reason,
        ]
    }
}

/// A page of the entries that a filter lets through, newest first.
///
/// # Errors
/// Only when the database fails.
pub async fn list(tx: &mut Tx, filter: &Filter, limit: i64, offset: i64) -> Result<Vec<Entry>> {
    let mut parameters = filter.values();
    parameters.extend(values![limit, offset]);
    let statement = if filter.organization_id.is_some() { &LIST_OF } else { &LIST };
    tx.fetch(statement, parameters).await?.iter().map(Entry::from_row).collect()
}

/// How many entries a filter lets through.
///
/// # Errors
/// Only when the database fails.
pub async fn count(tx: &mut Tx, filter: &Filter) -> Result<i64> {
    tx.fetch_one(&COUNT, filter.values()).await?.get("total")
}

/// Removes entries made before `before`.
///
/// # Errors
/// Only when the database fails.
pub async fn purge(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    tx.execute(&PURGE, values![before]).await
}
