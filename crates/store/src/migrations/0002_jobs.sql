-- Provisioner keys and daemons, uploaded files, tag sets, jobs and what belongs to a job alone.
create table provisioner_keys (
    id text primary key,
    organization_id text not null references organizations (id),
    name text not null,
    name_lower text not null,
    hashed_secret blob not null,
    tags text not null,
    created_us bigint not null
);
create unique index provisioner_keys__name_lower on provisioner_keys (organization_id, name_lower);
create unique index provisioner_keys__hashed_secret on provisioner_keys (hashed_secret) where length(hashed_secret) > 0;

-- A daemon is the same one as long as organization, name and owner tag are (wire-protocol 1.8).
create table provisioner_daemons (
    id text primary key,
    organization_id text not null references organizations (id),
    name text not null,
    owner_tag text not null,
    key_id text not null references provisioner_keys (id) on delete cascade,
    provisioners text not null,
    tags text not null,
    version text not null,
    api_version text not null,
    created_us bigint not null,
    last_seen_us bigint
);
create unique index provisioner_daemons__owner_tag on provisioner_daemons (organization_id, name, owner_tag);
create index provisioner_daemons_by_key on provisioner_daemons (key_id);
create index provisioner_daemons_by_last_seen on provisioner_daemons (last_seen_us);

create table files (
    id text primary key,
    hash text not null,
    created_by text not null references users (id),
    mimetype text not null,
    size_bytes bigint not null,
    created_us bigint not null,
    data blob not null
);
create unique index files__created_by on files (hash, created_by);

-- Ids are given in the order of commits and without gaps, so that "newer than the last one I know" misses none.
create table tag_sets (
    id bigint primary key,
    tags text not null
);
create unique index tag_sets__tags on tag_sets (tags);

create table provisioner_jobs (
    id text primary key,
    organization_id text not null references organizations (id),
    initiator_id text not null references users (id),
    type text not null check (type in ('template_version_import', 'workspace_build', 'template_version_dry_run')),
    provisioner text not null,
    storage_method text not null,
    file_id text not null references files (id),
    tag_set_id bigint not null references tag_sets (id),
    prebuild boolean not null,
    template_version_id text,
    workspace_build_id text,
    input text not null,
    trace_metadata text not null,
    created_us bigint not null,
    updated_us bigint not null,
    started_us bigint,
    canceled_us bigint,
    completed_us bigint,
    error text not null,
    error_code text not null,
    worker_id text,
    session_nonce text,
    attempt bigint not null,
    logs_last_id bigint not null,
    logs_bytes bigint not null,
    logs_overflowed boolean not null
);
-- The claim takes the first entry of its set and type; queue sizes are counted from the index alone.
create index provisioner_jobs_waiting_by_set
    on provisioner_jobs (organization_id, tag_set_id, provisioner, prebuild, created_us, id)
    where started_us is null and completed_us is null and canceled_us is null;
create index provisioner_jobs_waiting
    on provisioner_jobs (prebuild, created_us, id)
    where started_us is null and completed_us is null and canceled_us is null;
create index provisioner_jobs_open on provisioner_jobs (updated_us) where completed_us is null;
create index provisioner_jobs_by_age on provisioner_jobs (created_us, id);
create index provisioner_jobs_by_worker on provisioner_jobs (worker_id, completed_us) where worker_id is not null;
create index provisioner_jobs_by_file on provisioner_jobs (file_id);

-- One row per batch of lines, as the daemon sent them; ids count lines from 1 in each job.
create table provisioner_job_logs (
    job_id text not null references provisioner_jobs (id) on delete cascade,
    first_id bigint not null,
    last_id bigint not null,
    output_bytes bigint not null,
    lines text not null,
    constraint provisioner_job_logs__first_id primary key (job_id, first_id)
);

create table provisioner_job_timings (
    job_id text not null references provisioner_jobs (id) on delete cascade,
    position bigint not null,
    stage text not null,
    source text not null,
    action text not null,
    resource text not null,
    started_us bigint not null,
    ended_us bigint not null,
    constraint provisioner_job_timings__position primary key (job_id, position)
);
