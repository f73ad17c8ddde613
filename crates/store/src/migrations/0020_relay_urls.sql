-- The servers of the deployment that others can connect to, by process. A row that is not renewed is of a dead process.
create table replicas (
    id text primary key,
    relay_url text not null,
    seen_us bigint not null
);
