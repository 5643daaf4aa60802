-- name: put_beats  of runs that are the worker's; a new beat ends a silence
insert into beats (run_id, epoch, at, due_at, data)
select r.id, r.epoch, :now, :due, w.value ->> 'data'
from jsonb_each(:rows) w join runs r on r.id = w.value ->> 'run_id'
where r.epoch = w.value ->> 'epoch' and r.state = 'running' and r.holder = :worker
on conflict (run_id) do update set epoch = excluded.epoch, at = excluded.at,
  due_at = excluded.due_at, silence = null, data = excluded.data;

-- name: beats_of  of the attempts that runs have come to
select b.run_id, b.epoch, b.at, b.silence, b.data
from beats b join runs r on r.id = b.run_id and r.epoch = b.epoch
where b.run_id in (select value from json_each(:ids));

-- name: overdue_beats  running, and nobody has told of it in time; a silence is noted once
select r.id, r.epoch, coalesce(b.at, r.started_at) as at,
  exists (select 1 from workers w where w.id = r.holder and w.fenced = 0) as trusted,
  exists (select 1 from kept k where k.run_id = r.id and k.epoch = r.epoch) as kept
from runs r indexed by runs_running
left join beats b on b.run_id = r.id and b.epoch = r.epoch
where r.state = 'running' and coalesce(b.due_at, r.started_at + :patience) < :now
  and b.silence is null
limit :most;

-- name: note_silence  if nothing was heard since
insert into beats (run_id, epoch, at, due_at, silence, data)
select r.id, r.epoch, w.value ->> 'at', w.value ->> 'at', w.value ->> 'silence', '{}'
from jsonb_each(:rows) w join runs r on r.id = w.value ->> 'run_id'
where r.epoch = w.value ->> 'epoch' and r.state = 'running'
on conflict (run_id) do update set epoch = excluded.epoch, at = excluded.at,
  due_at = excluded.due_at, silence = excluded.silence,
  data = case when beats.epoch = excluded.epoch then beats.data else excluded.data end
where beats.epoch <> excluded.epoch or (beats.at = excluded.at and beats.silence is null)
returning run_id;

-- name: prune_beats
delete from beats where run_id in (select value from json_each(:ids));
