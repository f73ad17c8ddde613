-- Daemons refer to the same numbered tag sets as jobs do, so that those able to run a job are found without reading all.
alter table provisioner_daemons add column tag_set_id bigint;
insert into tag_sets (id, tags)
    select (select coalesce(max(id), 0) from tag_sets) + row_number() over (order by fresh.tags), fresh.tags
    from (select distinct tags from provisioner_daemons where tags not in (select tags from tag_sets)) as fresh;
update provisioner_daemons
    set tag_set_id = (select tag_sets.id from tag_sets where tag_sets.tags = provisioner_daemons.tags);
create index provisioner_daemons_by_tag_set on provisioner_daemons (organization_id, tag_set_id);
