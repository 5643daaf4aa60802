-- name: renew_home
insert into rota.homes (id, host, until) values (:home::text, :host::text, :until::bigint)
on conflict (id) do update set host = excluded.host, until = greatest(homes.until, excluded.until);

-- name: fence_home  who holds an attempt that is kept in a home has had it before
update rota.workers set fenced = 1
where fenced = 0 and id <> :worker::text
  and id in (select r.holder from rota.kept k join rota.runs r on r.id = k.run_id
    where k.home = :home::text and r.epoch = k.epoch and r.state = 'running')
returning id;

-- name: begin_kept
insert into rota.kept (run_id, epoch, home, nonce, boot, executor, tries, began, session, agent,
  said, gate, writes)
select r.id, r.epoch, :home::text, :nonce::text, :boot::text, :executor::text, :tries::int,
  :began::bigint, :session::text, :agent::text, :said::text, :gate::text, :writes::int
from rota.runs r join rota.workers w on w.id = r.holder
where r.id = :run_id::bigint and r.epoch = :epoch::int and r.state = 'running'
  and r.holder = :worker::text and w.fenced = 0
for share
on conflict (run_id) do update set epoch = excluded.epoch, home = excluded.home,
  nonce = excluded.nonce, boot = excluded.boot, executor = excluded.executor, out_at = 0,
  err_at = 0, looks = 0, tries = excluded.tries, until = null, began = excluded.began,
  session = excluded.session, agent = excluded.agent, said = excluded.said, gate = excluded.gate,
  writes = greatest(excluded.writes,
    case when kept.epoch = excluded.epoch then kept.writes else 0 end)
returning run_id;

-- name: pause_kept  until another keeper may try
with own as (
  select id, space_id, task_id from rota.runs
  where id = :run_id::bigint and epoch = :epoch::int and state = 'running' and holder = :worker::text
  for share
)
update rota.kept as k set tries = :tries::int, until = :until::bigint, session = :session::text
from own
where k.run_id = own.id and k.epoch = :epoch::int and k.nonce = :nonce::text and k.until is null
returning own.space_id, own.task_id;

-- name: is_paused  by the same pause, whose answer was lost
select 1 from rota.kept k join rota.runs r on r.id = k.run_id and r.epoch = k.epoch
where k.run_id = :run_id::bigint and k.epoch = :epoch::int and k.nonce = :nonce::text
  and k.until is not null and r.state = 'running' and r.holder = :worker::text;

-- name: move_kept  what was read up to an offset is recorded in the same transaction
with own as (
  select id, space_id, task_id from rota.runs
  where id = :run_id::bigint and epoch = :epoch::int and state = 'running' and holder = :worker::text
  for share
)
update rota.kept as k set out_at = coalesce(:out_to::bigint, k.out_at),
  err_at = coalesce(:err_to::bigint, k.err_at)
from own
where k.run_id = own.id and k.epoch = :epoch::int
  and (:out_from::bigint is null or k.out_at = :out_from::bigint)
  and (:err_from::bigint is null or k.err_at = :err_from::bigint)
returning own.space_id, own.task_id;

-- name: count_output
select count(*) from rota.events
where run_id = :run_id::bigint and run_id is not null and name = 'run.output'
  and at >= :since::bigint;

-- name: kept_of
select k.run_id, k.epoch, k.nonce, k.boot, k.executor, k.out_at, k.err_at, k.tries, k.until,
  k.began, k.session, k.agent, k.said,
  exists (select 1 from rota.runs r
    where r.id = k.run_id and r.epoch = k.epoch and r.state = 'running'),
  k.gate, k.writes
from rota.kept k where k.home = :home::text order by k.run_id;

-- name: adopt_run  from a holder that nobody trusts any more
update rota.runs as r set holder = :worker::text
where r.id = :run_id::bigint and r.epoch = :epoch::int and r.state = 'running'
  and exists (select 1 from rota.kept k where k.run_id = r.id and k.epoch = r.epoch)
  and exists (select 1 from rota.workers w where w.id = :worker::text and w.fenced = 0)
  and (r.holder = :worker::text
    or not exists (select 1 from rota.workers w where w.id = r.holder and w.fenced = 0))
returning id, epoch, space_id, task_id, route, cause, retries, losses, created_at, expires_at, slot_at,
  slot_key, depth, asked, thread, key, payload;

-- name: begin_checks
update rota.kept set looks = looks + 1
where run_id = :run_id and epoch = :epoch
  and exists (select 1 from rota.runs r where r.id = :run_id and r.epoch = :epoch and r.state = 'running')
returning looks;

-- name: drop_kept
delete from rota.kept where run_id = :run_id::bigint and epoch = :epoch::int;
