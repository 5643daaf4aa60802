-- name: insert_spaces
insert into rota.spaces (name, role, timezone, created_at)
select w.name, w.role, w.timezone, :now::bigint
from jsonb_to_recordset(:rows::text::jsonb) as w(name text, role text, timezone text)
on conflict (name) do nothing;

-- name: set_space
update rota.spaces set timezone = :timezone::text where name = :name::text;

-- name: find_space
select id, name, role, timezone, created_at from rota.spaces where name = :name::text;

-- name: list_spaces
select id, name, role, timezone, created_at from rota.spaces order by id;

-- name: list_threads  of one space, or of all
select h.id, p.name as space, h.key, h.title, t.id as task_id, t.name as task, h.trigger_word,
  h.facts, h.created_at, (select max(m.at) from rota.messages m where m.id =
    (select max(n.id) from rota.messages n where n.thread = h.key)) as said_at,
  (select count(*) from rota.messages m where m.thread = h.key and m.state = 'pending') as pending
from rota.threads h join rota.spaces p on p.id = h.space_id
left join rota.tasks t on t.id = (select a.id from rota.tasks a
  where a.space_id = h.space_id and a.deleted_at is null and a.enabled = 1 and a.kind = 'agent'
    and (a.id = h.task_id or (a.thread = h.key and a.spec::jsonb ->> 'answers' = 'true'))
  order by case when a.id = h.task_id then 0 else 1 end, a.id limit 1)
where (:space_id::bigint is null or h.space_id = :space_id::bigint)
  and h.id < :before::bigint
order by h.id desc limit :most::int;

-- name: get_thread
select h.id, p.name as space, h.key, h.title, t.id as task_id, t.name as task, h.trigger_word,
  h.facts, h.created_at, (select max(m.at) from rota.messages m where m.id =
    (select max(n.id) from rota.messages n where n.thread = h.key)) as said_at,
  (select count(*) from rota.messages m where m.thread = h.key and m.state = 'pending') as pending
from rota.threads h join rota.spaces p on p.id = h.space_id
left join rota.tasks t on t.id = (select a.id from rota.tasks a
  where a.space_id = h.space_id and a.deleted_at is null and a.enabled = 1 and a.kind = 'agent'
    and (a.id = h.task_id or (a.thread = h.key and a.spec::jsonb ->> 'answers' = 'true'))
  order by case when a.id = h.task_id then 0 else 1 end, a.id limit 1)
where h.key = :key::text;

-- name: change_thread  what is said of it; the rest stays as it is
update rota.threads set
  title = case when jsonb_exists(:changes::text::jsonb, 'title') then :changes::text::jsonb ->> 'title' else title end,
  task_id = case when jsonb_exists(:changes::text::jsonb, 'task_id') then (:changes::text::jsonb ->> 'task_id')::bigint else task_id end,
  trigger_word = case when jsonb_exists(:changes::text::jsonb, 'trigger') then :changes::text::jsonb ->> 'trigger' else trigger_word end,
  facts = case when jsonb_exists(:changes::text::jsonb, 'facts') then :changes::text::jsonb ->> 'facts' else facts end
where key = :key::text;

-- name: open_runs_in  a conversation: what runs, what is queued, and what waits for an answer
select id, task_id, space_id, state, epoch, retries, losses, created_at, depth,
  cancel_at is not null as cancelling
from rota.runs where thread = :thread::text and finished_at is null and space_id = :space_id::bigint
order by id limit :most::int;

-- name: insert_threads
insert into rota.threads (space_id, key, created_at)
select w.space_id, w.key, :now::bigint
from jsonb_to_recordset(:rows::text::jsonb) as w(space_id bigint, key text)
on conflict (key) do nothing;

-- name: find_thread
select space_id from rota.threads where key = :key::text;

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

-- name: list_tasks
select t.id, t.space_id, p.name as space, t.name, t.title, t.kind, t.route, t.spec, t.policy,
  u.name as after_task, t.after_on, t.origin, t.enabled, t.enabled_since, t.paused_until,
  t.disabled_reason, t.failures, t.created_at, t.updated_at, t.deleted_at, t.thread, t.disabled_at
from rota.tasks t join rota.spaces p on p.id = t.space_id
left join rota.tasks u on u.id = t.after_task_id
where t.deleted_at is null and (:space_id::bigint is null or t.space_id = :space_id::bigint)
order by p.name, t.name;

-- name: find_tasks  each task once for each of its schedules, or once without one
with t as (
  select * from rota.tasks t
  where t.id < :before::bigint and t.deleted_at is null
    and (:space_id::bigint is null or t.space_id = :space_id::bigint)
    and (:name::text is null or t.name = :name::text)
    and (:thread::text is null or t.thread = :thread::text)
    and (:kind::text is null or t.kind = :kind::text)
    and (:enabled::int is null or t.enabled = :enabled::int)
    and (:words::text is null or strpos(lower(t.name || ' ' || t.title), lower(:words::text)) > 0)
  order by t.id desc limit :most::bigint
)
select t.id, t.space_id, p.name as space, t.name, t.title, t.kind, t.route, t.spec, t.policy,
  u.name as after_task, t.after_on, t.origin, t.enabled, t.enabled_since, t.paused_until,
  t.disabled_reason, t.failures, t.created_at, t.updated_at, t.deleted_at, t.thread, t.disabled_at,
  s.id, s.task_id, t.name, p.name, s.name, s.rule, s.generation, s.version,
  s.state, s.note, s.cursor, s.next_at, s.created_at, s.updated_at
from t join rota.spaces p on p.id = t.space_id
left join rota.tasks u on u.id = t.after_task_id
left join rota.schedules s on s.task_id = t.id and s.deleted_at is null
order by t.id desc, s.id;

-- name: successors_of
select t.after_task_id, t.id, t.space_id, p.name as space, t.name, t.title, t.kind, t.route, t.spec,
  t.policy, u.name as after_task, t.after_on, t.origin, t.enabled, t.enabled_since, t.paused_until,
  t.disabled_reason, t.failures, t.created_at, t.updated_at, t.deleted_at, t.thread, t.disabled_at
from rota.tasks t join rota.spaces p on p.id = t.space_id
join rota.tasks u on u.id = t.after_task_id
where t.after_task_id = any(:ids::bigint[]) and t.after_task_id is not null
  and t.deleted_at is null
order by t.id;

-- name: insert_tasks
insert into rota.tasks (space_id, name, title, kind, route, spec, policy, after_task_id, after_on,
  origin, thread, enabled, enabled_since, created_at, updated_at)
select w.space_id, w.name, w.title, w.kind, w.route, w.spec, w.policy, w.after_task_id, w.after_on,
  w.origin, w.thread, 1, :now::bigint, :now::bigint, :now::bigint
from jsonb_to_recordset(:rows::text::jsonb) as w(space_id bigint, name text, title text, kind text,
  route text, spec text, policy text, after_task_id bigint, after_on text, origin text,
  thread text);

-- name: update_tasks  updated_at tells versions apart, so that no two are equal
update rota.tasks t set title = w.title, kind = w.kind, route = w.route, spec = w.spec,
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

-- name: queued_runs_of
select id, task_id, space_id, state, epoch, retries, losses, created_at, depth,
  cancel_at is not null as cancelling
from rota.runs where task_id = :task_id::bigint and state in ('queued', 'waiting')
  and (:planned_only::int = 0 or source in ('slot', 'catch_up'))
order by id limit :most::int;

-- name: running_runs_of
select id from rota.runs where task_id + 0 = :task_id::bigint and state = 'running'
order by id limit :most::int;

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
join rota.tasks t on t.id = w.task_id;

-- name: update_schedules
update rota.schedules s set rule = w.rule, generation = w.generation, state = 'active', note = null,
  cursor = w.cursor, next_at = w.next_at,
  updated_at = :now::bigint, version = s.version + 1
from jsonb_to_recordset(:rows::text::jsonb) as w(id bigint, rule text, generation bigint,
  cursor bigint, next_at bigint)
where s.id = w.id;

-- name: delete_schedule
update rota.schedules set deleted_at = :now::bigint, next_at = null where id = :id::bigint;
