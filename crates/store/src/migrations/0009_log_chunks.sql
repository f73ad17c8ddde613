-- Longer batches of log lines are compressed: `lines` is empty then. Shorter ones, and those of earlier releases, stay text.
alter table provisioner_job_logs add column packed blob;
