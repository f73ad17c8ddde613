-- Keys that all servers of a deployment share and that no person chose: of the relay, and of tokens that the server signs.
create table server_secrets (
    name text primary key,
    value text not null
);
