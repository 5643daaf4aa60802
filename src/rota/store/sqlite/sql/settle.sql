-- name: lock_runs
select id, epoch, state, lane, (select count(*) > 0 from limits) as limited,
  cancel_at is not null as cancelling, holder, deferring,
  exists (select 1 from spending where open = 1) as spending
from runs where id in (select value from json_each(:ids));

-- name: heads_of
select id, pool, space_id, route, grp, metered, lane
from runs where id in (select value from json_each(:ids));

-- name: record_attempts  an attempt's row is written once, when it has ended
insert into attempts (run_id, number, cause, worker, started_at, ended_at, outcome)
select id, epoch, cause, holder, started_at, :now, :outcome
from runs where id in (select value from json_each(:ids));

-- name: record_told_attempts  those that have an error, or processes whose ending is known
insert into attempts (run_id, number, cause, worker, started_at, ended_at, outcome, error, ending,
  checks)
select r.id, r.epoch, r.cause, r.holder, r.started_at,
  max(r.started_at, :now - (w.value ->> 'away')), w.value ->> 'outcome', w.value ->> 'error', w.value ->> 'ending', w.value ->> 'checks'
from jsonb_each(:rows) w join runs r on r.id = w.value ->> 'run_id';

-- name: record_events  one event for each run
insert into events (at, name, space_id, task_id, run_id, data)
select :now, :name, space_id, task_id, id, :data
from runs where id in (select value from json_each(:ids));

-- name: insert_events
insert into events (at, name, space_id, task_id, run_id, data)
select :now, value ->> 'name', value ->> 'space_id', value ->> 'task_id', value ->> 'run_id',
  value ->> 'data'
from jsonb_each(:rows);

-- name: finish_runs
update runs set state = :state, place = null, holder = null, finished_at = :now, cancel_at = null,
  error_code = null, error = null
where id in (select value from json_each(:ids));

-- name: finish_runs_with
update runs set state = w.value ->> 'state', place = null, holder = null, finished_at = :now,
  cancel_at = null, result = w.value ->> 'result', error_code = w.value ->> 'error_code',
  error = w.value ->> 'error', checked = w.value ->> 'checked', mark = w.value ->> 'mark'
from jsonb_each(:rows) w where runs.id = w.value ->> 'id';

-- name: count_quiet
update tasks set quiet = quiet + (w.value ->> 'add')
from jsonb_each(:rows) w where tasks.id = w.value ->> 'task_id';

-- name: move_next_check  the one that waits, if one does
update runs set available_at = :at
where task_id = :task_id and place = 'later' and key is not null and key like 'next:%'
returning id;

-- name: requeue_runs
update runs set state = 'queued', holder = null, place = w.value ->> 'place',
  available_at = w.value ->> 'available_at', cause = w.value ->> 'cause',
  retries = retries + (w.value ->> 'retries'), losses = losses + (w.value ->> 'losses'),
  stuck = 0, error_code = w.value ->> 'error_code', error = w.value ->> 'error',
  expires_at = case when state = 'waiting' then null else expires_at end
from jsonb_each(:rows) w where runs.id = w.value ->> 'id';

-- name: await_runs
update runs set state = 'waiting', holder = null, asked = asked + 1,
  expires_at = w.value ->> 'expires_at'
from jsonb_each(:rows) w where runs.id = w.value ->> 'id';

-- name: insert_questions
insert into questions (run_id, epoch, kind, question, context, options, asked_at, expires_at,
  fallback, action, digest)
select value ->> 'id', value ->> 'epoch', value ->> 'kind', value ->> 'question',
  value ->> 'context', value ->> 'options', :now, value ->> 'expires_at', value ->> 'fallback',
  value ->> 'action', value ->> 'digest'
from jsonb_each(:rows);

-- name: answer_questions
update questions set answer = w.value ->> 'answer', answered_by = w.value ->> 'answered_by',
  answered_at = :now
from jsonb_each(:rows) w where questions.id = w.value ->> 'id' and questions.answered_at is null;

-- name: note_outcome  what came of the action that an answer approved
update questions set outcome = :outcome
where id = :id and answered_at is not null and outcome is null
returning id;

-- name: insert_deliveries
insert into deliveries (space_id, run_id, channel, target, body, dedupe_key, state, available_at,
  created_at, early, kind, asking, mail, files)
select value ->> 'space_id', value ->> 'run_id', value ->> 'channel', value ->> 'target',
  value ->> 'body', value ->> 'dedupe_key', 'pending', :now, :now, coalesce(value ->> 'early', 0),
  coalesce(value ->> 'kind', 'message'), value ->> 'asking', value ->> 'mail',
  value ->> 'files'
from jsonb_each(:rows) where true
on conflict (dedupe_key) do nothing;

-- name: count_failures
update tasks set failures = case when w.value ->> 'reset' then 0 else failures end
  + (w.value ->> 'add')
from jsonb_each(:rows) w
where tasks.id = w.value ->> 'task_id' and (tasks.failures <> 0 or w.value ->> 'add' > 0);

-- name: disable_failing
update tasks set enabled = 0, disabled_at = :now, updated_at = max(:now, updated_at + 1),
  disabled_reason = 'failed ' || failures || ' times in a row'
from jsonb_each(:rows) w
where tasks.id = w.value ->> 'task_id' and tasks.enabled = 1
  and tasks.failures >= w.value ->> 'disable_after'
returning id, space_id, name, disabled_reason, policy;

-- name: disable_done  tasks that were to run until they have succeeded
update tasks set enabled = 0, disabled_reason = 'it has succeeded, and was to run until then',
  disabled_at = :now, updated_at = max(:now, updated_at + 1)
where id in (select value from json_each(:ids)) and enabled = 1
returning id;

-- name: request_cancel
update runs set cancel_at = :now
where id in (select value from json_each(:ids)) and state = 'running' and cancel_at is null
returning id;

-- name: cancel_reasons
select asked.value, (
  select data ->> 'why' from events where run_id = asked.value and run_id is not null
    and name = 'run.cancel_requested' order by id desc limit 1)
from json_each(:ids) asked;

-- name: mark_stuck
update runs set stuck = 1 where id = :id and epoch = :epoch and state = 'running' and stuck = 0
returning id;

-- name: open_runs
select id, task_id, space_id, state, epoch, retries, losses, created_at, depth,
  cancel_at is not null as cancelling
from runs where id in (select value from json_each(:ids));

-- name: lost_runs  running, but nobody trusted works on them and no keeper can be alive
select id, task_id, space_id, state, epoch, retries, losses, created_at, depth,
  cancel_at is not null as cancelling, holder, holder not in (select id from workers) and
  started_at <= cast((select value from facts where name = 'restored') as integer) as restored
from runs indexed by runs_running
where state = 'running' and holder not in (select id from workers where fenced = 0)
  and not exists (select 1 from kept k join homes h on h.id = k.home
    where k.run_id = runs.id and k.epoch = runs.epoch and h.until > :now)
limit :most;

-- name: expired_runs
select id, task_id, space_id, state, epoch, retries, losses, created_at, depth,
  cancel_at is not null as cancelling
from runs indexed by runs_expiry
where expires_at is not null and state in ('queued', 'waiting') and expires_at <= :now
order by expires_at limit :most;
