-- name: events_after  one row without an event if there is none
select f.pruned, f.hidden, e.id, e.at, e.name, e.space_id, e.task_id, e.run_id, e.data, e.xact::text as xact
from (
  select (select value from rota.facts where name = 'events_pruned') as pruned,
    exists (select 1 from rota.events
      where xact >= pg_snapshot_xmin(pg_current_snapshot())) as hidden
) f
left join lateral (
  select * from rota.events
  where (xact, id) > (:xact::text::xid8, :after::bigint)
    and xact < pg_snapshot_xmin(pg_current_snapshot())
  order by xact, id limit :most::int
) e on true
order by e.xact, e.id;

-- name: run_events_after  the same for one run
select f.pruned, f.hidden, e.id, e.at, e.name, e.space_id, e.task_id, e.run_id, e.data, e.xact::text as xact
from (
  select (select value from rota.facts where name = 'events_pruned') as pruned,
    exists (select 1 from rota.events
      where xact >= pg_snapshot_xmin(pg_current_snapshot())) as hidden
) f
left join lateral (
  select * from rota.events
  where run_id = :run_id::bigint and run_id is not null and (xact, id) > (:xact::text::xid8, :after::bigint)
    and xact < pg_snapshot_xmin(pg_current_snapshot())
  order by xact, id limit :most::int
) e on true
order by e.xact, e.id;

-- name: events_end
select (select value from rota.facts where name = 'events_pruned') as pruned, e.xact::text as xact,
  e.id
from (select 1) one
left join lateral (
  select * from rota.events where xact < pg_snapshot_xmin(pg_current_snapshot())
  order by xact desc, id desc limit 1
) e on true;

-- name: tally_events
with page as materialized (
  select id, xact, name, data from rota.events
  where (xact, id) > (:xact::text::xid8, :after::bigint)
    and xact < pg_snapshot_xmin(pg_current_snapshot())
  order by xact, id limit :most::int
)
select name, case name when 'run.settled' then coalesce(data::jsonb ->> 'state', '') else '' end
  as state, count(*), max(xact::text::bigint)::text as xact,
  (array_agg(id order by xact desc, id desc))[1] as id
from page group by 1, 2;

-- name: tally_lateness  of runs that began at their first attempt, by how many bounds are passed
with page as materialized (
  select id, name, run_id from rota.events
  where (xact, id) > (:xact::text::xid8, :after::bigint)
    and xact < pg_snapshot_xmin(pg_current_snapshot())
  order by xact, id limit :most::int
), late as (
  select greatest(0, r.started_at - r.slot_at) as micros
  from page p join rota.runs r on r.id = p.run_id
  where p.name = 'run.settled' and r.source = 'slot' and r.epoch = 1 and r.started_at is not null
)
select (select count(*) from unnest(:bounds::bigint[]) b where b < micros)::int as bucket, count(*),
  sum(micros)
from late group by 1;

-- name: count_skipped
select reason, sum(count) from (
  select reason, count from rota.ledger order by id desc limit :most::int) newest
group by reason order by reason;

-- name: read_fact
select value from rota.facts where name = :name::text;
