//! The number of waiting jobs by requirements, for metrics. Read at most once per scrape.

use coder_domain::ids::OrganizationId;
use coder_domain::tags::TagSet;
use jiff::Timestamp;

use crate::Result;
use crate::engine::{Tx, record, sql, statements};

record! {
    /// Waiting jobs with equal organization and tags.
    pub struct Backlog {
        /// Their organization.
        pub organization_id: OrganizationId,
        /// Their tags.
        pub tags: TagSet,
        /// How many.
        pub waiting: i64,
        /// When the oldest of them was created.
        pub oldest_at: Option<Timestamp> = "oldest_us",
    }
}

statements! { "queue_lines";
    /// The sub-queues hold the counts. The oldest job of each is found in an index.
    LIST = sql("select line.organization_id, interned.tags, cast(sum(line.waiting) as bigint) as waiting,
        min(line.oldest_us) as oldest_us from (
            select queued.organization_id, queued.tag_set_id, queued.waiting, (
                select min(job.created_us) from provisioner_jobs as job
                where job.started_us is null and job.completed_us is null and job.canceled_us is null
                and job.organization_id = queued.organization_id and job.tag_set_id = queued.tag_set_id
                and job.provisioner = queued.provisioner and job.automatic = queued.automatic
                and job.initiator_id = queued.initiator_id) as oldest_us
            from queue_lines as queued where queued.waiting > 0
        ) as line join tag_sets as interned on interned.id = line.tag_set_id
        group by line.organization_id, interned.tags");
}

/// The backlog of the whole deployment.
pub async fn list(tx: &mut Tx) -> Result<Vec<Backlog>> {
    tx.fetch(&LIST, vec![]).await?.iter().map(Backlog::from_row).collect()
}
