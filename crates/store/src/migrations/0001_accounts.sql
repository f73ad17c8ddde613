-- People, their credentials, organizations, and settings of the deployment.
create table settings (
    key text primary key,
    value text not null
);

create table organizations (
    id text primary key,
    name text not null,
    name_lower text not null,
    display_name text not null,
    description text not null,
    icon text not null,
    is_default boolean not null,
    created_us bigint not null,
    updated_us bigint not null,
    deleted boolean not null
);
create unique index organizations__name_lower on organizations (name_lower) where not deleted;
create unique index organizations__is_default on organizations (is_default) where is_default;

create table users (
    id text primary key,
    username text not null,
    username_lower text not null,
    email text not null,
    email_lower text not null,
    name text not null,
    name_lower text not null,
    avatar_url text not null,
    theme_preference text not null,
    status text not null check (status in ('active', 'dormant', 'suspended')),
    login_type text not null check (login_type in ('password', 'github', 'oidc', 'token', 'none', '')),
    password_hash text not null,
    site_roles text not null,
    is_system boolean not null,
    created_us bigint not null,
    updated_us bigint not null,
    last_seen_us bigint,
    deleted boolean not null
);
create unique index users__username_lower on users (username_lower) where not deleted;
create unique index users__email_lower on users (email_lower) where not deleted and email_lower <> '';

create table git_ssh_keys (
    user_id text primary key references users (id) on delete cascade,
    public_key text not null,
    private_key text not null,
    created_us bigint not null,
    updated_us bigint not null
);

create table organization_members (
    organization_id text not null references organizations (id) on delete cascade,
    user_id text not null references users (id) on delete cascade,
    roles text not null,
    created_us bigint not null,
    updated_us bigint not null,
    constraint organization_members__user_id primary key (organization_id, user_id)
);
create index organization_members_by_user on organization_members (user_id);

create table api_keys (
    id text primary key,
    user_id text not null references users (id) on delete cascade,
    hashed_secret blob not null,
    login_type text not null,
    token_name text not null,
    scopes text not null,
    allow_list text not null,
    lifetime_seconds bigint not null,
    ip_address text not null,
    created_us bigint not null,
    updated_us bigint not null,
    last_used_us bigint not null,
    expires_us bigint not null
);
create unique index api_keys__token_name on api_keys (user_id, token_name) where token_name <> '';
create index api_keys_by_expiry on api_keys (expires_us);
