//! Every place where the two engines get different texts, with the reason. Budget: ten.
//!
//! 1. `TABLE_EXISTS`: each engine has its own catalogue.
//! 2. `POSTGRES_MIGRATION_LOCK`: SQLite's write transaction is such a lock already.
//! 3. `CLAIM`: many Postgres sessions claim at once and must not wait for each other's rows; SQLite has one writer.

use super::statement::{Class, forked, statements};

/// Held until the migrations are committed, so that replicas that start together take turns.
pub(crate) const POSTGRES_MIGRATION_LOCK: &str = "select pg_advisory_xact_lock(4781296550)";

statements! { "schema_migrations";
    /// Whether the current schema has a table of this name.
    TABLE_EXISTS = forked(
        "select exists (select 1 from sqlite_master where type = 'table' and name = $1) as found",
        "select exists (select 1 from pg_catalog.pg_tables
            where tablename = $1 and schemaname = current_schema()) as found",
    );
}

pub(crate) mod claim {
    //! The claim: the oldest waiting job in the wanted sets, people before prebuilds (scheduling-and-auth QUE-1).
    use super::{Class, forked, statements};

    statements! { "provisioner_jobs";
        /// $1 organization, $2 provisioner types, $3 tag set ids, $4 daemon, $5 now, $6 session nonce.
        ///
        /// Each pair of set and type costs one look into the index of waiting jobs. `more` says whether another job
        /// of them waits, so that nobody has to ask in vain.
        CLAIM = forked(
            "update provisioner_jobs
            set started_us = $5, updated_us = $5, worker_id = $4, session_nonce = $6, attempt = attempt + 1
            where started_us is null and completed_us is null and canceled_us is null and id = (
                select head.id from provisioner_jobs as head
                where head.id in (
                    select (
                        select job.id from provisioner_jobs as job
                        where job.started_us is null and job.completed_us is null and job.canceled_us is null
                            and job.organization_id = $1 and job.provisioner = kind.value
                            and job.tag_set_id = cast(tags.value as bigint)
                        order by job.prebuild, job.created_us, job.id limit 1
                    ) from json_each($3) as tags, json_each($2) as kind
                )
                order by head.prebuild, head.created_us, head.id limit 1
            )
            returning id, exists (
                select 1 from json_each($3) as tags cross join json_each($2) as kind
                where exists (
                    select 1 from provisioner_jobs as other
                    where other.started_us is null and other.completed_us is null and other.canceled_us is null
                        and other.organization_id = $1 and other.provisioner = kind.value
                        and other.tag_set_id = cast(tags.value as bigint) and other.id <> provisioner_jobs.id
                )
            ) as more",
            "update provisioner_jobs
            set started_us = $5, updated_us = $5, worker_id = $4, session_nonce = $6, attempt = attempt + 1
            where started_us is null and completed_us is null and canceled_us is null and id = (
                select head.id
                from json_each($3) as tags cross join json_each($2) as kind
                cross join lateral (
                    select job.id, job.prebuild, job.created_us from provisioner_jobs as job
                    where job.started_us is null and job.completed_us is null and job.canceled_us is null
                        and job.organization_id = $1 and job.provisioner = kind.value
                        and job.tag_set_id = cast(tags.value as bigint)
                    order by job.prebuild, job.created_us, job.id limit 1
                    for update skip locked
                ) as head
                order by head.prebuild, head.created_us, head.id limit 1
            )
            returning id, exists (
                select 1 from json_each($3) as tags cross join json_each($2) as kind
                where exists (
                    select 1 from provisioner_jobs as other
                    where other.started_us is null and other.completed_us is null and other.canceled_us is null
                        and other.organization_id = $1 and other.provisioner = kind.value
                        and other.tag_set_id = cast(tags.value as bigint) and other.id <> provisioner_jobs.id
                )
            ) as more",
        ).class(Class::Claim);
    }
}
