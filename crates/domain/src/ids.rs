//! One newtype per entity over a UUID, so that a template's id cannot be passed where a workspace's belongs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// The zero UUID; on the wire it means "not set" (http-api 1.5).
            pub const NIL: Self = Self(Uuid::nil());

            /// A new unique id. Newer ids sort after older ones, so that new rows are adjacent in the indexes of a
            /// database; nothing reads the time in it. It is not a secret.
            #[must_use]
            pub fn random() -> Self {
                Self(Uuid::now_v7())
            }

            /// Whether this is the zero UUID.
            #[must_use]
            pub const fn is_nil(self) -> bool {
                self.0.is_nil()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                Uuid::try_parse(text).map(Self)
            }
        }
    )*};
}

ids! {
    /// A person or service account.
    UserId,
    OrganizationId,
    TemplateId,
    TemplateVersionId,
    /// A preset of a template version.
    PresetId,
    WorkspaceId,
    /// One build of a workspace.
    BuildId,
    /// A provisioner job.
    JobId,
    /// A provisioner daemon's row; it owns jobs (wire-protocol 1.8).
    DaemonId,
    /// A provisioner key.
    KeyId,
    /// An uploaded file.
    FileId,
    /// A workspace resource.
    ResourceId,
    /// A workspace agent.
    AgentId,
    /// A workspace app.
    AppId,
    /// An agent script's log source.
    LogSourceId,
    /// An agent script.
    ScriptId,
}

impl KeyId {
    /// Reserved key of the daemons that run inside a server (scheduling-and-auth KEY-3).
    pub const BUILT_IN: Self = Self(Uuid::from_u128(1));
    /// Reserved key of daemons that joined with a user's token.
    pub const USER_AUTH: Self = Self(Uuid::from_u128(2));
    /// Reserved key of daemons that joined with the deployment's pre-shared key.
    pub const PSK: Self = Self(Uuid::from_u128(3));
}

impl UserId {
    /// The system user that starts prebuilds; its jobs queue after all others (scheduling-and-auth QUE-1).
    pub const PREBUILDS: Self = Self(Uuid::from_u128(0xc42f_df75_3097_471c_8c33_fb52_454d_81c0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_ids_have_their_published_text() {
        assert_eq!(KeyId::BUILT_IN.to_string(), "00000000-0000-0000-0000-000000000001");
        assert_eq!(KeyId::PSK.to_string(), "00000000-0000-0000-0000-000000000003");
        assert_eq!(UserId::PREBUILDS.to_string(), "c42fdf75-3097-471c-8c33-fb52454d81c0");
    }
}
