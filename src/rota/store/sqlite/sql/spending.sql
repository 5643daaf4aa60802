-- name: put_budget
insert into budgets (scope, key, tokens, cost, turns, tools, seconds, set_at, set_by)
values (:scope, :key, :tokens, :cost, :turns, :tools, :seconds, :now, :who)
on conflict (scope, key) do update set tokens = excluded.tokens, cost = excluded.cost,
  turns = excluded.turns, tools = excluded.tools, seconds = excluded.seconds,
  set_at = excluded.set_at, set_by = excluded.set_by;

-- name: drop_budget
delete from budgets where scope = :scope and key = :key;

-- name: free_held_back  what waits for another day may try again
update runs set available_at = :now
where place = 'later' and error_code = 'over_budget'
  and (:task_id is null or task_id = :task_id) and (:space_id is null or space_id = :space_id);

-- name: read_budgets
select scope, tokens, cost, turns, tools, seconds from budgets
where (scope in ('run', 'task') and key = :task_id) or (scope = 'space' and key = :space_id)
order by scope;

-- name: lock_budgets  whoever sets something aside waits here for whoever does so too
select scope, tokens, cost, turns, tools, seconds from budgets
where (scope in ('run', 'task') and key = :task_id) or (scope = 'space' and key = :space_id)
order by scope;

-- name: hold_spender
select id from runs
where id = :run_id and epoch = :epoch and state = 'running' and holder = :worker;

-- name: sum_spending  of all but one: what was used, and what is set aside beyond that
select sum(tokens), sum(cost), sum(turns), sum(tools), sum(seconds),
  sum(open * max(0, reserved_tokens - tokens)), sum(open * max(0, reserved_cost - cost)),
  sum(open * max(0, reserved_turns - turns)), sum(open * max(0, reserved_tools - tools)),
  sum(open * max(0, reserved_seconds - seconds))
from spending
where day = :day and ((:scope = 'task' and task_id = :key) or (:scope = 'space' and space_id = :key))
  and not (run_id = :run_id and epoch = :epoch);

-- name: put_spending
insert into spending (run_id, epoch, space_id, task_id, day, open, began, reserved_tokens,
  reserved_cost, reserved_turns, reserved_tools, reserved_seconds)
values (:run_id, :epoch, :space_id, :task_id, :day, 1, :began, :tokens, :cost, :turns, :tools,
  :seconds)
on conflict (run_id, epoch) do update set reserved_tokens = excluded.reserved_tokens,
  reserved_cost = excluded.reserved_cost, reserved_turns = excluded.reserved_turns,
  reserved_tools = excluded.reserved_tools, reserved_seconds = excluded.reserved_seconds;

-- name: add_spending
update spending set tokens = tokens + :tokens, cost = cost + :cost, turns = turns + :turns,
  tools = tools + :tools, seconds = seconds + :seconds, priced = max(priced, :priced)
where run_id = :run_id and epoch = :epoch;

-- name: close_spending  with its time to the nearest second, and why a budget ended it if one did
update spending set open = 0, reserved_tokens = 0, reserved_cost = 0, reserved_turns = 0,
  reserved_tools = 0, reserved_seconds = 0, seconds = max(0, (:now - (w.value ->> 'away') - began + 500000) / 1000000),
  stopped = w.value ->> 'stopped'
from jsonb_each(:rows) w
where spending.run_id = w.value ->> 'run_id' and spending.epoch = w.value ->> 'epoch'
  and spending.open = 1;

-- name: spending_of_run
select epoch, tokens, cost, turns, tools, seconds, priced, stopped from spending
where run_id = :run_id order by epoch;

-- name: spending_history
select sum(tokens), sum(cost), sum(turns), sum(tools), sum(seconds) from spending
where task_id = :task_id
group by run_id having max(open) = 0 and sum(turns + tokens) > 0
order by run_id desc limit :most;

-- name: times_of  to the nearest second
select (sum(a.ended_at - a.started_at) + 500000) / 1000000 from attempts a
where a.run_id in (
  select r.id from runs r where r.task_id = :task_id and r.finished_at is not null
  order by r.id desc limit :most
)
group by a.run_id order by a.run_id desc;

-- name: prune_spending
delete from spending where run_id in (select value from json_each(:ids)) and open = 0;

-- name: count_held_back
select count(*), max(error) from runs
where place = 'later' and error_code = 'over_budget'
  and (:space_id is null or space_id = :space_id);
