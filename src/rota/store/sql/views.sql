-- name: list_spaces
select id, name, role, timezone, created_at from rota.spaces order by id;

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

-- name: get_runs
select r.id, p.name as space, r.task_id, t.name as task, r.state, r.place, r.source, r.pool, r.priority,
  r.lane, r.route, r.epoch, r.cause, r.retries, r.losses, r.created_at, r.available_at, r.started_at,
  r.finished_at, r.expires_at, r.cancel_at, r.stuck, r.holder, r.schedule_id, r.slot_key, r.slot_at,
  r.upstream_id, r.key, r.payload, r.result, r.error_code, r.error, r.checked, r.mark,
  (select a.ended_at from rota.attempts a where a.run_id = r.id and a.number = r.epoch) as ended_at
from rota.runs r join rota.tasks t on t.id = r.task_id join rota.spaces p on p.id = r.space_id
where r.id = any(:ids::bigint[]) order by r.id;

-- name: list_runs
select r.id, p.name as space, r.task_id, t.name as task, r.state, r.place, r.source, r.pool, r.priority,
  r.lane, r.route, r.epoch, r.cause, r.retries, r.losses, r.created_at, r.available_at, r.started_at,
  r.finished_at, r.expires_at, r.cancel_at, r.stuck, r.holder, r.schedule_id, r.slot_key, r.slot_at,
  r.upstream_id, r.key, r.payload, r.result, r.error_code, r.error, r.checked, r.mark,
  (select a.ended_at from rota.attempts a where a.run_id = r.id and a.number = r.epoch) as ended_at
from rota.runs r join rota.tasks t on t.id = r.task_id join rota.spaces p on p.id = r.space_id
where r.id < :before::bigint and (:space_id::bigint is null or r.space_id = :space_id::bigint)
  and (:state::text is null or r.state = :state::text)
  and (:hidden::text is null or r.mark is null or r.mark <> :hidden::text)
order by r.id desc limit :most::int;

-- name: list_runs_of_task
select r.id, p.name as space, r.task_id, t.name as task, r.state, r.place, r.source, r.pool, r.priority,
  r.lane, r.route, r.epoch, r.cause, r.retries, r.losses, r.created_at, r.available_at, r.started_at,
  r.finished_at, r.expires_at, r.cancel_at, r.stuck, r.holder, r.schedule_id, r.slot_key, r.slot_at,
  r.upstream_id, r.key, r.payload, r.result, r.error_code, r.error, r.checked, r.mark,
  (select a.ended_at from rota.attempts a where a.run_id = r.id and a.number = r.epoch) as ended_at
from rota.runs r join rota.tasks t on t.id = r.task_id join rota.spaces p on p.id = r.space_id
where r.task_id = :task_id::bigint and r.id < :before::bigint
  and (:space_id::bigint is null or r.space_id = :space_id::bigint)
  and (:state::text is null or r.state = :state::text)
  and (:hidden::text is null or r.mark is null or r.mark <> :hidden::text)
order by r.id desc limit :most::int;

-- name: count_ahead  at most so many, because nobody counts further
select count(*) from (
  select 1 from rota.runs m join rota.runs r /* sqlite: indexed by runs_ready */
    on r.place = 'ready' and r.pool = m.pool and r.space_id = m.space_id
    and (r.priority > m.priority or (r.priority = m.priority
      and (r.available_at, r.id) < (m.available_at, m.id)))
  where m.id = :id::bigint
  limit :most::int
) as before_it;

-- name: slot_runs
select r.id, p.name as space, r.task_id, t.name as task, r.state, r.place, r.source, r.pool, r.priority,
  r.lane, r.route, r.epoch, r.cause, r.retries, r.losses, r.created_at, r.available_at, r.started_at,
  r.finished_at, r.expires_at, r.cancel_at, r.stuck, r.holder, r.schedule_id, r.slot_key, r.slot_at,
  r.upstream_id, r.key, r.payload, r.result, r.error_code, r.error, r.checked, r.mark,
  (select a.ended_at from rota.attempts a where a.run_id = r.id and a.number = r.epoch) as ended_at
from rota.runs r join rota.tasks t on t.id = r.task_id join rota.spaces p on p.id = r.space_id
where r.task_id = :task_id::bigint and r.slot_at is not null and r.slot_at between :start::bigint and :end::bigint
order by r.slot_at, r.id;

-- name: ledger_rows
select l.schedule_id, s.name as schedule, l.reason, l.first_key, l.last_key, l.first_at, l.last_at,
  l.count, l.noted_at
from rota.schedules s join rota.ledger l on l.schedule_id = s.id
where s.task_id = :task_id::bigint and l.last_at >= :start::bigint and l.first_at <= :end::bigint
order by l.first_at, l.id;

-- name: list_attempts
select number, cause, worker, started_at, ended_at, outcome, error, ending, checks
from rota.attempts where run_id = :run_id::bigint order by number;

-- name: list_questions
select id, run_id, epoch, kind, question, context, options, asked_at, expires_at, answered_at, answer,
  answered_by, fallback, action, digest, outcome
from rota.questions where run_id = any(:ids::bigint[]) order by id;

-- name: get_questions
select id, run_id, epoch, kind, question, context, options, asked_at, expires_at, answered_at, answer,
  answered_by, fallback, action, digest, outcome
from rota.questions where id = any(:ids::bigint[]);

-- name: list_events
select id, at, name, space_id, task_id, run_id, data from rota.events where id > :after::bigint
order by id limit :most::int;

-- name: run_events  but for what its programs wrote
select id, at, name, space_id, task_id, run_id, data from rota.events
where run_id = :run_id::bigint and run_id is not null and name <> 'run.output' order by id;

-- name: run_output  the newest of what its programs wrote
select id, at, name, space_id, task_id, run_id, data from (
  select * from rota.events
  where run_id = :run_id::bigint and run_id is not null and name = 'run.output'
  order by id desc limit :most::int
) as newest order by id;

-- name: list_deliveries
select id, run_id, channel, target, body, dedupe_key, state, tries, available_at, created_at, sent_at,
  error, kind, mail, files
from (
  (select * from rota.deliveries where run_id = :run_id::bigint
    order by run_id, id desc limit :most::int)
  union all
  (select * from rota.deliveries where :run_id::bigint is null order by id desc limit :most::int)
) d
order by id desc;

-- name: count_by_state
select state, count(*) from rota.runs where task_id = :task_id::bigint group by state;

-- name: used_slots  what workers are at, the longest first
select r.id, t.name as task, p.name as space, r.holder, r.started_at
from rota.runs r /* sqlite: indexed by runs_running */ join rota.tasks t on t.id = r.task_id join rota.spaces p on p.id = r.space_id
where r.state = 'running' and (:space_id::bigint is null or r.space_id = :space_id::bigint)
order by r.started_at, r.id limit :most::int;

-- name: list_workers
select w.id, w.host, w.pid, w.roles, w.routes, w.slots,
  (select count(*) from rota.runs r where r.state = 'running' and r.holder = w.id) as running,
  w.started_at, w.seen_at, w.lease_until, w.fenced
from rota.workers w order by w.started_at, w.id;

-- name: view_queue
select
  (select count(*) from rota.runs /* sqlite: indexed by runs_ready */ where place = 'ready') as ready,
  (select count(*) from rota.runs /* sqlite: indexed by runs_later */ where place = 'later') as later,
  (select count(*) from rota.runs where place = 'held' and lane is not null) as held,
  (select count(*) from rota.runs /* sqlite: indexed by runs_running */ where state = 'running') as running,
  (select count(*) from rota.questions q join rota.runs r on r.id = q.run_id
    where q.answered_at is null and r.state = 'waiting') as waiting,
  (select count(*) from rota.runs /* sqlite: indexed by runs_running */ where state = 'running' and stuck = 1) as stuck,
  (select min(available_at) from rota.runs /* sqlite: indexed by runs_ready */ where place = 'ready') as oldest_ready,
  (select min(started_at) from rota.runs /* sqlite: indexed by runs_running */ where state = 'running')
    as oldest_running,
  (select min(q.asked_at) from rota.questions q join rota.runs r on r.id = q.run_id
    where q.answered_at is null and r.state = 'waiting') as oldest_waiting,
  (select count(*) from rota.schedules where next_at is not null) as schedules,
  (select count(*) from rota.schedules where state = 'quarantined' and deleted_at is null)
    as quarantined;

-- name: view_queue_of  the same for one space, with when it is due next
select
  (select count(*) from rota.runs /* sqlite: indexed by runs_ready */ where place = 'ready' and space_id = :space_id::bigint),
  (select count(*) from rota.runs /* sqlite: indexed by runs_later */ where place = 'later' and space_id = :space_id::bigint),
  (select count(*) from rota.runs where place = 'held' and lane is not null and space_id = :space_id::bigint),
  (select count(*) from rota.runs /* sqlite: indexed by runs_running */ where state = 'running' and space_id = :space_id::bigint),
  (select count(*) from rota.questions q join rota.runs r on r.id = q.run_id
    where q.answered_at is null and r.state = 'waiting' and r.space_id = :space_id::bigint),
  (select count(*) from rota.runs /* sqlite: indexed by runs_running */ where state = 'running' and stuck = 1 and space_id = :space_id::bigint),
  (select min(available_at) from rota.runs /* sqlite: indexed by runs_ready */ where place = 'ready' and space_id = :space_id::bigint),
  (select min(started_at) from rota.runs /* sqlite: indexed by runs_running */ where state = 'running' and space_id = :space_id::bigint),
  (select min(q.asked_at) from rota.questions q join rota.runs r on r.id = q.run_id
    where q.answered_at is null and r.state = 'waiting' and r.space_id = :space_id::bigint),
  (select count(*) from rota.schedules s join rota.tasks t on t.id = s.task_id
    where s.next_at is not null and t.space_id = :space_id::bigint),
  (select count(*) from rota.schedules s join rota.tasks t on t.id = s.task_id
    where s.state = 'quarantined' and s.deleted_at is null and t.space_id = :space_id::bigint),
  (select min(s.next_at) from rota.schedules s join rota.tasks t on t.id = s.task_id
    where s.next_at is not null and t.space_id = :space_id::bigint),
  (select min(available_at) from rota.runs /* sqlite: indexed by runs_later */ where place = 'later' and space_id = :space_id::bigint);

-- name: view_pools
select pool, count(*), min(available_at) from rota.runs /* sqlite: indexed by runs_ready */
where place = 'ready' and (:space_id::bigint is null or space_id = :space_id::bigint) group by pool order by pool;

-- name: count_unsent
select state, count(*) from rota.deliveries /* sqlite: indexed by deliveries_unsent */
where state not in ('sent', 'withdrawn') and (:space_id::bigint is null or space_id = :space_id::bigint) group by state order by state;

-- name: dead_deliveries  how many died since an instant, and the last
select count(*) over (), run_id, channel || ':' || target as place, error from rota.deliveries /* sqlite: indexed by deliveries_unsent */
where state = 'dead' and state not in ('sent', 'withdrawn') and available_at > :since::bigint
  and (:space_id::bigint is null or space_id = :space_id::bigint)
order by available_at desc, id desc limit 1;

-- name: unserved_routes
select distinct h.route from rota.heads h
where (:space_id::bigint is null or h.space_id = :space_id::bigint)
  and not exists (select 1 from rota.workers w
    where w.fenced = 0 and w.routes::jsonb ? h.route);
