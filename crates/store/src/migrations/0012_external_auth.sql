-- Accounts elsewhere that users have connected. `tokens` is a JSON document, encrypted like Terraform's states;
-- `generation` grows with each new document.
create table external_auth_links (
    user_id text not null references users (id) on delete cascade,
    provider_id text not null,
    tokens blob not null,
    expires_us bigint,
    refresh_failure text not null,
    generation bigint not null,
    created_us bigint not null,
    updated_us bigint not null,
    constraint external_auth_links__provider_id primary key (user_id, provider_id)
);
