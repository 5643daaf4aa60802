-- name: insert_like  many runs that differ only in their payload
insert into runs (space_id, task_id, state, place, pool, priority, available_at, route, grp, metered,
  source, epoch, cause, created_at, lane, expires_at, upstream_id, depth, thread, payload)
select :space_id, :task_id, 'queued', :place, :pool, :priority, :available_at, :route, :grp, :metered,
  :source, 0, 'first', :created_at, :lane, :expires_at, :upstream_id, :depth, :thread, value
from json_each(:payloads);

-- name: insert_one
insert into runs (space_id, task_id, state, place, pool, priority, available_at, route, grp, metered,
  source, epoch, cause, created_at, lane, expires_at, upstream_id, depth, thread, payload)
values (:space_id, :task_id, 'queued', :place, :pool, :priority, :available_at, :route, :grp,
  :metered, :source, 0, 'first', :created_at, :lane, :expires_at, :upstream_id, :depth, :thread,
  :payload);

-- name: insert_runs  runs that differ in anything
insert into runs (space_id, task_id, state, place, pool, priority, available_at, route, grp, metered,
  source, epoch, cause, created_at, lane, expires_at, upstream_id, depth, thread, payload,
  key, schedule_id, slot_key, slot_at)
select value ->> 'space_id', value ->> 'task_id', 'queued', value ->> 'place', value ->> 'pool',
  value ->> 'priority', value ->> 'available_at', value ->> 'route', value ->> 'grp',
  value ->> 'metered', value ->> 'source', 0, 'first', value ->> 'created_at', value ->> 'lane',
  value ->> 'expires_at', value ->> 'upstream_id', value ->> 'depth', value ->> 'thread',
  value ->> 'payload', value ->> 'key', value ->> 'schedule_id', value ->> 'slot_key',
  value ->> 'slot_at'
from jsonb_each(:rows);

-- name: existing_runs  runs that stand for the same key or slot
select r.id, r.task_id, r.key, r.schedule_id, r.slot_key, r.payload
from jsonb_each(:rows) w join runs r on r.task_id = w.value ->> 'task_id' and r.key = w.value ->> 'key'
where r.key is not null
union all
select r.id, r.task_id, null, r.schedule_id, r.slot_key, r.payload
from jsonb_each(:rows) w
join runs r on r.schedule_id = w.value ->> 'schedule_id' and r.slot_key = w.value ->> 'slot_key'
where r.schedule_id is not null;

-- name: insert_ping
insert into pings (pool, space_id, route, grp, metered, lane)
values (:pool, :space_id, :route, :grp, :metered, :lane);

-- name: insert_pings
insert into pings (pool, space_id, route, grp, metered, lane)
select value ->> 'pool', value ->> 'space_id', value ->> 'route', value ->> 'grp',
  value ->> 'metered', value ->> 'lane'
from jsonb_each(:rows);

-- name: take_pings  and whether the queue is quiet: no head open, nothing limited
delete from pings where id in (select id from pings order by id limit :most)
  and not exists (select 1 from facts where name = 'paused')
  and not exists (select 1 from workers where id = :worker and fenced = 1)
returning pool, space_id, route, grp, metered, lane,
  not exists (select 1 from heads where open = 1) and not exists (select 1 from limits) as quiet;

-- name: open_new_heads  a head that comes anew goes behind everybody, unless its space has a turn
insert into heads (pool, space_id, route, grp, metered, gate, open, turn)
select w.value ->> 'pool', w.value ->> 'space_id', w.value ->> 'route', w.value ->> 'grp',
  w.value ->> 'metered',
  case when exists (select 1 from limits where scope = 'group' and key = w.value ->> 'grp')
    then w.value ->> 'grp' else '' end,
  1,
  coalesce((select max(h.turn) from heads h
    where h.pool = w.value ->> 'pool' and h.space_id = w.value ->> 'space_id'), :now)
from jsonb_each(:rows) w
where true
on conflict (pool, space_id, route, grp, metered) do update set open = 1 where heads.open = 0;

-- name: reopen_heads
update heads set open = 1
from jsonb_each(:rows) w
where heads.pool = w.value ->> 'pool' and heads.space_id = w.value ->> 'space_id' and heads.open = 0;

-- name: open_heads  heads with a turn to come, oldest turn first, per open gate
select h.space_id, h.route, h.grp, h.metered, h.turn, h.pool
from json_each(:pools) p cross join json_each(:gates) g cross join heads h
where h.id in (
  select o.id from heads o indexed by heads_turn
  where o.open = 1 and o.pool = p.value and o.gate = g.value
    and o.route in (select value from json_each(:routes))
    and (o.metered = 0 or p.value not in (select value from json_each(:full_pools)))
  order by o.turn, o.space_id limit :most);

-- name: count_total
select count(*) from (select 1 from runs indexed by runs_running
  where state = 'running' and metered = 1 limit :cap);

-- name: count_pool
select count(*) from (select 1 from runs indexed by runs_running
  where state = 'running' and pool = :pool and metered = 1 limit :cap);

-- name: count_group
select count(*) from (select 1 from runs indexed by runs_running_group
  where state = 'running' and grp <> '' and grp = :grp limit :cap);

-- name: count_spaces
select w.value ->> 'space_id' as space_id,
  (select count(*) from runs r indexed by runs_running where r.state = 'running' and r.pool = :pool
    and r.space_id = w.value ->> 'space_id' and r.metered = 1) as used
from jsonb_each(:rows) w;

-- name: pick_runs  the best ready runs of each head
select r.id, r.epoch, r.space_id, r.task_id, r.route, r.cause, r.retries, r.losses, r.created_at,
  r.expires_at, r.slot_at, r.slot_key, r.depth, r.asked, r.thread, r.key, r.payload,
  r.priority, r.available_at, t.updated_at, w.key as n, r.grp, r.metered
from jsonb_each(:rows) w cross join runs r cross join tasks t
where t.id = r.task_id and r.id in (
  select q.id from runs q indexed by runs_ready
  where q.place = 'ready' and q.pool = :pool and q.space_id = w.value ->> 'space_id'
    and q.route = w.value ->> 'route' and q.grp = w.value ->> 'grp'
    and q.metered = w.value ->> 'metered'
  order by q.priority desc, q.available_at, q.id limit :most);

-- name: take_runs  the best ready runs of one head, leased
update runs set state = 'running', place = null, epoch = epoch + 1, holder = :worker, started_at = :now
where id in (
  select q.id from runs q indexed by runs_ready
  where q.place = 'ready' and q.pool = :pool and q.space_id = :space_id and q.route = :route
    and q.grp = :grp and q.metered = :metered
  order by q.priority desc, q.available_at, q.id limit :most)
returning id, epoch, space_id, task_id, route, cause, retries, losses, created_at, expires_at, slot_at,
  slot_key, depth, asked, thread, key, payload, priority, available_at,
  (select t.updated_at from tasks t where t.id = runs.task_id);

-- name: lease_runs
update runs set state = 'running', place = null, epoch = epoch + 1, holder = :worker, started_at = :now
where id in (select value from json_each(:ids)) and place = 'ready';

-- name: drop_heads
delete from heads where pool = :pool and (space_id, route, grp, metered) in (
  select value ->> 'space_id', value ->> 'route', value ->> 'grp', value ->> 'metered'
  from jsonb_each(:rows));

-- name: turn_heads
update heads set turn = :now
where pool = :pool and space_id in (select value from json_each(:spaces));

-- name: shut_heads
update heads set open = 0
where pool = :pool and metered = 1 and space_id in (select value from json_each(:spaces));

-- name: view_lanes  who runs, who is ready, and who should be
select w.value ->> 'space_id' as space_id, w.value ->> 'lane' as lane,
  exists (select 1 from runs r indexed by runs_lane_running where r.state = 'running'
    and r.lane is not null and r.space_id = w.value ->> 'space_id' and r.lane = w.value ->> 'lane')
    as busy,
  (select r.id from runs r indexed by runs_lane_ready where r.place = 'ready' and r.lane is not null
    and r.space_id = w.value ->> 'space_id' and r.lane = w.value ->> 'lane') as current,
  (select r.id from runs r indexed by runs_lane_queue where r.place in ('ready', 'held')
    and r.lane is not null and r.space_id = w.value ->> 'space_id' and r.lane = w.value ->> 'lane'
    order by r.pool desc, r.priority desc, r.available_at, r.id limit 1) as best
from jsonb_each(:rows) w;

-- name: hold_runs
update runs set place = 'held' where id in (select value from json_each(:ids)) and place = 'ready';

-- name: ready_runs
update runs set place = 'ready' where id in (select value from json_each(:ids)) and place = 'held'
returning id, pool, space_id, route, grp, metered;

-- name: lanes_of
select pool, space_id, lane from runs where id in (select value from json_each(:ids));

-- name: find_heads
select distinct pool, space_id, route, grp, metered from runs indexed by runs_ready
where place = 'ready';

-- name: find_lanes
select distinct pool, space_id, lane from runs indexed by runs_lane_queue
where place in ('ready', 'held') and lane is not null;

-- name: read_limits
select scope, key, cap, rate, period, tokens, refilled_at from limits;

-- name: keep_bucket
update limits set tokens = :tokens, refilled_at = :refilled_at where scope = 'group' and key = :key;

-- name: delete_limit
delete from limits where scope = :scope and key = :key;

-- name: insert_limits
insert into limits (scope, key, cap, rate, period, tokens, refilled_at)
select value ->> 'scope', value ->> 'key', value ->> 'cap', value ->> 'rate', value ->> 'period',
  value ->> 'rate', value ->> 'refilled_at'
from jsonb_each(:rows);

-- name: reset_gates
update heads set open = 1,
  gate = case when exists (select 1 from limits where scope = 'group' and key = heads.grp)
    then heads.grp else '' end;

-- name: later_due
select id, pool, space_id, route, grp, metered, lane from runs indexed by runs_later
where place = 'later' and available_at <= :now order by available_at, id limit :most;

-- name: promote_runs
update runs set place = case when lane is null then 'ready' else 'held' end
where id in (select value from json_each(:ids)) and place = 'later';

-- name: next_due
select (select min(next_at) from schedules where next_at is not null) as slot,
  (select min(available_at) from runs indexed by runs_later where place = 'later') as later;

-- name: given_answers
select run_id, case when digest is null then answer
  else answer || ' sha256:' || digest || coalesce(' ' || outcome, '') end
from questions
where run_id in (select value from json_each(:ids)) and kind <> 'lost' and answered_at is not null
order by id;
