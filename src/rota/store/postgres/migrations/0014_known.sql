-- Whether an attempt could write to somewhere outside, through the gateway.
alter table rota.kept add column writes integer not null default 0;

-- Since when a task is disabled; null where nobody has noted it.
alter table rota.tasks add column disabled_at bigint;
