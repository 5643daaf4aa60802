-- name: put_budget
insert into rota.budgets (scope, key, tokens, cost, turns, tools, seconds, set_at, set_by)
values (:scope::text, :key::bigint, :tokens::bigint, :cost::bigint, :turns::bigint, :tools::bigint,
  :seconds::bigint, :now::bigint, :who::text)
on conflict (scope, key) do update set tokens = excluded.tokens, cost = excluded.cost,
  turns = excluded.turns, tools = excluded.tools, seconds = excluded.seconds,
  set_at = excluded.set_at, set_by = excluded.set_by;

-- name: drop_budget
delete from rota.budgets where scope = :scope::text and key = :key::bigint;

-- name: release_over_budget  make runs ready that wait for tomorrow's budget
update rota.runs set available_at = :now::bigint
where queue_state = 'delayed' and error_code = 'over_budget'
  and (:task_id::bigint is null or task_id = :task_id::bigint)
  and (:space_id::bigint is null or space_id = :space_id::bigint);

-- name: read_budgets
select scope, tokens, cost, turns, tools, seconds from rota.budgets
where (scope in ('run', 'task') and key = :task_id::bigint)
  or (scope = 'space' and key = :space_id::bigint)
order by scope;

-- name: lock_budgets  serialises reservations
select scope, tokens, cost, turns, tools, seconds from rota.budgets
where (scope in ('run', 'task') and key = :task_id::bigint)
  or (scope = 'space' and key = :space_id::bigint)
order by scope for update;

-- name: lock_running_attempt
select id from rota.runs
where id = :run_id::bigint and epoch = :epoch::int and state = 'running'
  and worker_id = :worker::text
for share;

-- name: sum_budget_usage  what other attempts of a day used, and what is reserved beyond that
select sum(tokens)::bigint, sum(cost)::bigint, sum(turns)::bigint, sum(tools)::bigint,
  sum(seconds)::bigint,
  sum(is_open * greatest(0, reserved_tokens - tokens))::bigint,
  sum(is_open * greatest(0, reserved_cost - cost))::bigint,
  sum(is_open * greatest(0, reserved_turns - turns))::bigint,
  sum(is_open * greatest(0, reserved_tools - tools))::bigint,
  sum(is_open * greatest(0, reserved_seconds - seconds))::bigint
from rota.budget_usage
where day = :day::text and ((:scope::text = 'task' and task_id = :key::bigint)
    or (:scope::text = 'space' and space_id = :key::bigint))
  and not (run_id = :run_id::bigint and epoch = :epoch::int);

-- name: insert_budget_usage
insert into rota.budget_usage (run_id, epoch, space_id, task_id, day, is_open, started_at,
  reserved_tokens, reserved_cost, reserved_turns, reserved_tools, reserved_seconds)
values (:run_id::bigint, :epoch::int, :space_id::bigint, :task_id::bigint, :day::text, 1,
  :started_at::bigint, :tokens::bigint, :cost::bigint, :turns::bigint, :tools::bigint,
  :seconds::bigint)
on conflict (run_id, epoch) do update set reserved_tokens = excluded.reserved_tokens,
  reserved_cost = excluded.reserved_cost, reserved_turns = excluded.reserved_turns,
  reserved_tools = excluded.reserved_tools, reserved_seconds = excluded.reserved_seconds;

-- name: add_budget_usage
update rota.budget_usage set tokens = tokens + :tokens::bigint, cost = cost + :cost::bigint,
  turns = turns + :turns::bigint, tools = tools + :tools::bigint,
  seconds = seconds + :seconds::bigint, priced = greatest(priced, :priced::int)
where run_id = :run_id::bigint and epoch = :epoch::int;

-- name: close_budget_usage  with the duration to the nearest second, and which budget ended it
update rota.budget_usage as s set is_open = 0, reserved_tokens = 0, reserved_cost = 0,
  reserved_turns = 0,
  reserved_tools = 0, reserved_seconds = 0,
  seconds = greatest(0, (:now::bigint - w.away - s.started_at + 500000) / 1000000),
  stop_reason = w.stop_reason
from jsonb_to_recordset(:rows::text::jsonb) as w(run_id bigint, epoch int, stop_reason text,
  away bigint)
where s.run_id = w.run_id and s.epoch = w.epoch and s.is_open = 1;

-- name: budget_usage_of_run
select epoch, tokens, cost, turns, tools, seconds, priced, stop_reason from rota.budget_usage
where run_id = :run_id::bigint order by epoch;

-- name: budget_usage_history
select sum(tokens)::bigint, sum(cost)::bigint, sum(turns)::bigint, sum(tools)::bigint,
  sum(seconds)::bigint
from rota.budget_usage where task_id = :task_id::bigint
group by run_id having max(is_open) = 0 and sum(turns + tokens) > 0
order by run_id desc limit :most::int;

-- name: attempt_seconds_of_task  of the newest runs, to the nearest second
select (sum(a.ended_at - a.started_at)::bigint + 500000) / 1000000 from rota.attempts a
where a.run_id in (
  select r.id from rota.runs r where r.task_id = :task_id::bigint and r.finished_at is not null
  order by r.id desc limit :most::int
)
group by a.run_id order by a.run_id desc;

-- name: count_over_budget
select count(*), max(error) from rota.runs
where queue_state = 'delayed' and error_code = 'over_budget'
  and (:space_id::bigint is null or space_id = :space_id::bigint);
