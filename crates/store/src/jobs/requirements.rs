//! Which kinds of jobs wait at all: one cheap look, for servers whose wake-ups were lost.

use coder_domain::ids::OrganizationId;

use crate::Result;
use crate::engine::{Purpose, Tx, record, sql, statements};
use crate::tag_sets::TagSetId;

record! {
    /// What waiting jobs need.
    pub struct JobRequirements {
        /// Their organization.
        pub organization_id: OrganizationId,
        /// Their tags.
        pub tag_set_id: TagSetId,
        /// The type they need.
        pub provisioner: String,
    }
}

statements! { "queue_lines";
    /// Only lines in which somebody stands are in the index, and only the index is read.
    LIST = sql("select distinct organization_id, tag_set_id, provisioner from queue_lines where waiting > 0")
        .purpose(Purpose::Claim);
}

/// Each kind of waiting job once; usually none.
///
/// # Errors
/// Only when the database fails.
pub async fn list(tx: &mut Tx) -> Result<Vec<JobRequirements>> {
    tx.fetch(&LIST, Vec::new()).await?.iter().map(JobRequirements::from_row).collect()
}
