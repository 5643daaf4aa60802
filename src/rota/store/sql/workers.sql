-- name: prune_heartbeats
delete from rota.heartbeats where run_id = any(:ids::bigint[]);

-- name: prune_exchanges
delete from rota.session_runs where run_id = any(:ids::bigint[]);

-- name: prune_sessions  archived sessions without exchanges
delete from rota.sessions where id in (select s.id from rota.sessions s
  where s.archived_at is not null and s.used_at < :before::bigint
    and not exists (select 1 from rota.session_runs x where x.session_id = s.id)
  order by s.used_at limit :most::int);

-- name: prune_messages  with their files, up to a number of bytes
delete from rota.messages where id in (
  select id from (
    select id, row_number() over (order by id) as nth, sum(bytes) over (order by id) as bytes
    from (select m.id, coalesce((
        select sum(f.size) from rota.message_files f
        where f.message_id = m.id and f.content is not null), 0) as bytes
      from rota.messages m
      where m.at < :before::bigint and (m.state <> 'pending' or not coalesce((
        select r.state in ('queued', 'running', 'waiting') from rota.runs r
        where r.id = m.reader_run_id),
        false))
      order by m.id limit :most::int) as w) as o
  where nth = 1 or bytes <= :bytes::bigint);

-- name: running_runs_of
select id from rota.runs where task_id + 0 = :task_id::bigint and state = 'running'
order by id limit :most::int;

-- name: prune_audit_log
delete from rota.audit_log
where id in (select id from rota.audit_log where at < :before::bigint order by id
  limit :most::bigint);

-- name: mark_stuck
update rota.runs set stuck = 1
where id = :id::bigint and epoch = :epoch::int and coalesce(state, '') = 'running' and stuck = 0
returning id;

-- name: open_runs
select id, task_id, space_id, state, epoch, retries, losses, created_at, depth,
  cancel_requested_at is not null as cancelling
from rota.runs where id = any(:ids::bigint[]);

-- name: lost_runs  running, but their worker is not trusted and no keeper can be alive
select id, task_id, space_id, state, epoch, retries, losses, created_at, depth,
  cancel_requested_at is not null as cancelling, worker_id,
  worker_id not in (select id from rota.workers) and
  started_at <= (select cast(value as bigint) from rota.metadata
  where name = 'restored') as restored
from rota.runs as r /* sqlite: indexed by runs_running */
where state = 'running'
  and worker_id not in (select id from rota.workers where fenced = 0)
  and not exists (select 1 from rota.kept_attempts k join rota.homes h on h.id = k.home
    where k.run_id = r.id and k.epoch = r.epoch and h.lease_until > :now::bigint)
limit :most::int;

-- name: expired_runs
select id, task_id, space_id, state, epoch, retries, losses, created_at, depth,
  cancel_requested_at is not null as cancelling
from rota.runs /* sqlite: indexed by runs_expiry */
where expires_at is not null and state in ('queued', 'waiting') and expires_at <= :now::bigint
order by expires_at limit :most::int;

-- name: prune_budget_usage
delete from rota.budget_usage where run_id = any(:ids::bigint[]) and is_open = 0;

-- name: prune_deferred
delete from rota.deferred_operations where run_id = any(:ids::bigint[]);

-- name: prune_effects
delete from rota.effects where run_id = any(:ids::bigint[]);

-- name: keep_pruned_before
insert into rota.metadata (name, value) values ('pruned_before', (:before::bigint)::text)
on conflict (name) do update set value = excluded.value
where cast(metadata.value as bigint) < cast(excluded.value as bigint);

-- name: insert_workers
insert into rota.workers (id, home, host, pid, roles, routes, slots, started_at, seen_at,
  lease_until)
select w.id, w.home, w.host, w.pid, w.roles, w.routes, w.slots, :now::bigint, :now::bigint,
  w.lease_until
from jsonb_to_recordset(:rows::text::jsonb) as w(id text, home text, host text, pid int, roles text,
  routes text, slots int, lease_until bigint);

-- name: renew_worker
update rota.workers set seen_at = :now::bigint, lease_until = :until::bigint
where id = :worker::text and fenced = 0 returning id;

-- name: runs_of_worker
select id, cancel_requested_at,
  exists (select 1 from rota.kept_attempts k where k.run_id = runs.id
  and k.epoch = runs.epoch) as kept
from rota.runs /* sqlite: indexed by runs_running */ where state = 'running'
  and worker_id = :worker::text;

-- name: fence_expired  if the lease is not longer than this process has watched
update rota.workers set fenced = 1
where fenced = 0 and lease_until < :now::bigint and lease_until - seen_at <= :watched::bigint
returning id;

-- name: fence_others
update rota.workers set fenced = 1 where fenced = 0 and id <> :worker::text returning id;

-- name: delete_worker
delete from rota.workers where id = :worker::text
  and not exists (select 1 from rota.runs where state = 'running' and worker_id = :worker::text);

-- name: forget_workers
delete from rota.workers as w where w.fenced = 1 and w.seen_at < :before::bigint
  and not exists (select 1 from rota.runs r where r.state = 'running' and r.worker_id = w.id);

-- name: oldest_events  for one pruner at a time, because pruning adds to the counts of tasks
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
select id, pruned_counts, suppressed_count from rota.tasks where id = any(:ids::bigint[]);

-- name: keep_pruned
update rota.tasks set pruned_counts = :pruned_counts::text where id = :id::bigint;

-- name: prune_runs
delete from rota.runs where id = any(:ids::bigint[]);

-- name: prune_attempts
delete from rota.attempts where run_id = any(:ids::bigint[]);

-- name: prune_questions
delete from rota.questions where run_id = any(:ids::bigint[]);

-- name: prune_deliveries  of pruned runs
delete from rota.deliveries as d where run_id = any(:ids::bigint[])
  and state in ('sent', 'unknown', 'dead', 'withdrawn')
  and not exists (select 1 from rota.runs r where r.id = d.run_id);

-- name: prune_events
delete from rota.events where id = any(:ids::bigint[]);

-- name: prune_ledger
delete from rota.ledger where id in (
  select id from rota.ledger where last_at < :before::bigint limit :most::int)
returning id;
