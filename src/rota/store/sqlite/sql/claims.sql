-- name: open_heads  heads with a turn to come, oldest turn first, per open gate
select h.space_id, h.route, h.grp, h.metered, h.turn, h.pool
from json_each(:pools) p cross join json_each(:gates) g cross join heads h
where h.id in (
  select o.id from heads o indexed by heads_turn
  where o.open = 1 and o.pool = p.value and o.gate = g.value
    and o.route in (select value from json_each(:routes))
    and (o.metered = 0 or p.value not in (select value from json_each(:full_pools)))
  order by o.turn, o.space_id limit :most);

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

-- name: drop_heads
delete from heads where pool = :pool and (space_id, route, grp, metered) in (
  select value ->> 'space_id', value ->> 'route', value ->> 'grp', value ->> 'metered'
  from jsonb_each(:rows));
