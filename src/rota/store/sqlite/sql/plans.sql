-- name: due_schedules
select s.id, s.version, s.generation, s.rule, p.name || '/' || t.name || '/' || s.name as stagger,
  s.cursor, s.next_at, t.id as task_id, t.space_id, t.route, t.policy, t.enabled, t.enabled_since,
  t.paused_until, (select value from facts where name = 'pauses') as pauses,
  (select value from facts where name = 'paused') as paused, t.thread,
  case when t.kind = 'agent' then t.spec ->> 'context' = 'group' end as in_conversation
from schedules s join tasks t on t.id = s.task_id join spaces p on p.id = t.space_id
where s.next_at is not null and s.next_at <= :now and (:only is null or s.id = :only)
order by s.next_at limit :most;

-- name: active_in_lanes  unfinished runs of a task that its overlap policy looks at
select r.id, r.epoch, r.state, r.task_id, r.source = 'slot' as planned
from jsonb_each(:rows) w join runs r indexed by runs_lane_queue
  on r.space_id = w.value ->> 'space_id' and r.lane = w.value ->> 'lane'
    and r.task_id = w.value ->> 'task_id'
where r.place in ('ready', 'held') and r.lane is not null
union all
select r.id, r.epoch, r.state, r.task_id, r.source = 'slot'
from jsonb_each(:rows) w join runs r indexed by runs_lane_running
  on r.space_id = w.value ->> 'space_id' and r.lane = w.value ->> 'lane'
    and r.task_id = w.value ->> 'task_id'
where r.state = 'running' and r.lane is not null
union all
select r.id, r.epoch, r.state, r.task_id, r.source = 'slot'
from jsonb_each(:rows) w join runs r indexed by runs_lane_waiting
  on r.space_id = w.value ->> 'space_id' and r.lane = w.value ->> 'lane'
    and r.task_id = w.value ->> 'task_id'
where r.state = 'waiting' and r.lane is not null;

-- name: last_ledger
select schedule_id, id, reason, last_at from ledger
where id in (select (select l.id from ledger l where l.schedule_id = w.value
  order by l.last_at desc, l.id desc limit 1) from json_each(:ids) w);
