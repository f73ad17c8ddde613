-- What agents report while they run. Contacts have a table of their own, because each of them changes every 15 seconds and
-- the rows of workspace_agents are wide; its columns for contacts stay empty.
create table workspace_agent_connections (
    agent_id text primary key references workspace_agents (id) on delete cascade,
    -- The newest connection; its name begins with that of the server process.
    connection text not null,
    first_connected_us bigint not null,
    last_connected_us bigint not null,
    disconnected_us bigint
);

alter table workspace_agents add column logs_last_id bigint not null default 0;

-- A batch of lines of one source is one row.
create table workspace_agent_logs (
    agent_id text not null references workspace_agents (id) on delete cascade,
    first_id bigint not null,
    last_id bigint not null,
    source_id text not null,
    created_us bigint not null,
    lines text not null,
    constraint workspace_agent_logs__first_id primary key (agent_id, first_id)
);
create index workspace_agent_logs_by_time on workspace_agent_logs (created_us);

-- Sources of logs beside the agent's scripts.
create table workspace_agent_log_sources (
    agent_id text not null references workspace_agents (id) on delete cascade,
    id text not null,
    display_name text not null,
    icon text not null,
    created_us bigint not null,
    constraint workspace_agent_log_sources__id primary key (agent_id, id)
);

-- The newest value of each item that the definition names.
create table workspace_agent_metadata (
    agent_id text not null references workspace_agents (id) on delete cascade,
    key text not null,
    value text not null,
    error text not null,
    collected_us bigint not null,
    constraint workspace_agent_metadata__key primary key (agent_id, key)
);

-- The newest run of each script in each stage.
create table workspace_agent_script_timings (
    agent_id text not null references workspace_agents (id) on delete cascade,
    script_id text not null,
    stage text not null,
    status text not null,
    exit_code bigint not null,
    started_us bigint not null,
    ended_us bigint not null,
    constraint workspace_agent_script_timings__stage primary key (agent_id, script_id, stage)
);

-- Sessions that agents report.
create table workspace_connections (
    agent_id text not null references workspace_agents (id) on delete cascade,
    id text not null,
    type text not null,
    ip text not null,
    connected_us bigint not null,
    disconnected_us bigint,
    status_code bigint not null,
    reason text not null,
    constraint workspace_connections__id primary key (agent_id, id)
);
create index workspace_connections_by_time on workspace_connections (connected_us);

create table workspace_port_shares (
    workspace_id text not null references workspaces (id) on delete cascade,
    agent_name text not null,
    port bigint not null,
    share_level text not null,
    protocol text not null,
    constraint workspace_port_shares__port primary key (workspace_id, agent_name, port)
);
