-- name: renew_home
insert into rota.homes (id, host, lease_until) values (:home::text, :host::text,
  :lease_until::bigint)
on conflict (id) do update set host = excluded.host, lease_until = greatest(homes.lease_until,
  excluded.lease_until);

-- name: fence_home  fence earlier workers that hold attempts kept in a home
update rota.workers set fenced = 1
where fenced = 0 and id <> :worker::text
  and id in (select r.worker_id from rota.kept_attempts k join rota.runs r on r.id = k.run_id
    where k.home = :home::text and r.epoch = k.epoch and r.state = 'running')
returning id;

-- name: insert_kept_attempt
insert into rota.kept_attempts (run_id, epoch, home, nonce, boot, executor, launches, started_at,
  session, agent, prompt_text, gate_reply, can_write_outside)
select r.id, r.epoch, :home::text, :nonce::text, :boot::text, :executor::text, :launches::int,
  :started_at::bigint, :session::text, :agent::text, :prompt_text::text, :gate_reply::text,
  :can_write_outside::int
from rota.runs r join rota.workers w on w.id = r.worker_id
where r.id = :run_id::bigint and r.epoch = :epoch::int and r.state = 'running'
  and r.worker_id = :worker::text and w.fenced = 0
for share
on conflict (run_id) do update set epoch = excluded.epoch, home = excluded.home,
  nonce = excluded.nonce, boot = excluded.boot, executor = excluded.executor, out_offset = 0,
  err_offset = 0, check_starts = 0, launches = excluded.launches, relaunch_at = null,
  started_at = excluded.started_at,
  session = excluded.session, agent = excluded.agent, prompt_text = excluded.prompt_text,
  gate_reply = excluded.gate_reply,
  can_write_outside = greatest(excluded.can_write_outside,
    case when kept_attempts.epoch = excluded.epoch then kept_attempts.can_write_outside else 0 end)
returning run_id;

-- name: pause_kept_attempt  until the next launch
with own as (
  select id, space_id, task_id from rota.runs
  where id = :run_id::bigint and epoch = :epoch::int and state = 'running'
  and worker_id = :worker::text
  for share
)
update rota.kept_attempts as k set launches = :launches::int, relaunch_at = :relaunch_at::bigint,
  session = :session::text
from own
where k.run_id = own.id and k.epoch = :epoch::int and k.nonce = :nonce::text
  and k.relaunch_at is null
returning own.space_id, own.task_id;

-- name: is_paused  whether this pause was committed, where its reply was lost
select 1 from rota.kept_attempts k join rota.runs r on r.id = k.run_id and r.epoch = k.epoch
where k.run_id = :run_id::bigint and k.epoch = :epoch::int and k.nonce = :nonce::text
  and k.relaunch_at is not null and r.state = 'running' and r.worker_id = :worker::text;

-- name: advance_output_offsets  in the transaction that records the output up to there
with own as (
  select id, space_id, task_id from rota.runs
  where id = :run_id::bigint and epoch = :epoch::int and state = 'running'
  and worker_id = :worker::text
  for share
)
update rota.kept_attempts as k set out_offset = coalesce(:out_to::bigint, k.out_offset),
  err_offset = coalesce(:err_to::bigint, k.err_offset)
from own
where k.run_id = own.id and k.epoch = :epoch::int
  and (:out_from::bigint is null or k.out_offset = :out_from::bigint)
  and (:err_from::bigint is null or k.err_offset = :err_from::bigint)
returning own.space_id, own.task_id;

-- name: count_output
select count(*) from rota.events
where run_id = :run_id::bigint and run_id is not null and name = 'run.output'
  and at >= :since::bigint;

-- name: kept_attempts_of
select k.run_id, k.epoch, k.nonce, k.boot, k.executor, k.out_offset, k.err_offset, k.launches,
  k.relaunch_at, k.started_at, k.session, k.agent, k.prompt_text,
  exists (select 1 from rota.runs r
    where r.id = k.run_id and r.epoch = k.epoch and r.state = 'running'),
  k.gate_reply, k.can_write_outside
from rota.kept_attempts k where k.home = :home::text order by k.run_id;

-- name: adopt_run  from a worker that is fenced or gone
update rota.runs as r set worker_id = :worker::text
where r.id = :run_id::bigint and r.epoch = :epoch::int and r.state = 'running'
  and exists (select 1 from rota.kept_attempts k where k.run_id = r.id and k.epoch = r.epoch)
  and exists (select 1 from rota.workers w where w.id = :worker::text and w.fenced = 0)
  and (r.worker_id = :worker::text
    or not exists (select 1 from rota.workers w where w.id = r.worker_id and w.fenced = 0))
returning id, epoch, space_id, task_id, route, cause, retries, losses, created_at, expires_at,
  slot_at, slot_key, depth, question_count, thread, key, payload;

-- name: count_check_start
update rota.kept_attempts set check_starts = check_starts + 1
where run_id = :run_id and epoch = :epoch
  and exists (select 1 from rota.runs r where r.id = :run_id and r.epoch = :epoch
  and r.state = 'running')
returning check_starts;

-- name: delete_kept_attempts
delete from rota.kept_attempts where run_id = :run_id::bigint and epoch = :epoch::int;
