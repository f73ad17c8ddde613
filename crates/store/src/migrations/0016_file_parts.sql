-- Long files are kept in parts of 256 KiB, so that neither storing nor reading one takes its length in memory. Files that were
-- stored before stay as they are.
create table file_parts (
    id text primary key,
    file_id text not null references files (id) on delete cascade,
    position bigint not null,
    data blob not null
);
create unique index file_parts__position on file_parts (file_id, position);

alter table files add column in_parts boolean not null default false;

-- When the same content was uploaded again; a file that nothing references is kept for a while after that.
alter table files add column uploaded_us bigint;

create index files_by_uploader on files (created_by, created_us);
create index template_version_plans_by_module_file on template_version_plans (module_file_id);
create index provisioner_job_uploads_by_file on provisioner_job_uploads (file_id);
