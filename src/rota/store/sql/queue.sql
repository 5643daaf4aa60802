-- A plan is made once a connection, often on empty tables, and must still be right on full ones.
-- So keys lead through a lateral with a limit or an offset, which fixes the order of the join; and
-- where rows are named by their ids, what else must be true of them is hidden in a coalesce,
-- because the planner would otherwise prefer a partial index that happens to be empty.

-- name: insert_like  many runs that differ only in their payload
insert into rota.runs (space_id, task_id, state, place, pool, priority, available_at, route, grp,
  metered, source, epoch, cause, created_at, lane, expires_at, upstream_id, depth, thread, payload)
select :space_id::bigint, :task_id::bigint, 'queued', :place::text, :pool::text, :priority::int,
  :available_at::bigint, :route::text, :grp::text, :metered::int, :source::text, 0, 'first',
  :created_at::bigint, :lane::text, :expires_at::bigint, :upstream_id::bigint, :depth::int,
  :thread::text, p.payload
from unnest(:payloads::text[]) with ordinality as p(payload, n)
order by p.n
returning id;

-- name: insert_one
insert into rota.runs (space_id, task_id, state, place, pool, priority, available_at, route, grp,
  metered, source, epoch, cause, created_at, lane, expires_at, upstream_id, depth, thread, payload)
values (:space_id::bigint, :task_id::bigint, 'queued', :place::text, :pool::text, :priority::int,
  :available_at::bigint, :route::text, :grp::text, :metered::int, :source::text, 0, 'first',
  :created_at::bigint, :lane::text, :expires_at::bigint, :upstream_id::bigint, :depth::int,
  :thread::text, :payload::text)
returning id;

-- name: insert_runs  runs that differ in anything; 0 stands for one whose key or slot is taken
with w as materialized (
  select nextval('rota.runs_id_seq') as id, j.*
  from (
    select * from jsonb_to_recordset(:rows::text::jsonb) as r(n int, space_id bigint,
      task_id bigint, place text, pool text, priority int, available_at bigint, route text,
      grp text, metered int, source text, created_at bigint, lane text, expires_at bigint,
      upstream_id bigint, depth int, thread text, payload text, key text, schedule_id bigint,
      slot_key text, slot_at bigint)
    order by n
  ) j
),
made as (
  insert into rota.runs (id, space_id, task_id, state, place, pool, priority, available_at, route,
    grp, metered, source, epoch, cause, created_at, lane, expires_at, upstream_id, depth, thread,
    payload, key, schedule_id, slot_key, slot_at)
  select id, space_id, task_id, 'queued', place, pool, priority, available_at, route, grp, metered,
    source, 0, 'first', created_at, lane, expires_at, upstream_id, depth, thread, payload, key,
    schedule_id, slot_key, slot_at
  from w order by n
  on conflict do nothing
  returning id
)
select case when count(*) = 2 then each.id else 0 end as id
from (select id, n from w union all select id, null from made) each
group by each.id order by min(each.n);

-- name: existing_runs  runs that stand for the same key or slot
with w as materialized (
  select * from jsonb_to_recordset(:rows::text::jsonb) as j(task_id bigint, key text,
    schedule_id bigint, slot_key text)
)
select r.id, r.task_id, r.key, r.schedule_id, r.slot_key, r.payload
from w cross join lateral (
  select * from rota.runs q where q.task_id = w.task_id and q.key = w.key and q.key is not null
  limit 1
) r
union all
select r.id, r.task_id, null, r.schedule_id, r.slot_key, r.payload
from w cross join lateral (
  select * from rota.runs q
  where q.schedule_id = w.schedule_id and q.slot_key = w.slot_key and q.schedule_id is not null
  limit 1
) r;

-- name: insert_ping
insert into rota.pings (pool, space_id, route, grp, metered, lane)
values (:pool::text, :space_id::bigint, :route::text, :grp::text, :metered::int, :lane::text);

-- name: insert_pings
insert into rota.pings (pool, space_id, route, grp, metered, lane)
select w.pool, w.space_id, w.route, w.grp, w.metered, w.lane
from jsonb_to_recordset(:rows::text::jsonb) as w(pool text, space_id bigint, route text, grp text,
  metered int, lane text);

-- name: take_pings  and whether the queue is quiet: no head open, nothing limited
with taken as (
  -- skipping those that somebody holds, so that nobody waits here
  delete from rota.pings where id = any(array(
    select id from rota.pings
    where not exists (select 1 from rota.facts where name = 'paused')
      and not exists (select 1 from rota.workers where id = :worker::text and fenced = 1)
    order by id limit :most::int for update skip locked))
  returning pool, space_id, route, grp, metered, lane
)
select taken.*, (not exists (select 1 from rota.heads where open = 1)
  and not exists (select 1 from rota.limits)) as quiet
from taken;

-- name: open_new_heads  a head that comes anew goes behind everybody, unless its space has a turn
insert into rota.heads (pool, space_id, route, grp, metered, gate, open, turn)
select w.pool, w.space_id, w.route, w.grp, w.metered,
  case when exists (select 1 from rota.limits l where l.scope = 'group' and l.key = w.grp)
    then w.grp else '' end,
  1,
  coalesce((select max(h.turn) from rota.heads h
    where h.pool = w.pool and h.space_id = w.space_id), :now::bigint)
from jsonb_to_recordset(:rows::text::jsonb) as w(pool text, space_id bigint, route text, grp text,
  metered int)
where true
on conflict (pool, space_id, route, grp, metered) do update set open = 1 where heads.open = 0;

-- name: reopen_heads
update rota.heads set open = 1 where id = any(array(
  select h.id from jsonb_to_recordset(:rows::text::jsonb) as w(pool text, space_id bigint)
  cross join lateral (
    select s.id from rota.heads s
    where s.pool = w.pool and s.space_id = w.space_id and s.open = 0 offset 0
  ) h));

-- name: view_lanes  who runs, who is ready, and who should be
select w.space_id, w.lane, (running.id is not null)::int as busy, current.id as current,
  best.id as best
from jsonb_to_recordset(:rows::text::jsonb) as w(space_id bigint, lane text)
left join lateral (
  select r.id from rota.runs r
  where r.state = 'running' and r.lane is not null and r.space_id = w.space_id and r.lane = w.lane
  limit 1
) running on true
left join lateral (
  select r.id from rota.runs r
  where r.place = 'ready' and r.lane is not null and r.space_id = w.space_id and r.lane = w.lane
  limit 1
) current on true
left join lateral (
  select r.id from rota.runs r
  where r.place in ('ready', 'held') and r.lane is not null and r.space_id = w.space_id
    and r.lane = w.lane
  order by r.pool desc, r.priority desc, r.available_at, r.id limit 1
) best on true;

-- name: hold_runs
update rota.runs set place = 'held' where id in (
  select id from rota.runs where id = any(:ids::bigint[]) and coalesce(place, '') = 'ready'
  order by id for update skip locked);

-- name: ready_runs  but for those that somebody holds, and those whose lane still has a head
update rota.runs set place = 'ready' where id in (
  select q.id from rota.runs q
  left join lateral (
    select h.id from rota.runs h where h.place = 'ready' and h.lane is not null
      and h.space_id = q.space_id and h.lane = q.lane limit 1
  ) head on true
  where q.id = any(:ids::bigint[]) and coalesce(q.place, '') = 'held' and head.id is null
  order by q.id for update of q skip locked)
returning id, pool, space_id, route, grp, metered;

-- name: lanes_of
select pool, space_id, lane from rota.runs where id = any(:ids::bigint[]) and lane is not null;

-- name: find_heads  one step in the index for each combination, not for each run
with recursive h as (
  (select pool, space_id, route, grp, metered from rota.runs where place = 'ready'
    order by pool, space_id, route, grp, metered limit 1)
  union all
  select n.pool, n.space_id, n.route, n.grp, n.metered
  from h cross join lateral (
    select pool, space_id, route, grp, metered from rota.runs r
    where r.place = 'ready' and (r.pool, r.space_id, r.route, r.grp, r.metered)
      > (h.pool, h.space_id, h.route, h.grp, h.metered)
    order by r.pool, r.space_id, r.route, r.grp, r.metered limit 1
  ) n
)
select pool, space_id, route, grp, metered from h;

-- name: find_lanes  one step in the index for each lane, not for each run
with recursive l as (
  (select pool, space_id, lane from rota.runs
    where place in ('ready', 'held') and lane is not null order by space_id, lane limit 1)
  union all
  select n.pool, n.space_id, n.lane
  from l cross join lateral (
    select pool, space_id, lane from rota.runs r
    where r.place in ('ready', 'held') and r.lane is not null
      and (r.space_id, r.lane) > (l.space_id, l.lane)
    order by r.space_id, r.lane limit 1
  ) n
)
select pool, space_id, lane from l;

-- name: is_barred  a worker that is fenced, and everybody while everything is paused
select 1 from rota.workers where id = :worker::text and fenced = 1
union all select 1 from rota.facts where name = 'paused';
