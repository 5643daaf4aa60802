-- name: pause_kept_attempt
update kept_attempts set launches = :launches, relaunch_at = :relaunch_at, session = :session
from runs r
where kept_attempts.run_id = :run_id and kept_attempts.epoch = :epoch
  and kept_attempts.nonce = :nonce and kept_attempts.relaunch_at is null
  and r.id = kept_attempts.run_id and r.epoch = kept_attempts.epoch and r.state = 'running'
  and r.worker_id = :worker
returning (select space_id from runs where id = kept_attempts.run_id),
  (select task_id from runs where id = kept_attempts.run_id);

-- name: advance_output_offsets
update kept_attempts set out_offset = coalesce(:out_to, out_offset), err_offset = coalesce(:err_to,
  err_offset)
from runs r
where kept_attempts.run_id = :run_id and kept_attempts.epoch = :epoch
  and r.id = kept_attempts.run_id and r.epoch = kept_attempts.epoch and r.state = 'running'
  and r.worker_id = :worker
  and (:out_from is null or kept_attempts.out_offset = :out_from)
  and (:err_from is null or kept_attempts.err_offset = :err_from)
returning (select space_id from runs where id = kept_attempts.run_id),
  (select task_id from runs where id = kept_attempts.run_id);
