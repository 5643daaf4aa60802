-- Whether an attempt could write to somewhere outside, through the gateway.
alter table kept add column writes integer not null default 0;

-- Since when a task is disabled; null where nobody has noted it.
alter table tasks add column disabled_at integer;
