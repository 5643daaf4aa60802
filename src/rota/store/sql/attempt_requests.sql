-- name: hold_deferring
update rota.runs set deferring = 1
where id = :run_id::bigint and epoch = :epoch::int and coalesce(state, '') = 'running'
returning id;

-- name: measure_deferred
select count(*), coalesce(sum(octet_length(data)), 0)::bigint, coalesce(max(seq), 0),
  coalesce(max((kind = 'question' and epoch = :epoch::int)::int), 0),
  coalesce(sum((kind = 'subtask')::int), 0)::int
from rota.deferred where run_id = :run_id::bigint;

-- name: deferred_names
select name from rota.deferred
where run_id = :run_id::bigint and name is not null and name = any(:names::text[]);

-- name: insert_deferred
insert into rota.deferred (run_id, epoch, seq, kind, name, data, at)
select :run_id::bigint, :epoch::int, w.seq, w.kind, w.name, w.data, :now::bigint
from jsonb_to_recordset(:rows::text::jsonb) as w(seq int, kind text, name text, data text);

-- name: deferred_of
select run_id, epoch, kind, name, data from rota.deferred
where run_id = any(:ids::bigint[]) order by run_id, epoch, seq;

-- name: asked_of  by attempts that still have their runs
select d.run_id, d.data from rota.deferred d
join rota.runs r on r.id = d.run_id and r.epoch = d.epoch
where d.run_id = any(:ids::bigint[]) and d.kind = 'question' and coalesce(r.state, '') = 'running';

-- name: told_on_the_way  notices of a run that were sent while it went on, and when the last was
select count(*), max(created_at) from rota.deliveries
where run_id = :run_id::bigint and kind = 'notice' and early = 1;

-- name: outward_of  runs that have done what cannot be taken back
select r.id from rota.runs r where r.id = any(:ids::bigint[]) and
  (select count(*) from rota.effects e where e.run_id = r.id and e.early = 1)
  + (select count(*) from rota.questions q
    where q.run_id = r.id and q.kind = 'approval' and q.answer = 'approve') > 0;

-- name: begun_of  whose attempts were or may have been begun, and whether they could write outside
select r.id, coalesce(k.writes, 1) from rota.runs r
left join rota.kept k on k.run_id = r.id and k.epoch = r.epoch
where r.id = any(:ids::bigint[]) and (k.run_id is not null
  or r.started_at <= (select cast(value as bigint) from rota.facts where name = 'restored'));

-- name: overstaying  who has asked long ago and goes on
select d.run_id, d.epoch from rota.kept k
join rota.deferred d on d.run_id = k.run_id and d.epoch = k.epoch and d.kind = 'question'
where k.home = :home::text and d.at < :before::bigint;

-- name: drop_deferred
delete from rota.deferred where run_id = any(:ids::bigint[]);

-- name: drop_attempts_deferred  what an attempt deferred that came to nothing
delete from rota.deferred where (run_id, epoch) in (select w.run_id, w.epoch
  from jsonb_to_recordset(:rows::text::jsonb) as w(run_id bigint, epoch int));

-- name: drop_asked
delete from rota.deferred where run_id = any(:ids::bigint[]) and kind = 'question';

-- name: find_effects
select name, result, run_id, at from rota.effects
where task_id = :task_id::bigint and slot = :slot::text and name = any(:names::text[]);

-- name: count_effects
select count(*) from rota.effects where run_id = :run_id::bigint;

-- name: insert_effects
insert into rota.effects (task_id, slot, name, run_id, epoch, early, result, at)
select w.task_id, w.slot, w.name, w.run_id, w.epoch, w.early, w.result, :now::bigint
from jsonb_to_recordset(:rows::text::jsonb) as w(task_id bigint, slot text, name text,
  run_id bigint, epoch int, early int, result text) where true
on conflict (task_id, slot, name) do nothing
returning task_id, slot, name;

-- name: delivery_by_key
select id from rota.deliveries where dedupe_key = :key::text;
