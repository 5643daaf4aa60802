-- name: put_budget
insert into rota.budgets (scope, key, tokens, cost, turns, tools, seconds, set_at, set_by)
values (:scope::text, :key::bigint, :tokens::bigint, :cost::bigint, :turns::bigint, :tools::bigint,
  :seconds::bigint, :now::bigint, :who::text)
on conflict (scope, key) do update set tokens = excluded.tokens, cost = excluded.cost,
  turns = excluded.turns, tools = excluded.tools, seconds = excluded.seconds,
  set_at = excluded.set_at, set_by = excluded.set_by;

-- name: drop_budget
delete from rota.budgets where scope = :scope::text and key = :key::bigint;

-- name: free_held_back  what waits for another day may try again
update rota.runs set available_at = :now::bigint
where place = 'later' and error_code = 'over_budget'
  and (:task_id::bigint is null or task_id = :task_id::bigint)
  and (:space_id::bigint is null or space_id = :space_id::bigint);

-- name: read_budgets
select scope, tokens, cost, turns, tools, seconds from rota.budgets
where (scope in ('run', 'task') and key = :task_id::bigint)
  or (scope = 'space' and key = :space_id::bigint)
order by scope;

-- name: lock_budgets  whoever sets something aside waits here for whoever does so too
select scope, tokens, cost, turns, tools, seconds from rota.budgets
where (scope in ('run', 'task') and key = :task_id::bigint)
  or (scope = 'space' and key = :space_id::bigint)
order by scope for update;

-- name: hold_spender
select id from rota.runs
where id = :run_id::bigint and epoch = :epoch::int and state = 'running' and holder = :worker::text
for share;

-- name: sum_spending  of all but one: what was used, and what is set aside beyond that
select sum(tokens)::bigint, sum(cost)::bigint, sum(turns)::bigint, sum(tools)::bigint,
  sum(seconds)::bigint,
  sum(open * greatest(0, reserved_tokens - tokens))::bigint,
  sum(open * greatest(0, reserved_cost - cost))::bigint,
  sum(open * greatest(0, reserved_turns - turns))::bigint,
  sum(open * greatest(0, reserved_tools - tools))::bigint,
  sum(open * greatest(0, reserved_seconds - seconds))::bigint
from rota.spending
where day = :day::text and ((:scope::text = 'task' and task_id = :key::bigint)
    or (:scope::text = 'space' and space_id = :key::bigint))
  and not (run_id = :run_id::bigint and epoch = :epoch::int);

-- name: put_spending
insert into rota.spending (run_id, epoch, space_id, task_id, day, open, began, reserved_tokens,
  reserved_cost, reserved_turns, reserved_tools, reserved_seconds)
values (:run_id::bigint, :epoch::int, :space_id::bigint, :task_id::bigint, :day::text, 1,
  :began::bigint, :tokens::bigint, :cost::bigint, :turns::bigint, :tools::bigint, :seconds::bigint)
on conflict (run_id, epoch) do update set reserved_tokens = excluded.reserved_tokens,
  reserved_cost = excluded.reserved_cost, reserved_turns = excluded.reserved_turns,
  reserved_tools = excluded.reserved_tools, reserved_seconds = excluded.reserved_seconds;

-- name: add_spending
update rota.spending set tokens = tokens + :tokens::bigint, cost = cost + :cost::bigint,
  turns = turns + :turns::bigint, tools = tools + :tools::bigint,
  seconds = seconds + :seconds::bigint, priced = greatest(priced, :priced::int)
where run_id = :run_id::bigint and epoch = :epoch::int;

-- name: close_spending  with its time to the nearest second, and why a budget ended it if one did
update rota.spending as s set open = 0, reserved_tokens = 0, reserved_cost = 0, reserved_turns = 0,
  reserved_tools = 0, reserved_seconds = 0,
  seconds = greatest(0, (:now::bigint - w.away - s.began + 500000) / 1000000), stopped = w.stopped
from jsonb_to_recordset(:rows::text::jsonb) as w(run_id bigint, epoch int, stopped text, away bigint)
where s.run_id = w.run_id and s.epoch = w.epoch and s.open = 1;

-- name: spending_of_run
select epoch, tokens, cost, turns, tools, seconds, priced, stopped from rota.spending
where run_id = :run_id::bigint order by epoch;

-- name: spending_history
select sum(tokens)::bigint, sum(cost)::bigint, sum(turns)::bigint, sum(tools)::bigint,
  sum(seconds)::bigint
from rota.spending where task_id = :task_id::bigint
group by run_id having max(open) = 0 and sum(turns + tokens) > 0
order by run_id desc limit :most::int;

-- name: times_of  to the nearest second
select (sum(a.ended_at - a.started_at)::bigint + 500000) / 1000000 from rota.attempts a
where a.run_id in (
  select r.id from rota.runs r where r.task_id = :task_id::bigint and r.finished_at is not null
  order by r.id desc limit :most::int
)
group by a.run_id order by a.run_id desc;

-- name: count_held_back
select count(*), max(error) from rota.runs
where place = 'later' and error_code = 'over_budget'
  and (:space_id::bigint is null or space_id = :space_id::bigint);
