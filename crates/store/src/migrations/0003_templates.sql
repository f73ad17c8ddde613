-- Templates, their versions, and what an import found in a version.
create table templates (
    id text primary key,
    organization_id text not null references organizations (id),
    name text not null,
    name_lower text not null,
    display_name text not null,
    display_name_lower text not null,
    description text not null,
    icon text not null,
    provisioner text not null,
    active_version_id text not null,
    created_by text not null references users (id),
    deprecated text not null,
    settings text not null,
    created_us bigint not null,
    updated_us bigint not null,
    deleted boolean not null
);
create unique index templates__name_lower on templates (organization_id, name_lower) where not deleted;

create table template_versions (
    id text primary key,
    organization_id text not null references organizations (id),
    template_id text references templates (id),
    name text not null,
    message text not null,
    readme text not null,
    job_id text not null references provisioner_jobs (id),
    created_by text not null references users (id),
    source_example_id text not null,
    archived boolean not null,
    has_ai_task boolean,
    has_external_agent boolean,
    created_us bigint not null,
    updated_us bigint not null
);
create unique index template_versions__name on template_versions (template_id, name) where template_id is not null;
create unique index template_versions__job_id on template_versions (job_id);
create index template_versions_by_template on template_versions (template_id, created_us, id);

create table template_version_plans (
    template_version_id text primary key references template_versions (id) on delete cascade,
    plan blob not null,
    module_file_id text references files (id),
    provisioner_version text not null,
    updated_us bigint not null
);

create table template_version_variables (
    template_version_id text not null references template_versions (id) on delete cascade,
    name text not null,
    position bigint not null,
    description text not null,
    type text not null,
    value text not null,
    default_value text not null,
    required boolean not null,
    sensitive boolean not null,
    constraint template_version_variables__name primary key (template_version_id, name)
);

create table template_version_parameters (
    template_version_id text not null references template_versions (id) on delete cascade,
    name text not null,
    position bigint not null,
    definition text not null,
    constraint template_version_parameters__name primary key (template_version_id, name)
);

create table template_version_presets (
    id text primary key,
    template_version_id text not null references template_versions (id) on delete cascade,
    position bigint not null,
    name text not null,
    is_default boolean not null,
    description text not null,
    icon text not null,
    desired_instances bigint,
    parameters text not null,
    prebuild text not null
);
create unique index template_version_presets__name on template_version_presets (template_version_id, name);

create table template_version_workspace_tags (
    template_version_id text not null references template_versions (id) on delete cascade,
    key text not null,
    value text not null,
    constraint template_version_workspace_tags__key primary key (template_version_id, key)
);

create table template_version_external_auth (
    template_version_id text not null references template_versions (id) on delete cascade,
    provider_id text not null,
    position bigint not null,
    optional boolean not null,
    constraint template_version_external_auth__provider_id primary key (template_version_id, provider_id)
);
