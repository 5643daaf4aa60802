-- name: pause_kept  until another keeper may try
update kept set tries = :tries, until = :until, session = :session
from runs r
where kept.run_id = :run_id and kept.epoch = :epoch and kept.nonce = :nonce and kept.until is null
  and r.id = kept.run_id and r.epoch = kept.epoch and r.state = 'running' and r.holder = :worker
returning (select space_id from runs where id = kept.run_id),
  (select task_id from runs where id = kept.run_id);

-- name: move_kept  what was read up to an offset is recorded in the same transaction
update kept set out_at = coalesce(:out_to, out_at), err_at = coalesce(:err_to, err_at)
from runs r
where kept.run_id = :run_id and kept.epoch = :epoch
  and r.id = kept.run_id and r.epoch = kept.epoch and r.state = 'running' and r.holder = :worker
  and (:out_from is null or kept.out_at = :out_from)
  and (:err_from is null or kept.err_at = :err_from)
returning (select space_id from runs where id = kept.run_id),
  (select task_id from runs where id = kept.run_id);
