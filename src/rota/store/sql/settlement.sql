-- name: thread_given_to  of what an attempt was given, and no earlier one
select thread from rota.messages where reader = :run_id::bigint and run_id = :run_id::bigint
  and epoch = :epoch::int and state = 'given' limit 1;

-- name: give_back_messages  that an attempt was given which never began
update rota.messages set state = 'pending', run_id = null, epoch = null, read_at = null
where reader = :run_id::bigint and run_id = :run_id::bigint and epoch = :epoch::int and state = 'given';

-- name: queued_runs_of
select id, task_id, space_id, state, epoch, retries, losses, created_at, depth,
  cancel_at is not null as cancelling
from rota.runs where task_id = :task_id::bigint and state in ('queued', 'waiting')
  and (:planned_only::int = 0 or source in ('slot', 'catch_up'))
order by id limit :most::int;

-- name: lock_runs  in the order of their ids, so that no two transactions wait for each other
select id, epoch, state, lane, (exists (select 1 from rota.limits))::int as limited,
  (cancel_at is not null)::int as cancelling, holder, deferring,
  (exists (select 1 from rota.spending where open = 1))::int as spending
from rota.runs where id = any(:ids::bigint[])
order by id for update;

-- name: heads_of
select id, pool, space_id, route, grp, metered, lane
from rota.runs where id = any(:ids::bigint[]);

-- name: record_attempts  an attempt's row is written once, when it has ended
insert into rota.attempts (run_id, number, cause, worker, started_at, ended_at, outcome)
select id, epoch, cause, holder, started_at, :now::bigint, :outcome::text
from rota.runs where id = any(:ids::bigint[]);

-- name: record_told_attempts  those that have an error, or processes whose ending is known
insert into rota.attempts (run_id, number, cause, worker, started_at, ended_at, outcome, error,
  ending, checks)
select r.id, r.epoch, r.cause, r.holder, r.started_at,
  greatest(r.started_at, :now::bigint - w.away), w.outcome, w.error, w.ending,
  w.checks
from jsonb_to_recordset(:rows::text::jsonb)
  as w(run_id bigint, outcome text, error text, ending text, checks text, away bigint)
join rota.runs r on r.id = w.run_id;

-- name: finish_runs
update rota.runs set state = :state::text, place = null, holder = null, finished_at = :now::bigint,
  cancel_at = null, error_code = null, error = null
where id = any(:ids::bigint[]);

-- name: finish_runs_with
update rota.runs as r set state = w.state, place = null, holder = null, finished_at = :now::bigint,
  cancel_at = null, result = w.result, error_code = w.error_code, error = w.error,
  checked = w.checked, mark = w.mark
from jsonb_to_recordset(:rows::text::jsonb) as w(id bigint, state text, result text,
  error_code text, error text, checked text, mark text)
where r.id = w.id;

-- name: count_quiet
update rota.tasks as t set quiet = t.quiet + w.added
from jsonb_to_recordset(:rows::text::jsonb) as w(task_id bigint, added int)
where t.id = w.task_id;

-- name: move_next_check  the one that waits, if one does
update rota.runs set available_at = :at::bigint
where task_id = :task_id::bigint and place = 'later' and key is not null and key like 'next:%'
returning id;

-- name: requeue_runs
update rota.runs as r set state = 'queued', holder = null, place = w.place,
  available_at = w.available_at, cause = w.cause, retries = r.retries + w.retries,
  losses = r.losses + w.losses, stuck = 0, error_code = w.error_code, error = w.error,
  expires_at = case when r.state = 'waiting' then null else r.expires_at end
from jsonb_to_recordset(:rows::text::jsonb) as w(id bigint, place text, available_at bigint,
  cause text, retries int, losses int, error_code text, error text)
where r.id = w.id;

-- name: await_runs
update rota.runs as r set state = 'waiting', holder = null, asked = r.asked + 1,
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

-- name: note_outcome  what came of the action that an answer approved
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

-- name: disable_done  tasks that were to run until they have succeeded
update rota.tasks set enabled = 0, disabled_reason = 'it has succeeded, and was to run until then',
  disabled_at = :now::bigint, updated_at = greatest(:now::bigint, updated_at + 1)
where id = any(:ids::bigint[]) and enabled = 1
returning id;

-- name: request_cancel
update rota.runs set cancel_at = :now::bigint
where id = any(:ids::bigint[]) and coalesce(state, '') = 'running' and cancel_at is null
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
