-- name: insert_like
insert into runs (space_id, task_id, state, queue_state, pool, priority, available_at, route,
  limit_group, metered,
  source, epoch, cause, created_at, lane, expires_at, upstream_id, depth, thread, payload)
select :space_id, :task_id, 'queued', :queue_state, :pool, :priority, :available_at, :route,
  :limit_group, :metered,
  :source, 0, 'first', :created_at, :lane, :expires_at, :upstream_id, :depth, :thread, value
from json_each(:payloads);

-- name: insert_one
insert into runs (space_id, task_id, state, queue_state, pool, priority, available_at, route,
  limit_group, metered,
  source, epoch, cause, created_at, lane, expires_at, upstream_id, depth, thread, payload)
values (:space_id, :task_id, 'queued', :queue_state, :pool, :priority, :available_at, :route,
  :limit_group,
  :metered, :source, 0, 'first', :created_at, :lane, :expires_at, :upstream_id, :depth, :thread,
  :payload);

-- name: insert_runs
insert into runs (space_id, task_id, state, queue_state, pool, priority, available_at, route,
  limit_group, metered,
  source, epoch, cause, created_at, lane, expires_at, upstream_id, depth, thread, payload,
  key, schedule_id, slot_key, slot_at)
select value ->> 'space_id', value ->> 'task_id', 'queued', value ->> 'queue_state',
  value ->> 'pool',
  value ->> 'priority', value ->> 'available_at', value ->> 'route', value ->> 'limit_group',
  value ->> 'metered', value ->> 'source', 0, 'first', value ->> 'created_at', value ->> 'lane',
  value ->> 'expires_at', value ->> 'upstream_id', value ->> 'depth', value ->> 'thread',
  value ->> 'payload', value ->> 'key', value ->> 'schedule_id', value ->> 'slot_key',
  value ->> 'slot_at'
from jsonb_each(:rows);

-- name: existing_runs
select r.id, r.task_id, r.key, r.schedule_id, r.slot_key, r.payload
from jsonb_each(:rows) w join runs r on r.task_id = w.value ->> 'task_id'
  and r.key = w.value ->> 'key'
where r.key is not null
union all
select r.id, r.task_id, null, r.schedule_id, r.slot_key, r.payload
from jsonb_each(:rows) w
join runs r on r.schedule_id = w.value ->> 'schedule_id' and r.slot_key = w.value ->> 'slot_key'
where r.schedule_id is not null;

-- name: take_claim_hints
delete from claim_hints where id in (select id from claim_hints order by id limit :most)
  and not exists (select 1 from metadata where name = 'paused')
  and not exists (select 1 from workers where id = :worker and fenced = 1)
returning pool, space_id, route, limit_group, metered, lane,
  not exists (select 1 from queue_heads where is_open = 1) and not exists (select 1
  from limits) as quiet;

-- name: reopen_queue_heads
update queue_heads set is_open = 1
from jsonb_each(:rows) w
where queue_heads.pool = w.value ->> 'pool' and queue_heads.space_id = w.value ->> 'space_id'
  and queue_heads.is_open = 0;

-- name: view_lanes
select w.value ->> 'space_id' as space_id, w.value ->> 'lane' as lane,
  exists (select 1 from runs r indexed by runs_lane_running where r.state = 'running'
    and r.lane is not null and r.space_id = w.value ->> 'space_id' and r.lane = w.value ->> 'lane')
    as busy,
  (select r.id from runs r indexed by runs_lane_ready where r.queue_state = 'ready'
  and r.lane is not null
    and r.space_id = w.value ->> 'space_id' and r.lane = w.value ->> 'lane') as current,
  (select r.id from runs r indexed by runs_lane_queue where r.queue_state in ('ready', 'held')
    and r.lane is not null and r.space_id = w.value ->> 'space_id' and r.lane = w.value ->> 'lane'
    order by r.pool desc, r.priority desc, r.available_at, r.id limit 1) as best
from jsonb_each(:rows) w;

-- name: hold_runs
update runs set queue_state = 'held' where id in (select value from json_each(:ids))
  and queue_state = 'ready';

-- name: ready_runs
update runs set queue_state = 'ready' where id in (select value from json_each(:ids))
  and queue_state = 'held'
returning id, pool, space_id, route, limit_group, metered;

-- name: find_queue_heads
select distinct pool, space_id, route, limit_group, metered from runs indexed by runs_ready
where queue_state = 'ready';

-- name: find_lanes
select distinct pool, space_id, lane from runs indexed by runs_lane_queue
where queue_state in ('ready', 'held') and lane is not null;
