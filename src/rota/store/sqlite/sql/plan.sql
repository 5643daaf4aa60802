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

-- name: lock_schedules
select id, cursor, version, (select value from facts where name = 'pauses') as pauses,
  (select value from facts where name = 'paused') as paused
from schedules
where id in (select value from json_each(:ids)) and deleted_at is null;

-- name: advance_schedules
update schedules set cursor = w.value ->> 'cursor', next_at = w.value ->> 'next_at',
  state = w.value ->> 'state', note = w.value ->> 'note'
from jsonb_each(:rows) w where schedules.id = w.value ->> 'id';

-- name: last_ledger
select schedule_id, id, reason, last_at from ledger
where id in (select (select l.id from ledger l where l.schedule_id = w.value
  order by l.last_at desc, l.id desc limit 1) from json_each(:ids) w);

-- name: extend_ledger
update ledger set last_key = w.value ->> 'last_key', last_at = w.value ->> 'last_at',
  count = count + (w.value ->> 'count'), noted_at = :now
from jsonb_each(:rows) w where ledger.id = w.value ->> 'id';

-- name: insert_ledger
insert into ledger (schedule_id, reason, first_key, last_key, first_at, last_at, count, noted_at)
select value ->> 'schedule_id', value ->> 'reason', value ->> 'first_key', value ->> 'last_key',
  value ->> 'first_at', value ->> 'last_at', value ->> 'count', :now
from jsonb_each(:rows);

-- name: record_schedule_events
insert into events (at, name, space_id, task_id, data)
select :now, w.value ->> 'name', t.space_id, t.id, w.value ->> 'data'
from jsonb_each(:rows) w join schedules s on s.id = w.value ->> 'schedule_id'
join tasks t on t.id = s.task_id;

-- name: standing_schedules  with the slot at the cursor: the newest that ran, or the newest ledgered
select s.id, s.version, s.generation, s.rule, p.name || '/' || t.name || '/' || s.name as stagger,
  s.cursor, s.next_at,
  (select case when r.slot_at = s.cursor then r.slot_key end from runs r
    where r.schedule_id = s.id order by r.slot_key desc limit 1) as key_of_run,
  (select case when l.last_at = s.cursor then l.last_key end from ledger l
    where l.schedule_id = s.id order by l.last_at desc, l.id desc limit 1) as key_of_ledger
from schedules s join tasks t on t.id = s.task_id join spaces p on p.id = t.space_id
where s.id > :after and s.next_at is not null order by s.id limit :most;

-- name: move_schedules
update schedules set cursor = w.value ->> 'cursor', next_at = w.value ->> 'next_at',
  updated_at = w.value ->> 'updated_at', version = version + 1
from jsonb_each(:rows) w where schedules.id = w.value ->> 'id';

-- name: read_fact
select value from facts where name = :name;

-- name: note_fact
insert into facts (name, value) values (:name, :value)
on conflict (name) do update set value = excluded.value;

-- name: drop_fact
delete from facts where name = :name;

-- name: read_pauses
select (select value from facts where name = 'pauses') as pauses,
  (select value from facts where name = 'paused') as paused;

-- name: oldest_cursor
select min(cursor) from schedules where next_at is not null;

-- name: read_leaps  and up to when any schedule is planned, but for those that zone data have moved
select (select value from facts where name = 'clock_leapt') as forward,
  (select value from facts where name = 'clock_returned') as returned,
  (select max(cursor) from schedules where deleted_at is null and cursor <> updated_at) as planned;

-- name: missed_schedules
select s.id, s.task_id, t.name as task, p.name as space, s.name, s.rule, s.generation, s.version,
  s.state, s.note, s.cursor, s.next_at, s.created_at, s.updated_at
from schedules s join tasks t on t.id = s.task_id join spaces p on p.id = t.space_id
where s.deleted_at is null and (:task_id is null or t.id = :task_id)
  and (:space_id is null or t.space_id = :space_id)
  and exists (select 1 from ledger l where l.schedule_id = s.id and l.last_at >= :start
    and l.first_at <= :end and l.reason in ('missed', 'too_late', 'coalesced', 'catch_up_cap'))
order by s.id limit :most;
