-- The credential that minted a token or session, if it was not minted by a person who signed in. A key ends with its
-- parent: it is deleted with it, and `not_after_us` is the latest end that use can extend it to.
alter table api_keys add column parent_id text references api_keys (id) on delete cascade;
alter table api_keys add column not_after_us bigint;
create index api_keys_by_parent on api_keys (parent_id) where parent_id is not null;
