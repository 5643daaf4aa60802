-- name: insert_workers
insert into rota.workers (id, home, host, pid, roles, routes, slots, started_at, seen_at, lease_until)
select w.id, w.home, w.host, w.pid, w.roles, w.routes, w.slots, :now::bigint, :now::bigint,
  w.lease_until
from jsonb_to_recordset(:rows::text::jsonb) as w(id text, home text, host text, pid int, roles text,
  routes text, slots int, lease_until bigint);

-- name: renew_worker
update rota.workers set seen_at = :now::bigint, lease_until = :until::bigint
where id = :worker::text and fenced = 0 returning id;

-- name: is_barred  a worker that is fenced, and everybody while everything is paused
select 1 from rota.workers where id = :worker::text and fenced = 1
union all select 1 from rota.facts where name = 'paused';

-- name: held_runs
select id, cancel_at,
  exists (select 1 from rota.kept k where k.run_id = runs.id and k.epoch = runs.epoch) as kept
from rota.runs where state = 'running' and holder = :worker::text;

-- name: fence_expired  whose lease has run out, if it is no longer than the time was watched
update rota.workers set fenced = 1
where fenced = 0 and lease_until < :now::bigint and lease_until - seen_at <= :watched::bigint
returning id;

-- name: fence_others
update rota.workers set fenced = 1 where fenced = 0 and id <> :worker::text returning id;

-- name: delete_worker
delete from rota.workers where id = :worker::text
  and not exists (select 1 from rota.runs where state = 'running' and holder = :worker::text);

-- name: forget_workers
delete from rota.workers w where w.fenced = 1 and w.seen_at < :before::bigint
  and not exists (select 1 from rota.runs r where r.state = 'running' and r.holder = w.id);

-- name: pick_deliveries
select id from rota.deliveries where state = 'pending' and available_at <= :now::bigint
order by available_at, id limit :most::int for update skip locked;

-- name: take_deliveries
update rota.deliveries set state = 'sending', holder = :worker::text, tries = tries + 1,
  available_at = :until::bigint
where id = any(:ids::bigint[]) and coalesce(state, '') = 'pending';

-- name: get_deliveries
select id, run_id, channel, target, body, dedupe_key, state, tries, available_at, created_at, sent_at,
  error, kind, mail, files
from rota.deliveries where id = any(:ids::bigint[]) order by id;

-- name: mark_delivery
update rota.deliveries set state = :state::text, holder = null, error = :error::text,
  available_at = :available_at::bigint,
  sent_at = case when :state::text = 'sent' then :now::bigint else sent_at end
where id = :id::bigint and coalesce(state, '') = 'sending' and tries = :tries::int
returning id;

-- name: held_deliveries
select id, run_id, channel, target, body, dedupe_key, state, tries, available_at, created_at, sent_at,
  error, kind, mail, files
from rota.deliveries where state = 'sending' and holder = :worker::text order by id limit :most::int;

-- name: orphaned_deliveries  their sender is gone, or nobody came to say how it went
select id, run_id, channel, target, body, dedupe_key, state, tries, available_at, created_at, sent_at,
  error, kind, mail, files
from rota.deliveries d
where state = 'sending' and (available_at <= :now::bigint
  or not exists (select 1 from rota.workers w where w.id = d.holder and w.fenced = 0))
limit :most::int;

-- name: next_delivery
select min(available_at) from rota.deliveries where state = 'pending';

-- name: oldest_events  for one pruner at a time, because it adds to what a task's runs came to
with alone as materialized (select pg_try_advisory_xact_lock(1919906913, 3) as granted),
oldest as materialized (select id from rota.events order by id limit :most::int)
select e.id, e.name, e.run_id, e.xact::text
from oldest o join rota.events e on e.id = o.id
where (select granted from alone) and e.at < :before::bigint
order by e.id for update of e skip locked;

-- name: tally_runs
select task_id, state, count(*) from rota.runs where id = any(:ids::bigint[])
group by task_id, state;

-- name: read_pruned
select id, pruned, quiet from rota.tasks where id = any(:ids::bigint[]);

-- name: keep_pruned
update rota.tasks set pruned = :pruned::text where id = :id::bigint;

-- name: prune_runs
delete from rota.runs where id = any(:ids::bigint[]);

-- name: prune_attempts
delete from rota.attempts where run_id = any(:ids::bigint[]);

-- name: prune_questions
delete from rota.questions where run_id = any(:ids::bigint[]);

-- name: prune_deliveries  of runs that have left
delete from rota.deliveries d where run_id = any(:ids::bigint[])
  and state in ('sent', 'unknown', 'dead', 'withdrawn')
  and not exists (select 1 from rota.runs r where r.id = d.run_id);

-- name: prune_events
delete from rota.events where id = any(:ids::bigint[]);

-- name: prune_ledger
delete from rota.ledger where id in (
  select id from rota.ledger where last_at < :before::bigint limit :most::int)
returning id;
