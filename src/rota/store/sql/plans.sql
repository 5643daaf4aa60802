-- name: due_schedules
select s.id, s.version, s.generation, s.rule, p.name || '/' || t.name || '/' || s.name as stagger,
  s.cursor, s.next_at, t.id as task_id, t.space_id, t.route, t.policy, t.enabled, t.enabled_since,
  t.paused_until, (select value from rota.facts where name = 'pauses') as pauses,
  (select value from rota.facts where name = 'paused') as paused, t.thread,
  case when t.kind = 'agent' then t.spec::jsonb ->> 'context' = 'group' end as in_conversation
from (
  select * from rota.schedules
  where next_at is not null and next_at <= :now::bigint
    and (:only::bigint is null or id = :only::bigint)
  order by next_at limit :most::int
) s
cross join lateral (select * from rota.tasks where id = s.task_id limit 1) t
cross join lateral (select name from rota.spaces where id = t.space_id limit 1) p
order by s.next_at;

-- name: active_in_lanes  unfinished runs of a task that its overlap policy looks at
with w as materialized (
  select space_id, lane, task_id
  from jsonb_to_recordset(:rows::text::jsonb) as j(space_id bigint, lane text, task_id bigint)
)
select r.id, r.epoch, r.state, r.task_id, (r.source = 'slot')::int as planned
from w cross join lateral (
  select * from rota.runs q where q.space_id = w.space_id and q.lane = w.lane
    and q.task_id = w.task_id and q.place in ('ready', 'held') and q.lane is not null offset 0
) r
union all
select r.id, r.epoch, r.state, r.task_id, (r.source = 'slot')::int
from w cross join lateral (
  select * from rota.runs q where q.space_id = w.space_id and q.lane = w.lane
    and q.task_id = w.task_id and q.state = 'running' and q.lane is not null offset 0
) r
union all
select r.id, r.epoch, r.state, r.task_id, (r.source = 'slot')::int
from w cross join lateral (
  select * from rota.runs q where q.space_id = w.space_id and q.lane = w.lane
    and q.task_id = w.task_id and q.state = 'waiting' and q.lane is not null offset 0
) r;

-- name: lock_schedules
select id, cursor, version, (select value from rota.facts where name = 'pauses') as pauses,
  (select value from rota.facts where name = 'paused') as paused
from rota.schedules
where id = any(:ids::bigint[]) and coalesce(deleted_at, 0) < 1
order by id for update;

-- name: advance_schedules
update rota.schedules as s set cursor = w.cursor, next_at = w.next_at, state = w.state, note = w.note
from jsonb_to_recordset(:rows::text::jsonb) as w(id bigint, cursor bigint, next_at bigint,
  state text, note text)
where s.id = w.id;

-- name: last_ledger
select l.schedule_id, l.id, l.reason, l.last_at
from unnest(:ids::bigint[]) as w(schedule_id)
cross join lateral (
  select * from rota.ledger where schedule_id = w.schedule_id
  order by last_at desc, id desc limit 1
) l;

-- name: extend_ledger
update rota.ledger as l set last_key = w.last_key, last_at = w.last_at, count = l.count + w.count,
  noted_at = :now::bigint
from jsonb_to_recordset(:rows::text::jsonb) as w(id bigint, last_key text, last_at bigint,
  count bigint)
where l.id = w.id;

-- name: insert_ledger
insert into rota.ledger (schedule_id, reason, first_key, last_key, first_at, last_at, count, noted_at)
select w.schedule_id, w.reason, w.first_key, w.last_key, w.first_at, w.last_at, w.count,
  :now::bigint
from jsonb_to_recordset(:rows::text::jsonb) as w(schedule_id bigint, reason text, first_key text,
  last_key text, first_at bigint, last_at bigint, count bigint);

-- name: record_schedule_events
insert into rota.events (at, name, space_id, task_id, data)
select :now::bigint, w.name, t.space_id, t.id, w.data
from jsonb_to_recordset(:rows::text::jsonb) as w(name text, schedule_id bigint, data text)
join rota.schedules s on s.id = w.schedule_id join rota.tasks t on t.id = s.task_id;

-- name: note_fact
insert into rota.facts (name, value) values (:name::text, :value::text)
on conflict (name) do update set value = excluded.value;

-- name: drop_fact
delete from rota.facts where name = :name::text;

-- name: read_pauses
select (select value from rota.facts where name = 'pauses') as pauses,
  (select value from rota.facts where name = 'paused') as paused;

-- name: oldest_cursor
select min(cursor) from rota.schedules where next_at is not null;

-- name: later_due
select id, pool, space_id, route, grp, metered, lane from rota.runs /* sqlite: indexed by runs_later */
where place = 'later' and available_at <= :now::bigint
order by available_at, id limit :most::int for update skip locked;

-- name: promote_runs
update rota.runs set place = case when lane is null then 'ready' else 'held' end
where id = any(:ids::bigint[]) and coalesce(place, '') = 'later';

-- name: next_due
select (select min(next_at) from rota.schedules where next_at is not null) as slot,
  (select min(available_at) from rota.runs /* sqlite: indexed by runs_later */ where place = 'later') as later;
