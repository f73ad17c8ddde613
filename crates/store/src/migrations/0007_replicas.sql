-- Drains that outlive the server that was asked, whose token a daemon joined with, and the token before the newest, kept as
-- long as the newest was never used.
alter table provisioner_daemons add column drain_asked_us bigint;
alter table provisioner_daemons add column drain_reason text not null default '';
alter table provisioner_daemons add column joined_by text;
alter table provisioner_jobs add column previous_token_hash blob;
