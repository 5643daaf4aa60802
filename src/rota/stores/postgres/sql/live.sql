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
