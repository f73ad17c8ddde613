//! The audit log.

use coder_domain::ids::{OrganizationId, UserId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::Result;
use crate::engine::{Tx, Value, record, sql, statements, values};

record! {
    pub struct Entry {
        pub id: Uuid,
        pub created_at: Timestamp = "created_us",
        /// Who.
        pub user_id: UserId,
        /// Where.
        pub organization_id: OrganizationId,
        /// The client's address.
        pub ip: String,
        /// The client's user agent.
        pub user_agent: String,
        /// The kind of the resource.
        pub resource_type: String,
        /// The id of the resource.
        pub resource_id: Uuid,
        /// Its name.
        pub resource_target: String,
        pub resource_icon: String,
        /// The action.
        pub action: String,
        /// The changed fields.
        pub diff: serde_json::Value,
        /// The HTTP status of the response.
        pub status_code: i64,
        /// More.
        pub additional_fields: serde_json::Value,
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
pub async fn insert(tx: &mut Tx, entry: &Entry) -> Result<()> {
    tx.execute_pipelined(&INSERT, entry.values(), false).await
}

/// Selects the entries of a list. All conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Only of this organization.
    pub organization_id: Option<OrganizationId>,
    /// Only by this user.
    pub user_id: Option<UserId>,
    /// Only about resources of this kind.
    pub resource_type: Option<String>,
    /// Only about this resource.
    pub resource_id: Option<Uuid>,
    /// Only about resources of this name.
    pub resource_target: Option<String>,
    /// Only this action.
    pub action: Option<String>,
    /// Only entries made at or after this instant.
    pub since: Option<Timestamp>,
    /// Only entries made before this instant.
    pub until: Option<Timestamp>,
    /// Only of this request, or of this job.
    pub request_id: Option<Uuid>,
    /// Only of builds made for this reason.
    pub build_reason: Option<String>,
}

impl AuditFilter {
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

/// A page of the entries that match a filter, newest first.
pub async fn list(tx: &mut Tx, filter: &AuditFilter, limit: i64, offset: i64) -> Result<Vec<Entry>> {
    let mut parameters = filter.values();
    parameters.extend(values![limit, offset]);
    let statement = if filter.organization_id.is_some() { &LIST_OF } else { &LIST };
    tx.fetch(statement, parameters).await?.iter().map(Entry::from_row).collect()
}

/// The number of entries that match a filter.
pub async fn count(tx: &mut Tx, filter: &AuditFilter) -> Result<i64> {
    tx.fetch_one(&COUNT, filter.values()).await?.get("total")
}

/// Removes entries made before `before`.
pub async fn purge(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    tx.execute(&PURGE, values![before]).await
}
