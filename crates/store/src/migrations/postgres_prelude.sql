-- What the portable dialect needs and Postgres lacks: SQLite's two JSON functions over text, and its name for bytes.
create domain blob as bytea;

-- Not in plain SQL: then Postgres would look inside, take every list for a hundred rows, and read small tables whole
-- instead of looking a few ids up.
create function json_each(document text) returns table (key bigint, value text)
language plpgsql immutable parallel safe rows 4 as $$
begin
    return query select item.number - 1, item.content
    from json_array_elements_text(document::json) with ordinality as item (content, number);
end
$$;

-- Paths are always `$.name`.
create function json_extract(document text, path text) returns text
language sql immutable parallel safe as $$
    select document::json ->> substr(path, 3)
$$;

create function instr(document text, part text) returns integer
language sql immutable parallel safe as $$
    select strpos(document, part)
$$;
