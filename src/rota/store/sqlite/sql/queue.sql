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

-- name: take_pings  and whether the queue is quiet: no head open, nothing limited
delete from pings where id in (select id from pings order by id limit :most)
  and not exists (select 1 from facts where name = 'paused')
  and not exists (select 1 from workers where id = :worker and fenced = 1)
returning pool, space_id, route, grp, metered, lane,
  not exists (select 1 from heads where open = 1) and not exists (select 1 from limits) as quiet;

-- name: reopen_heads
update heads set open = 1
from jsonb_each(:rows) w
where heads.pool = w.value ->> 'pool' and heads.space_id = w.value ->> 'space_id' and heads.open = 0;

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

-- name: find_heads
select distinct pool, space_id, route, grp, metered from runs indexed by runs_ready
where place = 'ready';

-- name: find_lanes
select distinct pool, space_id, lane from runs indexed by runs_lane_queue
where place in ('ready', 'held') and lane is not null;
