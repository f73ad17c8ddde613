-- Why a daemon can run no jobs, as it told; empty when it can, or never said.
alter table provisioner_daemons add column problem text not null default '';
alter table provisioner_daemons add column problem_detail text not null default '';
