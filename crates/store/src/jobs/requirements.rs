//! The requirements of waiting jobs: one cheap query, for servers that missed a wake-up.

use coder_domain::ids::OrganizationId;

use crate::Result;
use crate::engine::{Purpose, Tx, record, sql, statements};
use crate::tag_sets::TagSetId;

record! {
    /// The requirements of waiting jobs.
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
    /// The partial index contains only sub-queues that are not empty, and only the index is read.
    LIST = sql("select distinct organization_id, tag_set_id, provisioner from queue_lines where waiting > 0")
        .purpose(Purpose::Claim);
}

/// Each distinct requirement of the waiting jobs; usually none.
pub async fn list(tx: &mut Tx) -> Result<Vec<JobRequirements>> {
    tx.fetch(&LIST, Vec::new()).await?.iter().map(JobRequirements::from_row).collect()
}
