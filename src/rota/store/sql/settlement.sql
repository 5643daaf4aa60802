-- name: thread_assigned_to  the thread whose messages an attempt was given
select thread from rota.messages where reader_run_id = :run_id::bigint and run_id = :run_id::bigint
  and epoch = :epoch::int and state = 'assigned' limit 1;

-- name: return_messages  messages of an attempt whose program never started
update rota.messages set state = 'pending', run_id = null, epoch = null, read_at = null
where reader_run_id = :run_id::bigint and run_id = :run_id::bigint and epoch = :epoch::int
  and state = 'assigned';

-- name: queued_runs_of
select id, task_id, space_id, state, epoch, retries, losses, created_at, depth,
  cancel_requested_at is not null as cancelling
from rota.runs where task_id = :task_id::bigint and state in ('queued', 'waiting')
  and (:planned_only::int = 0 or source in ('slot', 'catch_up'))
order by id limit :most::int;

-- name: lock_runs  in the order of their ids, which prevents deadlocks
select id, epoch, state, lane, (exists (select 1 from rota.limits))::int as limited,
  (cancel_requested_at is not null)::int as cancelling, worker_id, has_deferred,
  (exists (select 1 from rota.budget_usage where is_open = 1))::int as spending
from rota.runs where id = any(:ids::bigint[])
order by id for update;

-- name: queue_heads_of
select id, pool, space_id, route, limit_group, metered, lane
from rota.runs where id = any(:ids::bigint[]);

-- name: record_attempts  attempts that have ended
insert into rota.attempts (run_id, epoch, cause, worker_id, started_at, ended_at, outcome)
select id, epoch, cause, worker_id, started_at, :now::bigint, :outcome::text
from rota.runs where id = any(:ids::bigint[]);

-- name: record_reported_attempts  those with an error, an exit record or check results
insert into rota.attempts (run_id, epoch, cause, worker_id, started_at, ended_at, outcome, error,
  exit, check_results)
select r.id, r.epoch, r.cause, r.worker_id, r.started_at,
  greatest(r.started_at, :now::bigint - w.away), w.outcome, w.error, w.exit,
  w.check_results
from jsonb_to_recordset(:rows::text::jsonb)
  as w(run_id bigint, outcome text, error text, exit text, check_results text, away bigint)
join rota.runs r on r.id = w.run_id;

-- name: finish_runs
update rota.runs set state = :state::text, queue_state = null, worker_id = null,
  finished_at = :now::bigint,
  cancel_requested_at = null, error_code = null, error = null
where id = any(:ids::bigint[]);

-- name: finish_runs_with
update rota.runs as r set state = w.state, queue_state = null, worker_id = null,
  finished_at = :now::bigint,
  cancel_requested_at = null, result = w.result, error_code = w.error_code, error = w.error,
  check_state = w.check_state, suppressed = w.suppressed
from jsonb_to_recordset(:rows::text::jsonb) as w(id bigint, state text, result text,
  error_code text, error text, check_state text, suppressed text)
where r.id = w.id;

-- name: count_suppressed
update rota.tasks as t set suppressed_count = t.suppressed_count + w.added
from jsonb_to_recordset(:rows::text::jsonb) as w(task_id bigint, added int)
where t.id = w.task_id;

-- name: move_next_check  the pending one, if there is one
update rota.runs set available_at = :at::bigint
where task_id = :task_id::bigint and queue_state = 'delayed' and key is not null
  and key like 'next:%'
returning id;

-- name: requeue_runs
update rota.runs as r set state = 'queued', worker_id = null, queue_state = w.queue_state,
  available_at = w.available_at, cause = w.cause, retries = r.retries + w.retries,
  losses = r.losses + w.losses, stuck = 0, error_code = w.error_code, error = w.error,
  expires_at = case when r.state = 'waiting' then null else r.expires_at end
from jsonb_to_recordset(:rows::text::jsonb) as w(id bigint, queue_state text, available_at bigint,
  cause text, retries int, losses int, error_code text, error text)
where r.id = w.id;

-- name: await_runs
update rota.runs as r set state = 'waiting', worker_id = null,
  question_count = r.question_count + 1,
  expires_at = w.expires_at
from jsonb_to_recordset(:rows::text::jsonb) as w(id bigint, expires_at bigint)
where r.id = w.id;

-- name: insert_questions
insert into rota.questions (run_id, epoch, kind, question, context, options, asked_at, expires_at,
  fallback, action, digest)
select w.id, w.epoch, w.kind, w.question, w.context, w.options, :now::bigint, w.expires_at,
  w.fallback, w.action, w.digest
from jsonb_to_recordset(:rows::text::jsonb) as w(id bigint, epoch int, kind text, question text,
  context text, options text, expires_at bigint, fallback text, action text, digest text);

-- name: answer_questions
update rota.questions as q set answer = w.answer, answered_by = w.answered_by,
  answered_at = :now::bigint
from jsonb_to_recordset(:rows::text::jsonb) as w(id bigint, answer text, answered_by text)
where q.id = w.id and coalesce(q.answered_at, 0) < 1;

-- name: set_question_outcome  the outcome of an approved action
update rota.questions set outcome = :outcome::text
where id = :id::bigint and answered_at is not null and outcome is null
returning id;

-- name: count_failures
update rota.tasks as t set failures = case when w.reset = 1 then 0 else t.failures end + w.added
from jsonb_to_recordset(:rows::text::jsonb) as w(task_id bigint, reset int, added int)
where t.id = w.task_id and (t.failures <> 0 or w.added > 0);

-- name: disable_failing
update rota.tasks as t set enabled = 0, disabled_at = :now::bigint,
  updated_at = greatest(:now::bigint, t.updated_at + 1),
  disabled_reason = 'failed ' || t.failures || ' times in a row'
from jsonb_to_recordset(:rows::text::jsonb) as w(task_id bigint, disable_after int)
where t.id = w.task_id and t.enabled <> 0 and t.failures >= w.disable_after
returning id, space_id, name, disabled_reason, policy;

-- name: disable_done  tasks that run until they succeed
update rota.tasks set enabled = 0, disabled_reason = 'it has succeeded, and was to run until then',
  disabled_at = :now::bigint, updated_at = greatest(:now::bigint, updated_at + 1)
where id = any(:ids::bigint[]) and enabled = 1
returning id;

-- name: request_cancel
update rota.runs set cancel_requested_at = :now::bigint
where id = any(:ids::bigint[]) and coalesce(state, '') = 'running' and cancel_requested_at is null
returning id;

-- name: cancel_reasons
select asked.id, (
  select data::jsonb ->> 'why' from rota.events where run_id = asked.id and run_id is not null
    and name = 'run.cancel_requested' order by id desc limit 1)
from unnest(:ids::bigint[]) as asked(id);

-- name: insert_events
insert into rota.events (at, name, space_id, task_id, run_id, data)
select :now::bigint, w.name, w.space_id, w.task_id, w.run_id, w.data
from jsonb_to_recordset(:rows::text::jsonb) as w(name text, space_id bigint, task_id bigint,
  run_id bigint, data text);

-- name: record_events  one event for each run
insert into rota.events (at, name, space_id, task_id, run_id, data)
select :now::bigint, :name::text, space_id, task_id, id, :data::text
from rota.runs where id = any(:ids::bigint[]);
