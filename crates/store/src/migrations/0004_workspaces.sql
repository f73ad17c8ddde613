-- Workspaces, their builds, and the resources, agents and apps that jobs made.
create table workspaces (
    id text primary key,
    organization_id text not null references organizations (id),
    owner_id text not null references users (id),
    template_id text not null references templates (id),
    name text not null,
    name_lower text not null,
    autostart_schedule text,
    ttl_ms bigint,
    automatic_updates text not null check (automatic_updates in ('always', 'never')),
    favorite boolean not null,
    created_us bigint not null,
    updated_us bigint not null,
    last_used_us bigint not null,
    dormant_us bigint,
    deleting_us bigint,
    next_start_us bigint,
    deleted boolean not null
);
create unique index workspaces__name_lower on workspaces (owner_id, name_lower) where not deleted;
create index workspaces_by_template on workspaces (template_id) where not deleted;
create index workspaces_by_organization on workspaces (organization_id) where not deleted;

create table workspace_builds (
    id text primary key,
    workspace_id text not null references workspaces (id),
    build_number bigint not null,
    template_version_id text not null references template_versions (id),
    template_version_preset_id text references template_version_presets (id),
    job_id text not null references provisioner_jobs (id),
    initiator_id text not null references users (id),
    transition text not null check (transition in ('start', 'stop', 'delete')),
    reason text not null,
    daily_cost bigint not null,
    deadline_us bigint,
    max_deadline_us bigint,
    has_ai_task boolean,
    has_external_agent boolean,
    created_us bigint not null,
    updated_us bigint not null
);
create unique index workspace_builds__build_number on workspace_builds (workspace_id, build_number);
create unique index workspace_builds__job_id on workspace_builds (job_id);
create index workspace_builds_by_version on workspace_builds (template_version_id);

-- Terraform's state of a build; apart, because lists must never load it.
create table workspace_build_states (
    workspace_build_id text primary key references workspace_builds (id) on delete cascade,
    state blob not null
);

create table workspace_build_parameters (
    workspace_build_id text not null references workspace_builds (id) on delete cascade,
    name text not null,
    value text not null,
    constraint workspace_build_parameters__name primary key (workspace_build_id, name)
);

create table workspace_resources (
    id text primary key,
    job_id text not null references provisioner_jobs (id) on delete cascade,
    position bigint not null,
    transition text not null check (transition in ('start', 'stop', 'delete')),
    type text not null,
    name text not null,
    hide boolean not null,
    icon text not null,
    instance_type text not null,
    daily_cost bigint not null,
    module_path text not null,
    metadata text not null,
    created_us bigint not null
);
create index workspace_resources_by_job on workspace_resources (job_id);

create table workspace_agents (
    id text primary key,
    resource_id text not null references workspace_resources (id) on delete cascade,
    parent_id text references workspace_agents (id) on delete cascade,
    position bigint not null,
    name text not null,
    auth_token text not null,
    auth_instance_id text not null,
    definition text not null,
    created_us bigint not null,
    updated_us bigint not null,
    lifecycle_state text not null,
    first_connected_us bigint,
    last_connected_us bigint,
    disconnected_us bigint,
    started_us bigint,
    ready_us bigint,
    version text not null,
    api_version text not null,
    expanded_directory text not null,
    subsystems text not null,
    logs_bytes bigint not null,
    logs_overflowed boolean not null,
    deleted boolean not null
);
create index workspace_agents_by_resource on workspace_agents (resource_id);
-- Not unique: a later build reports the same agent with the same token; the newest row counts.
create index workspace_agents_by_token on workspace_agents (auth_token);
create index workspace_agents_by_instance on workspace_agents (auth_instance_id) where auth_instance_id <> '';

create table workspace_apps (
    id text primary key,
    agent_id text not null references workspace_agents (id) on delete cascade,
    position bigint not null,
    slug text not null,
    definition text not null,
    health text not null,
    created_us bigint not null
);
create unique index workspace_apps__slug on workspace_apps (agent_id, slug);

create table workspace_modules (
    job_id text not null references provisioner_jobs (id) on delete cascade,
    transition text not null,
    position bigint not null,
    source text not null,
    version text not null,
    key text not null,
    constraint workspace_modules__position primary key (job_id, transition, position)
);
