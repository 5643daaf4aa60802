-- name: insert_spaces
insert into rota.spaces (name, role, timezone, created_at)
select w.name, w.role, w.timezone, :now::bigint
from jsonb_to_recordset(:rows::text::jsonb) as w(name text, role text, timezone text) where true
on conflict (name) do nothing;

-- name: set_space
update rota.spaces set timezone = :timezone::text where name = :name::text;

-- name: find_space
select id, name, role, timezone, created_at from rota.spaces where name = :name::text;

-- name: insert_threads
insert into rota.threads (space_id, key, created_at)
select w.space_id, w.key, :now::bigint
from jsonb_to_recordset(:rows::text::jsonb) as w(space_id bigint, key text) where true
on conflict (key) do nothing;

-- name: find_task
select t.id, t.space_id, p.name as space, t.name, t.title, t.kind, t.route, t.spec, t.policy,
  u.name as after_task, t.after_on, t.origin, t.enabled, t.enabled_since, t.paused_until,
  t.disabled_reason, t.failures, t.created_at, t.updated_at, t.deleted_at, t.thread, t.disabled_at
from rota.tasks t join rota.spaces p on p.id = t.space_id
left join rota.tasks u on u.id = t.after_task_id
where t.space_id = :space_id::bigint and t.name = :name::text and t.deleted_at is null;

-- name: task_named
select t.id, t.space_id, p.name as space, t.name, t.title, t.kind, t.route, t.spec, t.policy,
  u.name as after_task, t.after_on, t.origin, t.enabled, t.enabled_since, t.paused_until,
  t.disabled_reason, t.failures, t.created_at, t.updated_at, t.deleted_at, t.thread, t.disabled_at
from rota.tasks t join rota.spaces p on p.id = t.space_id
left join rota.tasks u on u.id = t.after_task_id
where p.name = :space::text and t.name = :name::text and t.deleted_at is null;

-- name: get_tasks
select t.id, t.space_id, p.name as space, t.name, t.title, t.kind, t.route, t.spec, t.policy,
  u.name as after_task, t.after_on, t.origin, t.enabled, t.enabled_since, t.paused_until,
  t.disabled_reason, t.failures, t.created_at, t.updated_at, t.deleted_at, t.thread, t.disabled_at
from rota.tasks t join rota.spaces p on p.id = t.space_id
left join rota.tasks u on u.id = t.after_task_id
where t.id = any(:ids::bigint[]);

-- name: insert_tasks
insert into rota.tasks (space_id, name, title, kind, route, spec, policy, after_task_id, after_on,
  origin, thread, enabled, enabled_since, created_at, updated_at)
select w.space_id, w.name, w.title, w.kind, w.route, w.spec, w.policy, w.after_task_id, w.after_on,
  w.origin, w.thread, 1, :now::bigint, :now::bigint, :now::bigint
from jsonb_to_recordset(:rows::text::jsonb) as w(space_id bigint, name text, title text, kind text,
  route text, spec text, policy text, after_task_id bigint, after_on text, origin text,
  thread text);

-- name: update_tasks  updated_at tells versions apart, so that no two are equal
update rota.tasks as t set title = w.title, kind = w.kind, route = w.route, spec = w.spec,
  policy = w.policy, after_task_id = w.after_task_id, after_on = w.after_on, origin = w.origin,
  thread = w.thread, updated_at = greatest(:now::bigint, t.updated_at + 1)
from jsonb_to_recordset(:rows::text::jsonb) as w(id bigint, title text, kind text, route text,
  spec text, policy text, after_task_id bigint, after_on text, origin text, thread text)
where t.id = w.id;

-- name: enable_task
update rota.tasks set enabled = 1, enabled_since = :now::bigint, paused_until = null,
  disabled_reason = null, disabled_at = null, failures = 0, updated_at = greatest(:now::bigint, updated_at + 1)
where id = :id::bigint;

-- name: disable_task
update rota.tasks set enabled = 0, paused_until = null, disabled_reason = :reason::text,
  disabled_at = coalesce(disabled_at, :now::bigint),
  updated_at = greatest(:now::bigint, updated_at + 1)
where id = :id::bigint;

-- name: pause_task
update rota.tasks set paused_until = :until::bigint,
  updated_at = greatest(:now::bigint, updated_at + 1)
where id = :id::bigint;

-- name: delete_task
update rota.tasks set deleted_at = :now::bigint, enabled = 0,
  updated_at = greatest(:now::bigint, updated_at + 1)
where id = :id::bigint;

-- name: touch_schedules  of tasks that have changed: a plan that was made before does not apply
update rota.schedules set version = version + 1
where id = any(array(
  select id from rota.schedules where task_id = any(:task_ids::bigint[]) and deleted_at is null
  order by id for update));

-- name: delete_schedules_of
update rota.schedules set deleted_at = :now::bigint, next_at = null
where task_id = :task_id::bigint and deleted_at is null;

-- name: find_schedule
select s.id, s.task_id, t.name as task, p.name as space, s.name, s.rule, s.generation, s.version,
  s.state, s.note, s.cursor, s.next_at, s.created_at, s.updated_at
from rota.schedules s join rota.tasks t on t.id = s.task_id join rota.spaces p on p.id = t.space_id
where s.task_id = :task_id::bigint and s.name = :name::text and s.deleted_at is null;

-- name: list_schedules
select s.id, s.task_id, t.name as task, p.name as space, s.name, s.rule, s.generation, s.version,
  s.state, s.note, s.cursor, s.next_at, s.created_at, s.updated_at
from rota.schedules s join rota.tasks t on t.id = s.task_id join rota.spaces p on p.id = t.space_id
where s.task_id = any(:task_ids::bigint[]) and s.deleted_at is null
order by s.id;

-- name: insert_schedules
insert into rota.schedules (task_id, space_id, name, rule, generation, state, cursor, next_at,
  created_at, updated_at)
select t.id, t.space_id, w.name, w.rule, w.generation, 'active', w.cursor, w.next_at, :now::bigint,
  :now::bigint
from jsonb_to_recordset(:rows::text::jsonb) as w(task_id bigint, name text, rule text,
  generation bigint, cursor bigint, next_at bigint)
cross join rota.tasks t where t.id = w.task_id;

-- name: update_schedules
update rota.schedules as s set rule = w.rule, generation = w.generation, state = 'active', note = null,
  cursor = w.cursor, next_at = w.next_at,
  updated_at = :now::bigint, version = s.version + 1
from jsonb_to_recordset(:rows::text::jsonb) as w(id bigint, rule text, generation bigint,
  cursor bigint, next_at bigint)
where s.id = w.id;

-- name: delete_schedule
update rota.schedules set deleted_at = :now::bigint, next_at = null where id = :id::bigint;

-- name: put_state
insert into rota.state (task_id, key, value, updated_at, updated_by)
values (:task_id::bigint, :key::text, :value::text, :now::bigint, :who::text)
on conflict (task_id, key) do update set value = excluded.value, updated_at = excluded.updated_at,
  updated_by = excluded.updated_by;

-- name: get_state
select key, value, updated_at, updated_by from rota.state
where task_id = :task_id::bigint and key = :key::text;

-- name: list_state
select key, value, updated_at, updated_by from rota.state
where task_id = :task_id::bigint and key > :after::text order by key limit :most::bigint;

-- name: drop_state
delete from rota.state where task_id = :task_id::bigint and key = :key::text returning key;

-- name: count_state
select count(*) from rota.state where task_id = :task_id::bigint;

-- name: mark_seen
insert into rota.seen (task_id, provider, item, data, first_at, last_at, count)
select :task_id::bigint, w.provider, w.item, w.data, :now::bigint, :now::bigint, 1
from jsonb_to_recordset(:rows::text::jsonb) as w(provider text, item text, data text) where true
on conflict (task_id, provider, item) do update set data = excluded.data,
  last_at = greatest(rota.seen.last_at, excluded.last_at), count = rota.seen.count + 1
returning provider, item, data, first_at, last_at, count;

-- name: get_seen
select provider, item, data, first_at, last_at, count from rota.seen
where task_id = :task_id::bigint and provider = :provider::text and item = :item::text;

-- name: standing_schedules  with the slot at the cursor: the newest that ran, or the newest ledgered
select s.id, s.version, s.generation, s.rule, p.name || '/' || t.name || '/' || s.name as stagger,
  s.cursor, s.next_at,
  (select case when r.slot_at = s.cursor then r.slot_key end from rota.runs r
    where r.schedule_id = s.id order by r.slot_key desc limit 1) as key_of_run,
  (select case when l.last_at = s.cursor then l.last_key end from rota.ledger l
    where l.schedule_id = s.id order by l.last_at desc, l.id desc limit 1) as key_of_ledger
from rota.schedules s join rota.tasks t on t.id = s.task_id join rota.spaces p on p.id = t.space_id
where s.id > :after::bigint and s.next_at is not null order by s.id limit :most::int;

-- name: move_schedules
update rota.schedules as s set cursor = w.cursor, next_at = w.next_at, updated_at = w.updated_at,
  version = s.version + 1
from jsonb_to_recordset(:rows::text::jsonb) as w(id bigint, cursor bigint, next_at bigint,
  updated_at bigint)
where s.id = w.id;
