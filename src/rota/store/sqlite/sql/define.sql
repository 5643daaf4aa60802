-- name: insert_spaces
insert into spaces (name, role, timezone, created_at)
select value ->> 'name', value ->> 'role', value ->> 'timezone', :now from jsonb_each(:rows) where true
on conflict (name) do nothing;

-- name: set_space
update spaces set timezone = :timezone where name = :name;

-- name: find_space
select id, name, role, timezone, created_at from spaces where name = :name;

-- name: list_spaces
select id, name, role, timezone, created_at from spaces order by id;

-- name: list_threads  of one space, or of all
select h.id, p.name as space, h.key, h.title, t.id as task_id, t.name as task, h.trigger_word,
  h.facts, h.created_at, (select max(m.at) from messages m where m.id =
    (select max(n.id) from messages n where n.thread = h.key)) as said_at,
  (select count(*) from messages m where m.thread = h.key and m.state = 'pending') as pending
from threads h join spaces p on p.id = h.space_id
left join tasks t on t.id = (select a.id from tasks a
  where a.space_id = h.space_id and a.deleted_at is null and a.enabled = 1 and a.kind = 'agent'
    and (a.id = h.task_id or (a.thread = h.key and a.spec ->> 'answers'))
  order by case when a.id = h.task_id then 0 else 1 end, a.id limit 1)
where (:space_id is null or h.space_id = :space_id)
  and h.id < :before
order by h.id desc limit :most;

-- name: get_thread
select h.id, p.name as space, h.key, h.title, t.id as task_id, t.name as task, h.trigger_word,
  h.facts, h.created_at, (select max(m.at) from messages m where m.id =
    (select max(n.id) from messages n where n.thread = h.key)) as said_at,
  (select count(*) from messages m where m.thread = h.key and m.state = 'pending') as pending
from threads h join spaces p on p.id = h.space_id
left join tasks t on t.id = (select a.id from tasks a
  where a.space_id = h.space_id and a.deleted_at is null and a.enabled = 1 and a.kind = 'agent'
    and (a.id = h.task_id or (a.thread = h.key and a.spec ->> 'answers'))
  order by case when a.id = h.task_id then 0 else 1 end, a.id limit 1)
where h.key = :key;

-- name: change_thread  what is said of it; the rest stays as it is
update threads set
  title = case when json_type(:changes, '$.title') is not null then :changes ->> 'title' else title end,
  task_id = case when json_type(:changes, '$.task_id') is not null then :changes ->> 'task_id' else task_id end,
  trigger_word = case when json_type(:changes, '$.trigger') is not null then :changes ->> 'trigger' else trigger_word end,
  facts = case when json_type(:changes, '$.facts') is not null then :changes ->> 'facts' else facts end
where key = :key;

-- name: open_runs_in  a conversation: what runs, what is queued, and what waits for an answer
select id, task_id, space_id, state, epoch, retries, losses, created_at, depth,
  cancel_at is not null as cancelling
from runs where thread = :thread and finished_at is null and space_id = :space_id
order by id limit :most;

-- name: insert_threads
insert into threads (space_id, key, created_at)
select value ->> 'space_id', value ->> 'key', :now from jsonb_each(:rows) where true
on conflict (key) do nothing;

-- name: find_thread
select space_id from threads where key = :key;

-- name: find_task
select t.id, t.space_id, p.name as space, t.name, t.title, t.kind, t.route, t.spec, t.policy,
  u.name as after_task, t.after_on, t.origin, t.enabled, t.enabled_since, t.paused_until,
  t.disabled_reason, t.failures, t.created_at, t.updated_at, t.deleted_at, t.thread, t.disabled_at
from tasks t join spaces p on p.id = t.space_id left join tasks u on u.id = t.after_task_id
where t.space_id = :space_id and t.name = :name and t.deleted_at is null;

-- name: task_named
select t.id, t.space_id, p.name as space, t.name, t.title, t.kind, t.route, t.spec, t.policy,
  u.name as after_task, t.after_on, t.origin, t.enabled, t.enabled_since, t.paused_until,
  t.disabled_reason, t.failures, t.created_at, t.updated_at, t.deleted_at, t.thread, t.disabled_at
from tasks t join spaces p on p.id = t.space_id left join tasks u on u.id = t.after_task_id
where p.name = :space and t.name = :name and t.deleted_at is null;

-- name: get_tasks
select t.id, t.space_id, p.name as space, t.name, t.title, t.kind, t.route, t.spec, t.policy,
  u.name as after_task, t.after_on, t.origin, t.enabled, t.enabled_since, t.paused_until,
  t.disabled_reason, t.failures, t.created_at, t.updated_at, t.deleted_at, t.thread, t.disabled_at
from tasks t join spaces p on p.id = t.space_id left join tasks u on u.id = t.after_task_id
where t.id in (select value from json_each(:ids));

-- name: list_tasks
select t.id, t.space_id, p.name as space, t.name, t.title, t.kind, t.route, t.spec, t.policy,
  u.name as after_task, t.after_on, t.origin, t.enabled, t.enabled_since, t.paused_until,
  t.disabled_reason, t.failures, t.created_at, t.updated_at, t.deleted_at, t.thread, t.disabled_at
from tasks t join spaces p on p.id = t.space_id left join tasks u on u.id = t.after_task_id
where t.deleted_at is null and (:space_id is null or t.space_id = :space_id)
order by p.name, t.name;

-- name: find_tasks  each task once for each of its schedules, or once without one
with t as (
  select * from tasks t
  where t.id < :before and t.deleted_at is null and (:space_id is null or t.space_id = :space_id)
    and (:name is null or t.name = :name) and (:thread is null or t.thread = :thread)
    and (:kind is null or t.kind = :kind) and (:enabled is null or t.enabled = :enabled)
    and (:words is null or instr(lower(t.name || ' ' || t.title), lower(:words)) > 0)
  order by t.id desc limit :most
)
select t.id, t.space_id, p.name as space, t.name, t.title, t.kind, t.route, t.spec, t.policy,
  u.name as after_task, t.after_on, t.origin, t.enabled, t.enabled_since, t.paused_until,
  t.disabled_reason, t.failures, t.created_at, t.updated_at, t.deleted_at, t.thread, t.disabled_at,
  s.id, s.task_id, t.name, p.name, s.name, s.rule, s.generation, s.version,
  s.state, s.note, s.cursor, s.next_at, s.created_at, s.updated_at
from t join spaces p on p.id = t.space_id left join tasks u on u.id = t.after_task_id
left join schedules s on s.task_id = t.id and s.deleted_at is null
order by t.id desc, s.id;

-- name: successors_of
select t.after_task_id, t.id, t.space_id, p.name as space, t.name, t.title, t.kind, t.route, t.spec,
  t.policy, u.name as after_task, t.after_on, t.origin, t.enabled, t.enabled_since, t.paused_until,
  t.disabled_reason, t.failures, t.created_at, t.updated_at, t.deleted_at, t.thread, t.disabled_at
from tasks t join spaces p on p.id = t.space_id join tasks u on u.id = t.after_task_id
where t.after_task_id in (select value from json_each(:ids)) and t.after_task_id is not null
  and t.deleted_at is null;

-- name: insert_tasks
insert into tasks (space_id, name, title, kind, route, spec, policy, after_task_id, after_on, origin,
  thread, enabled, enabled_since, created_at, updated_at)
select value ->> 'space_id', value ->> 'name', value ->> 'title', value ->> 'kind',
  value ->> 'route', value ->> 'spec', value ->> 'policy', value ->> 'after_task_id',
  value ->> 'after_on', value ->> 'origin', value ->> 'thread', 1, :now, :now, :now
from jsonb_each(:rows);

-- name: update_tasks  updated_at tells versions apart, so that no two are equal
update tasks set title = w.value ->> 'title', kind = w.value ->> 'kind', route = w.value ->> 'route',
  spec = w.value ->> 'spec', policy = w.value ->> 'policy',
  after_task_id = w.value ->> 'after_task_id', after_on = w.value ->> 'after_on',
  origin = w.value ->> 'origin', thread = w.value ->> 'thread', updated_at = max(:now, updated_at + 1)
from jsonb_each(:rows) w where tasks.id = w.value ->> 'id';

-- name: enable_task
update tasks set enabled = 1, enabled_since = :now, paused_until = null, disabled_reason = null,
  disabled_at = null, failures = 0, updated_at = max(:now, updated_at + 1)
where id = :id;

-- name: disable_task
update tasks set enabled = 0, paused_until = null, disabled_reason = :reason,
  disabled_at = coalesce(disabled_at, :now),
  updated_at = max(:now, updated_at + 1)
where id = :id;

-- name: pause_task
update tasks set paused_until = :until, updated_at = max(:now, updated_at + 1) where id = :id;

-- name: delete_task
update tasks set deleted_at = :now, enabled = 0, updated_at = max(:now, updated_at + 1)
where id = :id;

-- name: touch_schedules  of tasks that have changed: a plan that was made before does not apply
update schedules set version = version + 1
where task_id in (select value from json_each(:task_ids)) and deleted_at is null;

-- name: delete_schedules_of
update schedules set deleted_at = :now, next_at = null
where task_id = :task_id and deleted_at is null;

-- name: queued_runs_of
select id, task_id, space_id, state, epoch, retries, losses, created_at, depth,
  cancel_at is not null as cancelling
from runs where task_id = :task_id and state in ('queued', 'waiting')
  and (:planned_only = 0 or source in ('slot', 'catch_up'))
order by id limit :most;

-- name: running_runs_of
select id from runs where task_id = :task_id and state = 'running' order by id limit :most;

-- name: find_schedule
select s.id, s.task_id, t.name as task, p.name as space, s.name, s.rule, s.generation, s.version,
  s.state, s.note, s.cursor, s.next_at, s.created_at, s.updated_at
from schedules s join tasks t on t.id = s.task_id join spaces p on p.id = t.space_id
where s.task_id = :task_id and s.name = :name and s.deleted_at is null;

-- name: list_schedules
select s.id, s.task_id, t.name as task, p.name as space, s.name, s.rule, s.generation, s.version,
  s.state, s.note, s.cursor, s.next_at, s.created_at, s.updated_at
from schedules s join tasks t on t.id = s.task_id join spaces p on p.id = t.space_id
where s.task_id in (select value from json_each(:task_ids)) and s.deleted_at is null
order by s.id;

-- name: insert_schedules
insert into schedules (task_id, space_id, name, rule, generation, state, cursor, next_at, created_at,
  updated_at)
select t.id, t.space_id, w.value ->> 'name', w.value ->> 'rule', w.value ->> 'generation', 'active',
  w.value ->> 'cursor', w.value ->> 'next_at', :now, :now
from jsonb_each(:rows) w cross join tasks t on t.id = w.value ->> 'task_id';

-- name: update_schedules
update schedules set rule = w.value ->> 'rule', generation = w.value ->> 'generation',
  state = 'active', note = null, cursor = w.value ->> 'cursor', next_at = w.value ->> 'next_at',
  updated_at = :now, version = version + 1
from jsonb_each(:rows) w where schedules.id = w.value ->> 'id';

-- name: delete_schedule
update schedules set deleted_at = :now, next_at = null where id = :id;
