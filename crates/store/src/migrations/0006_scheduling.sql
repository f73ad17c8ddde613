-- The fair queue and its counts, jobs that outlive a connection, and keys that end.
alter table provisioner_keys add column expires_us bigint;
alter table provisioner_keys add column revoked_us bigint;
alter table provisioner_keys add column previous_secret blob;
alter table provisioner_keys add column previous_until_us bigint;
alter table provisioner_keys add column networks text not null default '[]';
alter table provisioner_keys add column last_used_us bigint;
alter table provisioner_keys add column last_used_address text not null default '';
-- A deleted key keeps its row until nothing refers to it; its name is free at once.
drop index provisioner_keys__name_lower;
create unique index provisioner_keys__name_lower on provisioner_keys (organization_id, name_lower)
    where revoked_us is null;
create unique index provisioner_keys__previous_secret on provisioner_keys (previous_secret)
    where previous_secret is not null;

alter table provisioner_daemons add column slots bigint not null default 1;
alter table provisioner_daemons add column busy bigint not null default 0;
alter table provisioner_daemons add column draining boolean not null default false;
alter table provisioner_daemons add column session_hash blob;

-- `attempt` is the epoch of the owner; `session_nonce` is not used any more.
alter table provisioner_jobs add column automatic boolean not null default false;
alter table provisioner_jobs add column session_hash blob;
alter table provisioner_jobs add column token_hash blob;
alter table provisioner_jobs add column lost_us bigint;
alter table provisioner_jobs add column logs_sequence bigint not null default 0;
update provisioner_jobs set automatic = true where prebuild;

-- Waiting and held jobs have indexes of their own, so that neither is looked for among the others.
drop index provisioner_jobs_waiting_by_set;
create index provisioner_jobs_waiting_by_line
    on provisioner_jobs (organization_id, tag_set_id, provisioner, automatic, initiator_id, created_us, id)
    where started_us is null and completed_us is null and canceled_us is null;
drop index provisioner_jobs_open;
create index provisioner_jobs_held on provisioner_jobs (updated_us, id)
    where started_us is not null and completed_us is null;
create index provisioner_jobs_lost on provisioner_jobs (lost_us, id)
    where lost_us is not null and completed_us is null;
create index provisioner_jobs_open_by_age on provisioner_jobs (organization_id, created_us, id)
    where completed_us is null;
drop index provisioner_jobs_by_age;
create index provisioner_jobs_by_age on provisioner_jobs (organization_id, created_us, id);

-- The lines of the fair queue (coder_domain::queue). Turns of automatic lines begin at 2^62, so that one look at the
-- least turn finds people's first.
create table queue_lines (
    organization_id text not null,
    initiator_id text not null,
    automatic boolean not null,
    provisioner text not null,
    tag_set_id bigint not null,
    turn bigint not null,
    waiting bigint not null,
    constraint queue_lines__tag_set_id primary key (organization_id, initiator_id, automatic, provisioner, tag_set_id)
);
create index queue_lines_heads on queue_lines (organization_id, tag_set_id, provisioner, turn) where waiting > 0;
create index queue_lines_by_turn on queue_lines (organization_id, turn);
insert into queue_lines (organization_id, initiator_id, automatic, provisioner, tag_set_id, turn, waiting)
    select organization_id, initiator_id, automatic, provisioner, tag_set_id,
    min(created_us) + case when automatic then 4611686018427387904 else 0 end, count(*)
    from provisioner_jobs where started_us is null and completed_us is null and canceled_us is null
    group by organization_id, initiator_id, automatic, provisioner, tag_set_id;

-- How many jobs wait, by the age of the jobs: for ranks without counting jobs one by one. A bucket of level 1 is 2^20
-- microseconds long, one of level 2 and 3 holds 64 of the level below. The whole deployment counts as the organization
-- of no name. A job counts in the shard that the last digit of its id chooses, so that transactions on
-- Postgres seldom meet.
create table queue_counts (
    organization_id text not null,
    provisioner text not null,
    tag_set_id bigint not null,
    prebuild boolean not null,
    level bigint not null,
    bucket bigint not null,
    shard bigint not null,
    total bigint not null,
    constraint queue_counts__shard
        primary key (organization_id, provisioner, tag_set_id, level, prebuild, bucket, shard)
);
insert into queue_counts (organization_id, provisioner, tag_set_id, prebuild, level, bucket, shard, total)
    select '', '', 0, prebuild, 1, created_us >> 20, (instr('0123456789abcdef', substr(id, 36, 1)) - 1) % 4, count(*)
    from provisioner_jobs where started_us is null and completed_us is null and canceled_us is null
    group by prebuild, created_us >> 20, (instr('0123456789abcdef', substr(id, 36, 1)) - 1) % 4;
insert into queue_counts (organization_id, provisioner, tag_set_id, prebuild, level, bucket, shard, total)
    select organization_id, provisioner, tag_set_id, prebuild, 1, created_us >> 20,
    (instr('0123456789abcdef', substr(id, 36, 1)) - 1) % 4, count(*)
    from provisioner_jobs where started_us is null and completed_us is null and canceled_us is null
    group by organization_id, provisioner, tag_set_id, prebuild, created_us >> 20,
    (instr('0123456789abcdef', substr(id, 36, 1)) - 1) % 4;
insert into queue_counts (organization_id, provisioner, tag_set_id, prebuild, level, bucket, shard, total)
    select organization_id, provisioner, tag_set_id, prebuild, 2, bucket >> 6, shard, cast(sum(total) as bigint)
    from queue_counts where level = 1
    group by organization_id, provisioner, tag_set_id, prebuild, bucket >> 6, shard;
insert into queue_counts (organization_id, provisioner, tag_set_id, prebuild, level, bucket, shard, total)
    select organization_id, provisioner, tag_set_id, prebuild, 3, bucket >> 6, shard, cast(sum(total) as bigint)
    from queue_counts where level = 2
    group by organization_id, provisioner, tag_set_id, prebuild, bucket >> 6, shard;

-- The newest state that a running job has sent, before its end; `cipher` is empty as long as states are not encrypted.
create table provisioner_job_journals (
    job_id text primary key references provisioner_jobs (id) on delete cascade,
    serial bigint not null,
    lineage text not null,
    sha256 blob not null,
    cipher text not null,
    state blob not null,
    updated_us bigint not null
);
create index audit_logs_by_organization on audit_logs (organization_id, created_us, id);
