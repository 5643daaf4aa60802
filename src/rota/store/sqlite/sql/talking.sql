-- name: hold_deferring
update runs set deferring = 1 where id = :run_id and epoch = :epoch and state = 'running'
returning id;

-- name: measure_deferred
select count(*), coalesce(sum(octet_length(data)), 0), coalesce(max(seq), 0),
  coalesce(max(kind = 'question' and epoch = :epoch), 0), coalesce(sum(kind = 'subtask'), 0)
from deferred where run_id = :run_id;

-- name: deferred_names
select name from deferred
where run_id = :run_id and name in (select value from json_each(:names));

-- name: insert_deferred
insert into deferred (run_id, epoch, seq, kind, name, data, at)
select :run_id, :epoch, value ->> 'seq', value ->> 'kind', value ->> 'name', value ->> 'data', :now
from jsonb_each(:rows);

-- name: deferred_of
select run_id, epoch, kind, name, data from deferred
where run_id in (select value from json_each(:ids)) order by run_id, epoch, seq;

-- name: asked_of  by attempts that still have their runs
select d.run_id, d.data from deferred d join runs r on r.id = d.run_id and r.epoch = d.epoch
where d.run_id in (select value from json_each(:ids)) and d.kind = 'question' and r.state = 'running';

-- name: told_on_the_way  notices of a run that were sent while it went on, and when the last was
select count(*), max(created_at) from deliveries
where run_id = :run_id and kind = 'notice' and early = 1;

-- name: outward_of  runs that have done what cannot be taken back
select r.id from runs r where r.id in (select value from json_each(:ids)) and
  (select count(*) from effects e where e.run_id = r.id and e.early = 1)
  + (select count(*) from questions q
    where q.run_id = r.id and q.kind = 'approval' and q.answer = 'approve') > 0;

-- name: begun_of  whose attempts were or may have been begun, and whether they could write outside
select r.id, coalesce(k.writes, 1) from runs r
left join kept k on k.run_id = r.id and k.epoch = r.epoch
where r.id in (select value from json_each(:ids)) and (k.run_id is not null
  or r.started_at <= cast((select value from facts where name = 'restored') as integer));

-- name: overstaying  who has asked long ago and goes on
select d.run_id, d.epoch from kept k
join deferred d on d.run_id = k.run_id and d.epoch = k.epoch and d.kind = 'question'
where k.home = :home and d.at < :before;

-- name: drop_deferred
delete from deferred where run_id in (select value from json_each(:ids));

-- name: drop_attempts_deferred  what an attempt deferred that came to nothing
delete from deferred where (run_id, epoch) in
  (select value ->> 'run_id', value ->> 'epoch' from jsonb_each(:rows));

-- name: drop_asked
delete from deferred where run_id in (select value from json_each(:ids)) and kind = 'question';

-- name: find_effects
select name, result, run_id, at from effects
where task_id = :task_id and slot = :slot and name in (select value from json_each(:names));

-- name: count_effects
select count(*) from effects where run_id = :run_id;

-- name: insert_effects
insert into effects (task_id, slot, name, run_id, epoch, early, result, at)
select value ->> 'task_id', value ->> 'slot', value ->> 'name', value ->> 'run_id',
  value ->> 'epoch', value ->> 'early', value ->> 'result', :now
from jsonb_each(:rows) where true
on conflict (task_id, slot, name) do nothing
returning task_id, slot, name;

-- name: delivery_by_key
select id from deliveries where dedupe_key = :key;

-- name: prune_deferred
delete from deferred where run_id in (select value from json_each(:ids));

-- name: prune_effects
delete from effects where run_id in (select value from json_each(:ids));
