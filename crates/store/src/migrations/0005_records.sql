-- Who may do once-only work, and who did what.
create table leases (
    name text primary key,
    holder text not null,
    expires_us bigint not null
);

create table audit_logs (
    id text primary key,
    created_us bigint not null,
    user_id text not null,
    organization_id text not null,
    ip text not null,
    user_agent text not null,
    resource_type text not null,
    resource_id text not null,
    resource_target text not null,
    resource_icon text not null,
    action text not null,
    diff text not null,
    status_code bigint not null,
    additional_fields text not null,
    request_id text not null
);
create index audit_logs_by_time on audit_logs (created_us, id);
