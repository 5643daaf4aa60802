-- name: running_runs_of
select id from runs where task_id = :task_id and state = 'running' order by id limit :most;

-- name: oldest_events
select id, name, run_id, '0' as xact from (select id, name, run_id, at from events order by id limit :most)
where at < :before order by id;
