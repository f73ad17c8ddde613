-- Which archives of modules the daemon of a job uploaded for it; nobody else's count.
create table provisioner_job_uploads (
    job_id text not null references provisioner_jobs (id) on delete cascade,
    file_id text not null references files (id) on delete cascade,
    constraint provisioner_job_uploads__file_id primary key (job_id, file_id)
);

-- The token that a daemon joined with, its newest connection, and when that ended.
alter table provisioner_daemons add column joined_token text;
alter table provisioner_daemons add column connection text;
alter table provisioner_daemons add column left_us bigint;
create index provisioner_daemons_by_token on provisioner_daemons (joined_token) where joined_token is not null;

-- What servers told each other, for those that did not hear it. Positions are given in the order of commits.
create table changes (
    position bigint primary key,
    hint text not null,
    created_us bigint not null
);
create table change_counter (
    id bigint primary key,
    last bigint not null
);
insert into change_counter (id, last) values (1, 0);
