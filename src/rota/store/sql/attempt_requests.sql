-- name: mark_has_deferred
update rota.runs set has_deferred = 1
where id = :run_id::bigint and epoch = :epoch::int and coalesce(state, '') = 'running'
returning id;

-- name: measure_deferred
select count(*), coalesce(sum(octet_length(data)), 0)::bigint, coalesce(max(seq), 0),
  coalesce(max((kind = 'question' and epoch = :epoch::int)::int), 0),
  coalesce(sum((kind = 'subtask')::int), 0)::int
from rota.deferred_operations where run_id = :run_id::bigint;

-- name: deferred_names
select name from rota.deferred_operations
where run_id = :run_id::bigint and name is not null and name = any(:names::text[]);

-- name: insert_deferred
insert into rota.deferred_operations (run_id, epoch, seq, kind, name, data, at)
select :run_id::bigint, :epoch::int, w.seq, w.kind, w.name, w.data, :now::bigint
from jsonb_to_recordset(:rows::text::jsonb) as w(seq int, kind text, name text, data text);

-- name: deferred_of
select run_id, epoch, kind, name, data from rota.deferred_operations
where run_id = any(:ids::bigint[]) order by run_id, epoch, seq;

-- name: deferred_questions_of  of attempts that still hold their runs
select d.run_id, d.data from rota.deferred_operations d
join rota.runs r on r.id = d.run_id and r.epoch = d.epoch
where d.run_id = any(:ids::bigint[]) and d.kind = 'question' and coalesce(r.state, '') = 'running';

-- name: count_progress_notices  how many were sent while the run went on, and when the last one was
select count(*), max(created_at) from rota.deliveries
where run_id = :run_id::bigint and kind = 'notification' and during_run = 1;

-- name: runs_acted_outside  runs with an effect or an approved action that cannot be undone
select r.id from rota.runs r where r.id = any(:ids::bigint[]) and
  (select count(*) from rota.effects e where e.run_id = r.id and e.during_run = 1)
  + (select count(*) from rota.questions q
    where q.run_id = r.id and q.kind = 'approval' and q.answer = 'approve') > 0;

-- name: runs_started_outside  attempts that may have started, and whether they could write outside
select r.id, coalesce(k.can_write_outside, 1) from rota.runs r
left join rota.kept_attempts k on k.run_id = r.id and k.epoch = r.epoch
where r.id = any(:ids::bigint[]) and (k.run_id is not null
  or r.started_at <= (select cast(value as bigint) from rota.metadata where name = 'restored'));

-- name: attempts_waiting_for_answer  attempts that asked before an instant and still run
select d.run_id, d.epoch from rota.kept_attempts k
join rota.deferred_operations d on d.run_id = k.run_id and d.epoch = k.epoch and d.kind = 'question'
where k.home = :home::text and d.at < :before::bigint;

-- name: drop_deferred
delete from rota.deferred_operations where run_id = any(:ids::bigint[]);

-- name: drop_attempts_deferred  of attempts that did not succeed
delete from rota.deferred_operations where (run_id, epoch) in (select w.run_id, w.epoch
  from jsonb_to_recordset(:rows::text::jsonb) as w(run_id bigint, epoch int));

-- name: drop_deferred_questions
delete from rota.deferred_operations where run_id = any(:ids::bigint[]) and kind = 'question';

-- name: find_effects
select name, result, run_id, at from rota.effects
where task_id = :task_id::bigint and slot = :slot::text and name = any(:names::text[]);

-- name: count_effects
select count(*) from rota.effects where run_id = :run_id::bigint;

-- name: insert_effects
insert into rota.effects (task_id, slot, name, run_id, epoch, during_run, result, at)
select w.task_id, w.slot, w.name, w.run_id, w.epoch, w.during_run, w.result, :now::bigint
from jsonb_to_recordset(:rows::text::jsonb) as w(task_id bigint, slot text, name text,
  run_id bigint, epoch int, during_run int, result text) where true
on conflict (task_id, slot, name) do nothing
returning task_id, slot, name;

-- name: delivery_by_key
select id from rota.deliveries where dedupe_key = :key::text;
