//! The audit log: who changed what, when and from where. The entry is written in the transaction of the change, so neither
//! exists without the other (scheduling-and-auth 5.4).

pub mod job_end;

use coder_domain::Timestamp;
use coder_domain::ids::{OrganizationId, UserId};
use coder_store::{Tx, audit};
use http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::http::caller::Caller;
use crate::http::origin::Origin;

/// What was done; the words of the official log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Something was made.
    Create,
    /// Something was changed.
    Write,
    /// Something was removed.
    Delete,
    /// A login with a password, successful or not.
    Login,
    /// A session was ended.
    Logout,
    /// The first account was made.
    Register,
    /// A workspace was started, by a build that has ended.
    Start,
    /// A workspace was stopped, by a build that has ended.
    Stop,
}

impl Verb {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Write => "write",
            Self::Delete => "delete",
            Self::Login => "login",
            Self::Logout => "logout",
            Self::Register => "register",
            Self::Start => "start",
            Self::Stop => "stop",
        }
    }
}

/// Kinds of objects in the log. Provisioner keys, provisioner daemons and files are ours: the official log has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An account.
    User,
    /// A session or token.
    ApiKey,
    Organization,
    /// A membership and its roles.
    Member,
    ProvisionerKey,
    ProvisionerDaemon,
    Template,
    TemplateVersion,
    Workspace,
    WorkspaceBuild,
    /// An uploaded archive.
    File,
    /// A user's key pair for Git.
    GitSshKey,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::ApiKey => "api_key",
            Self::Organization => "organization",
            Self::Member => "organization_member",
            Self::ProvisionerKey => "provisioner_key",
            Self::ProvisionerDaemon => "provisioner_daemon",
            Self::Template => "template",
            Self::TemplateVersion => "template_version",
            Self::Workspace => "workspace",
            Self::WorkspaceBuild => "workspace_build",
            Self::File => "file",
            Self::GitSshKey => "git_ssh_key",
        }
    }
}

/// An audit entry that is not written yet.
#[derive(Clone, Debug)]
#[must_use = "an event that is not written is lost"]
pub struct Event {
    verb: Verb,
    kind: Kind,
    id: Uuid,
    target: String,
    icon: String,
    organization: OrganizationId,
    diff: Map<String, Value>,
    more: Map<String, Value>,
    status: StatusCode,
}

impl Event {
    /// An entry about the object with this id and name.
    pub fn new(verb: Verb, kind: Kind, id: Uuid, target: impl Into<String>) -> Self {
        let status = if matches!(verb, Verb::Create | Verb::Login | Verb::Register) {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        };
        Self {
            verb,
            kind,
            id,
            target: target.into(),
            icon: String::new(),
            organization: OrganizationId::NIL,
            diff: Map::new(),
            more: Map::new(),
            status,
        }
    }

    /// The organization of the object. Its auditors may see the entry.
    pub const fn in_organization(mut self, organization: OrganizationId) -> Self {
        self.organization = organization;
        self
    }

    /// The icon of the object.
    pub fn icon(mut self, icon: impl Into<String>) -> Self {
        self.icon = icon.into();
        self
    }

    /// Adds a field, if it changed.
    pub fn change(mut self, field: &str, old: impl Serialize, new: impl Serialize) -> Self {
        let read = |value: Result<Value, serde_json::Error>| value.unwrap_or(Value::Null);
        let (old, new) = (read(serde_json::to_value(old)), read(serde_json::to_value(new)));
        if old != new {
            self.diff.insert(field.to_owned(), json!({ "old": old, "new": new, "secret": false }));
        }
        self
    }

    /// Adds a secret field that changed, without its values.
    pub fn secret(mut self, field: &str) -> Self {
        self.diff.insert(field.to_owned(), json!({ "old": "", "new": "", "secret": true }));
        self
    }

    /// Adds an additional field.
    pub fn note(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.more.insert(key.to_owned(), value.into());
        self
    }

    /// The status of the response, where it is not the default.
    pub const fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Writes the entry of an authenticated caller.
    pub async fn by(self, tx: &mut Tx, caller: &Caller, now: Timestamp) -> coder_store::Result<()> {
        self.write(tx, caller.user.id, &caller.origin, now).await
    }

    /// Writes the entry.
    pub async fn write(
        self,
        tx: &mut Tx,
        who: UserId,
        origin: &Origin,
        now: Timestamp,
    ) -> coder_store::Result<()> {
        let entry = audit::Entry {
            id: Uuid::now_v7(),
            created_at: now,
            user_id: who,
            organization_id: self.organization,
            ip: origin.ip(),
            user_agent: origin.user_agent.clone(),
            resource_type: self.kind.as_str().to_owned(),
            resource_id: self.id,
            resource_target: self.target,
            resource_icon: self.icon,
            action: self.verb.as_str().to_owned(),
            diff: Value::Object(self.diff),
            status_code: i64::from(self.status.as_u16()),
            additional_fields: Value::Object(self.more),
            request_id: origin.request,
        };
        audit::insert(tx, &entry).await?;
        tx.after_commit(move || log(&entry));
        Ok(())
    }
}

/// Writes the entry to the server's log as well, for log collectors (scheduling-and-auth 5.4).
fn log(entry: &audit::Entry) {
    tracing::info!(
        ID = %entry.id,
        Time = %entry.created_at,
        UserID = %entry.user_id,
        OrganizationID = %entry.organization_id,
        Ip = entry.ip,
        UserAgent = entry.user_agent,
        ResourceType = entry.resource_type,
        ResourceID = %entry.resource_id,
        ResourceTarget = entry.resource_target,
        Action = entry.action,
        Diff = %entry.diff,
        StatusCode = entry.status_code,
        AdditionalFields = %entry.additional_fields,
        RequestID = %entry.request_id,
        ResourceIcon = entry.resource_icon,
        "audit_log"
    );
}
