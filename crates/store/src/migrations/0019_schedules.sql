-- Schedules are executed. When a workspace starts next follows from its schedule and its template's rules, so it is not stored.
alter table workspaces drop column next_start_us;
-- When the schedule task looks at a workspace again; null for not before a change. Each change stores another negative number,
-- so that the task notices a change that came while it looked.
alter table workspaces add column schedule_due_us bigint;
-- Why something that was due was not done.
alter table workspaces add column schedule_note text not null default '';
-- What builds by schedule get of the owner's credentials; null for what the last build got.
alter table workspaces add column schedule_credentials text;
update workspaces set schedule_due_us = -1 where not deleted;
create index workspaces_by_schedule_due on workspaces (schedule_due_us)
    where not deleted and schedule_due_us is not null;

create table user_quiet_hours (
    user_id text primary key references users (id) on delete cascade,
    schedule text not null
);
