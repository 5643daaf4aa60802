-- name: renew_home
insert into homes (id, host, until) values (:home, :host, :until)
on conflict (id) do update set host = excluded.host, until = max(homes.until, excluded.until);

-- name: fence_home  who holds an attempt that is kept in a home has had it before
update workers set fenced = 1
where fenced = 0 and id <> :worker
  and id in (select r.holder from kept k join runs r on r.id = k.run_id
    where k.home = :home and r.epoch = k.epoch and r.state = 'running')
returning id;

-- name: begin_kept
insert into kept (run_id, epoch, home, nonce, boot, executor, tries, began, session, agent,
  said, gate, writes)
select id, epoch, :home, :nonce, :boot, :executor, :tries, :began, :session, :agent, :said, :gate,
  :writes
from runs
where id = :run_id and epoch = :epoch and state = 'running' and holder = :worker
  and exists (select 1 from workers w where w.id = :worker and w.fenced = 0)
on conflict (run_id) do update set epoch = excluded.epoch, home = excluded.home,
  nonce = excluded.nonce, boot = excluded.boot, executor = excluded.executor, out_at = 0,
  err_at = 0, looks = 0, tries = excluded.tries, until = null, began = excluded.began,
  session = excluded.session, agent = excluded.agent, said = excluded.said, gate = excluded.gate,
  writes = max(excluded.writes, kept.writes * (kept.epoch = excluded.epoch))
returning run_id;

-- name: pause_kept  until another keeper may try
update kept set tries = :tries, until = :until, session = :session
from runs r
where kept.run_id = :run_id and kept.epoch = :epoch and kept.nonce = :nonce and kept.until is null
  and r.id = kept.run_id and r.epoch = kept.epoch and r.state = 'running' and r.holder = :worker
returning (select space_id from runs where id = kept.run_id),
  (select task_id from runs where id = kept.run_id);

-- name: is_paused  by the same pause, whose answer was lost
select 1 from kept k join runs r on r.id = k.run_id and r.epoch = k.epoch
where k.run_id = :run_id and k.epoch = :epoch and k.nonce = :nonce and k.until is not null
  and r.state = 'running' and r.holder = :worker;

-- name: move_kept  what was read up to an offset is recorded in the same transaction
update kept set out_at = coalesce(:out_to, out_at), err_at = coalesce(:err_to, err_at)
from runs r
where kept.run_id = :run_id and kept.epoch = :epoch
  and r.id = kept.run_id and r.epoch = kept.epoch and r.state = 'running' and r.holder = :worker
  and (:out_from is null or kept.out_at = :out_from)
  and (:err_from is null or kept.err_at = :err_from)
returning (select space_id from runs where id = kept.run_id),
  (select task_id from runs where id = kept.run_id);

-- name: count_output
select count(*) from events
where run_id = :run_id and run_id is not null and name = 'run.output' and at >= :since;

-- name: kept_of
select k.run_id, k.epoch, k.nonce, k.boot, k.executor, k.out_at, k.err_at, k.tries, k.until,
  k.began, k.session, k.agent, k.said,
  exists (select 1 from runs r where r.id = k.run_id and r.epoch = k.epoch and r.state = 'running'),
  k.gate, k.writes
from kept k where k.home = :home order by k.run_id;

-- name: adopt_run  from a holder that nobody trusts any more
update runs set holder = :worker
where id = :run_id and epoch = :epoch and state = 'running'
  and exists (select 1 from kept k where k.run_id = runs.id and k.epoch = runs.epoch)
  and exists (select 1 from workers w where w.id = :worker and w.fenced = 0)
  and (holder = :worker or holder not in (select id from workers where fenced = 0))
returning id, epoch, space_id, task_id, route, cause, retries, losses, created_at, expires_at, slot_at,
  slot_key, depth, asked, thread, key, payload;

-- name: begin_checks
update kept set looks = looks + 1
where run_id = :run_id and epoch = :epoch
  and exists (select 1 from runs r where r.id = :run_id and r.epoch = :epoch and r.state = 'running')
returning looks;

-- name: drop_kept
delete from kept where run_id = :run_id and epoch = :epoch;
