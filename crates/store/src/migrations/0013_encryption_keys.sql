-- The keys that secrets are encrypted with, as far as is known; never the keys themselves. `complete_us` is when everything
-- was brought under a key. An empty id: everything was plain.
create table encryption_keys (
    id text primary key,
    proof text not null,
    created_us bigint not null,
    complete_us bigint
);
