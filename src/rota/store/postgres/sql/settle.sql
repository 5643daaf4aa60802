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

-- name: record_events  one event for each run
insert into rota.events (at, name, space_id, task_id, run_id, data)
select :now::bigint, :name::text, space_id, task_id, id, :data::text
from rota.runs where id = any(:ids::bigint[]);

-- name: insert_events
insert into rota.events (at, name, space_id, task_id, run_id, data)
select :now::bigint, w.name, w.space_id, w.task_id, w.run_id, w.data
from jsonb_to_recordset(:rows::text::jsonb) as w(name text, space_id bigint, task_id bigint,
  run_id bigint, data text);

-- name: finish_runs
update rota.runs set state = :state::text, place = null, holder = null, finished_at = :now::bigint,
  cancel_at = null, error_code = null, error = null
where id = any(:ids::bigint[]);

-- name: finish_runs_with
update rota.runs r set state = w.state, place = null, holder = null, finished_at = :now::bigint,
  cancel_at = null, result = w.result, error_code = w.error_code, error = w.error,
  checked = w.checked, mark = w.mark
from jsonb_to_recordset(:rows::text::jsonb) as w(id bigint, state text, result text,
  error_code text, error text, checked text, mark text)
where r.id = w.id;

-- name: count_quiet
update rota.tasks t set quiet = t.quiet + w.add
from jsonb_to_recordset(:rows::text::jsonb) as w(task_id bigint, add int)
where t.id = w.task_id;

-- name: move_next_check  the one that waits, if one does
update rota.runs set available_at = :at::bigint
where task_id = :task_id::bigint and place = 'later' and key is not null and key like 'next:%'
returning id;

-- name: requeue_runs
update rota.runs r set state = 'queued', holder = null, place = w.place,
  available_at = w.available_at, cause = w.cause, retries = r.retries + w.retries,
  losses = r.losses + w.losses, stuck = 0, error_code = w.error_code, error = w.error,
  expires_at = case when r.state = 'waiting' then null else r.expires_at end
from jsonb_to_recordset(:rows::text::jsonb) as w(id bigint, place text, available_at bigint,
  cause text, retries int, losses int, error_code text, error text)
where r.id = w.id;

-- name: await_runs
update rota.runs r set state = 'waiting', holder = null, asked = r.asked + 1,
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
update rota.questions q set answer = w.answer, answered_by = w.answered_by,
  answered_at = :now::bigint
from jsonb_to_recordset(:rows::text::jsonb) as w(id bigint, answer text, answered_by text)
where q.id = w.id and coalesce(q.answered_at, 0) < 1;

-- name: note_outcome  what came of the action that an answer approved
update rota.questions set outcome = :outcome::text
where id = :id::bigint and answered_at is not null and outcome is null
returning id;

-- name: insert_deliveries
insert into rota.deliveries (space_id, run_id, channel, target, body, dedupe_key, state,
  available_at, created_at, early, kind, asking, mail, files)
select w.space_id, w.run_id, w.channel, w.target, w.body, w.dedupe_key, 'pending', :now::bigint,
  :now::bigint, coalesce(w.early, 0), coalesce(w.kind, 'message'), w.asking, w.mail,
  w.files
from jsonb_to_recordset(:rows::text::jsonb) as w(space_id bigint, run_id bigint, channel text,
  target text, body text, dedupe_key text, early int, kind text, asking int, mail text, files text)
on conflict (dedupe_key) do nothing;

-- name: count_failures
update rota.tasks t set failures = case when w.reset = 1 then 0 else t.failures end + w.add
from (
  select * from jsonb_to_recordset(:rows::text::jsonb) as j(task_id bigint, reset int, add int)
  order by task_id
) w
where t.id = w.task_id and (t.failures <> 0 or w.add > 0);

-- name: disable_failing
update rota.tasks t set enabled = 0, disabled_at = :now::bigint,
  updated_at = greatest(:now::bigint, t.updated_at + 1),
  disabled_reason = 'failed ' || t.failures || ' times in a row'
from jsonb_to_recordset(:rows::text::jsonb) as w(task_id bigint, disable_after int)
where t.id = w.task_id and t.enabled <> 0 and t.failures >= w.disable_after
returning t.id, t.space_id, t.name, t.disabled_reason, t.policy;

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
from unnest(:ids::bigint[]) asked(id);

-- name: mark_stuck
update rota.runs set stuck = 1
where id = :id::bigint and epoch = :epoch::int and coalesce(state, '') = 'running' and stuck = 0
returning id;

-- name: open_runs
select id, task_id, space_id, state, epoch, retries, losses, created_at, depth,
  cancel_at is not null as cancelling
from rota.runs where id = any(:ids::bigint[]);

-- name: lost_runs  running, but nobody trusted works on them and no keeper can be alive
select id, task_id, space_id, state, epoch, retries, losses, created_at, depth,
  cancel_at is not null as cancelling, holder,
  not exists (select 1 from rota.workers w where w.id = r.holder) and
  started_at <= (select value from rota.facts where name = 'restored')::bigint as restored
from rota.runs r
where state = 'running'
  and not exists (select 1 from rota.workers w where w.id = r.holder and w.fenced = 0)
  and not exists (select 1 from rota.kept k join rota.homes h on h.id = k.home
    where k.run_id = r.id and k.epoch = r.epoch and h.until > :now::bigint)
limit :most::int;

-- name: expired_runs
select id, task_id, space_id, state, epoch, retries, losses, created_at, depth,
  cancel_at is not null as cancelling
from rota.runs
where expires_at is not null and state in ('queued', 'waiting') and expires_at <= :now::bigint
order by expires_at limit :most::int;
