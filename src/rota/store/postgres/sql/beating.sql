-- name: put_beats  of runs that are the worker's; a new beat ends a silence
insert into rota.beats (run_id, epoch, at, due_at, data)
select r.id, r.epoch, :now::bigint, :due::bigint, w.data
from jsonb_to_recordset(:rows::text::jsonb) as w(run_id bigint, epoch int, data text)
join rota.runs r on r.id = w.run_id
where r.epoch = w.epoch and r.state = 'running' and r.holder = :worker::text
order by r.id
on conflict (run_id) do update set epoch = excluded.epoch, at = excluded.at,
  due_at = excluded.due_at, silence = null, data = excluded.data;

-- name: beats_of  of the attempts that runs have come to
select b.run_id, b.epoch, b.at, b.silence, b.data
from rota.beats b join rota.runs r on r.id = b.run_id and r.epoch = b.epoch
where b.run_id = any(:ids::bigint[]);

-- name: overdue_beats  running, and nobody has told of it in time; a silence is noted once
select r.id, r.epoch, coalesce(b.at, r.started_at) as at,
  exists (select 1 from rota.workers w where w.id = r.holder and w.fenced = 0) as trusted,
  exists (select 1 from rota.kept k where k.run_id = r.id and k.epoch = r.epoch) as kept
from rota.runs r
left join rota.beats b on b.run_id = r.id and b.epoch = r.epoch
where r.state = 'running' and coalesce(b.due_at, r.started_at + :patience::bigint) < :now::bigint
  and b.silence is null
limit :most::int;

-- name: note_silence  if nothing was heard since
insert into rota.beats (run_id, epoch, at, due_at, silence, data)
select r.id, r.epoch, w.at, w.at, w.silence, '{}'
from jsonb_to_recordset(:rows::text::jsonb)
  as w(run_id bigint, epoch int, at bigint, silence text)
join rota.runs r on r.id = w.run_id
where r.epoch = w.epoch and r.state = 'running'
order by r.id
on conflict (run_id) do update set epoch = excluded.epoch, at = excluded.at,
  due_at = excluded.due_at, silence = excluded.silence,
  data = case when beats.epoch = excluded.epoch then beats.data else excluded.data end
where beats.epoch <> excluded.epoch or (beats.at = excluded.at and beats.silence is null)
returning run_id;

-- name: prune_beats
delete from rota.beats where run_id = any(:ids::bigint[]);
