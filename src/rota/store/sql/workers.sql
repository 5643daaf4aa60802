-- name: prune_beats
delete from rota.beats where run_id = any(:ids::bigint[]);

-- name: prune_exchanges
delete from rota.session_runs where run_id = any(:ids::bigint[]);

-- name: prune_sessions  that nobody goes on in, and of which nothing is left
delete from rota.sessions where id in (select s.id from rota.sessions s
  where s.archived_at is not null and s.used_at < :before::bigint
    and not exists (select 1 from rota.session_runs x where x.session_id = s.id)
  order by s.used_at limit :most::int);

-- name: prune_messages  with their files, so many bytes of them that nobody waits long
delete from rota.messages where id in (
  select id from (
    select id, row_number() over (order by id) as nth, sum(bytes) over (order by id) as bytes
    from (select m.id, coalesce((
        select sum(f.size) from rota.message_files f
        where f.message_id = m.id and f.content is not null), 0) as bytes
      from rota.messages m
      where m.at < :before::bigint and (m.state <> 'pending' or not coalesce((
        select r.state in ('queued', 'running', 'waiting') from rota.runs r where r.id = m.reader),
        false))
      order by m.id limit :most::int) as w) as o
  where nth = 1 or bytes <= :bytes::bigint);

-- name: running_runs_of
select id from rota.runs where task_id + 0 = :task_id::bigint and state = 'running'
order by id limit :most::int;

-- name: prune_requests
delete from rota.requests
where id in (select id from rota.requests where at < :before::bigint order by id limit :most::bigint);

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
  holder not in (select id from rota.workers) and
  started_at <= (select cast(value as bigint) from rota.facts where name = 'restored') as restored
from rota.runs as r /* sqlite: indexed by runs_running */
where state = 'running'
  and holder not in (select id from rota.workers where fenced = 0)
  and not exists (select 1 from rota.kept k join rota.homes h on h.id = k.home
    where k.run_id = r.id and k.epoch = r.epoch and h.until > :now::bigint)
limit :most::int;

-- name: expired_runs
select id, task_id, space_id, state, epoch, retries, losses, created_at, depth,
  cancel_at is not null as cancelling
from rota.runs /* sqlite: indexed by runs_expiry */
where expires_at is not null and state in ('queued', 'waiting') and expires_at <= :now::bigint
order by expires_at limit :most::int;

-- name: prune_spending
delete from rota.spending where run_id = any(:ids::bigint[]) and open = 0;

-- name: prune_deferred
delete from rota.deferred where run_id = any(:ids::bigint[]);

-- name: prune_effects
delete from rota.effects where run_id = any(:ids::bigint[]);

-- name: keep_pruned_before
insert into rota.facts (name, value) values ('pruned_before', (:before::bigint)::text)
on conflict (name) do update set value = excluded.value
where cast(facts.value as bigint) < cast(excluded.value as bigint);

-- name: insert_workers
insert into rota.workers (id, home, host, pid, roles, routes, slots, started_at, seen_at, lease_until)
select w.id, w.home, w.host, w.pid, w.roles, w.routes, w.slots, :now::bigint, :now::bigint,
  w.lease_until
from jsonb_to_recordset(:rows::text::jsonb) as w(id text, home text, host text, pid int, roles text,
  routes text, slots int, lease_until bigint);

-- name: renew_worker
update rota.workers set seen_at = :now::bigint, lease_until = :until::bigint
where id = :worker::text and fenced = 0 returning id;

-- name: held_runs
select id, cancel_at,
  exists (select 1 from rota.kept k where k.run_id = runs.id and k.epoch = runs.epoch) as kept
from rota.runs /* sqlite: indexed by runs_running */ where state = 'running' and holder = :worker::text;

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
delete from rota.workers as w where w.fenced = 1 and w.seen_at < :before::bigint
  and not exists (select 1 from rota.runs r where r.state = 'running' and r.holder = w.id);

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
delete from rota.deliveries as d where run_id = any(:ids::bigint[])
  and state in ('sent', 'unknown', 'dead', 'withdrawn')
  and not exists (select 1 from rota.runs r where r.id = d.run_id);

-- name: prune_events
delete from rota.events where id = any(:ids::bigint[]);

-- name: prune_ledger
delete from rota.ledger where id in (
  select id from rota.ledger where last_at < :before::bigint limit :most::int)
returning id;
