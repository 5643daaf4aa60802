-- name: insert_workers
insert into workers (id, home, host, pid, roles, routes, slots, started_at, seen_at, lease_until)
select value ->> 'id', value ->> 'home', value ->> 'host', value ->> 'pid', value ->> 'roles',
  value ->> 'routes', value ->> 'slots', :now, :now, value ->> 'lease_until'
from jsonb_each(:rows);

-- name: renew_worker
update workers set seen_at = :now, lease_until = :until where id = :worker and fenced = 0 returning id;

-- name: is_barred  a worker that is fenced, and everybody while everything is paused
select 1 from workers where id = :worker and fenced = 1
union all select 1 from facts where name = 'paused';

-- name: held_runs
select id, cancel_at,
  exists (select 1 from kept k where k.run_id = runs.id and k.epoch = runs.epoch) as kept
from runs indexed by runs_running where state = 'running' and holder = :worker;

-- name: fence_expired  whose lease has run out, if it is no longer than the time was watched
update workers set fenced = 1
where fenced = 0 and lease_until < :now and lease_until - seen_at <= :watched
returning id;

-- name: fence_others
update workers set fenced = 1 where fenced = 0 and id <> :worker returning id;

-- name: delete_worker
delete from workers where id = :worker
  and not exists (select 1 from runs where state = 'running' and holder = :worker);

-- name: forget_workers
delete from workers where fenced = 1 and seen_at < :before
  and not exists (select 1 from runs where state = 'running' and holder = workers.id);

-- name: pick_deliveries
select id from deliveries where state = 'pending' and available_at <= :now
order by available_at, id limit :most;

-- name: take_deliveries
update deliveries set state = 'sending', holder = :worker, tries = tries + 1, available_at = :until
where id in (select value from json_each(:ids)) and state = 'pending';

-- name: get_deliveries
select id, run_id, channel, target, body, dedupe_key, state, tries, available_at, created_at, sent_at,
  error, kind, mail, files
from deliveries where id in (select value from json_each(:ids)) order by id;

-- name: mark_delivery
update deliveries set state = :state, holder = null, error = :error, available_at = :available_at,
  sent_at = case when :state = 'sent' then :now else sent_at end
where id = :id and state = 'sending' and tries = :tries
returning id;

-- name: held_deliveries
select id, run_id, channel, target, body, dedupe_key, state, tries, available_at, created_at, sent_at,
  error, kind, mail, files
from deliveries where state = 'sending' and holder = :worker order by id limit :most;

-- name: orphaned_deliveries  their sender is gone, or nobody came to say how it went
select id, run_id, channel, target, body, dedupe_key, state, tries, available_at, created_at, sent_at,
  error, kind, mail, files
from deliveries where state = 'sending'
  and (available_at <= :now or holder not in (select id from workers where fenced = 0))
limit :most;

-- name: next_delivery
select min(available_at) from deliveries where state = 'pending';

-- name: oldest_events
select id, name, run_id, '0' as xact from (select id, name, run_id, at from events order by id limit :most)
where at < :before order by id;

-- name: tally_runs
select task_id, state, count(*) from runs where id in (select value from json_each(:ids))
group by task_id, state;

-- name: read_pruned
select id, pruned, quiet from tasks where id in (select value from json_each(:ids));

-- name: keep_pruned
update tasks set pruned = :pruned where id = :id;

-- name: prune_runs
delete from runs where id in (select value from json_each(:ids));

-- name: prune_attempts
delete from attempts where run_id in (select value from json_each(:ids));

-- name: prune_questions
delete from questions where run_id in (select value from json_each(:ids));

-- name: prune_deliveries  of runs that have left
delete from deliveries where run_id in (select value from json_each(:ids))
  and state in ('sent', 'unknown', 'dead', 'withdrawn')
  and not exists (select 1 from runs r where r.id = deliveries.run_id);

-- name: prune_events
delete from events where id in (select value from json_each(:ids));

-- name: prune_ledger
delete from ledger where id in (select id from ledger where last_at < :before limit :most)
returning id;
