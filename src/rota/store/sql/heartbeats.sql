-- name: put_beats  of runs that are the worker's; a new beat ends a silence
insert into rota.beats (run_id, epoch, at, due_at, data)
select r.id, r.epoch, :now::bigint, :due::bigint, w.data
from (
  select * from jsonb_to_recordset(:rows::text::jsonb) as j(run_id bigint, epoch int, data text)
  order by run_id
) w
join rota.runs r on r.id = w.run_id
where r.epoch = w.epoch and r.state = 'running' and r.holder = :worker::text
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
from rota.runs r /* sqlite: indexed by runs_running */
left join rota.beats b on b.run_id = r.id and b.epoch = r.epoch
where r.state = 'running' and coalesce(b.due_at, r.started_at + :patience::bigint) < :now::bigint
  and b.silence is null
limit :most::int;

-- name: note_silence  if nothing was heard since
insert into rota.beats (run_id, epoch, at, due_at, silence, data)
select r.id, r.epoch, w.at, w.at, w.silence, '{}'
from (
  select * from jsonb_to_recordset(:rows::text::jsonb)
    as j(run_id bigint, epoch int, at bigint, silence text)
  order by run_id
) w
join rota.runs r on r.id = w.run_id
where r.epoch = w.epoch and r.state = 'running'
on conflict (run_id) do update set epoch = excluded.epoch, at = excluded.at,
  due_at = excluded.due_at, silence = excluded.silence,
  data = case when beats.epoch = excluded.epoch then beats.data else excluded.data end
where beats.epoch <> excluded.epoch or (beats.at = excluded.at and beats.silence is null)
returning run_id;

-- name: put_reading  what a worker runs, and how its machine is doing
insert into rota.readings (home, at, host, running, agents, panes, spaces, cpu_percent, memory_bytes, memory_total)
select :home::text, :now::bigint, :host::text, count(*), count(*) filter (where r.route = 'agent'),
  count(*) filter (where k.executor = 'tmux'), count(distinct r.space_id),
  :cpu::double precision, :memory::bigint, :total::bigint
from rota.runs r /* sqlite: indexed by runs_running */ left join rota.kept k on k.run_id = r.id and k.epoch = r.epoch
where r.state = 'running' and r.holder = :worker::text
on conflict (home, at) do nothing;

-- name: prune_readings
delete from rota.readings where at < :before::bigint;

-- name: list_readings  newest first
select home, at, host, running, agents, panes, spaces, cpu_percent, memory_bytes, memory_total
from rota.readings
where at >= :since::bigint and at < :before::bigint and (:host::text is null or host = :host::text)
order by at desc, home limit :most::int;

-- name: newest_readings  of each home since then
select s.home, s.at, s.host, s.running, s.agents, s.panes, s.spaces, s.cpu_percent, s.memory_bytes,
  s.memory_total
from (select home, max(at) as at from rota.readings where at >= :since::bigint group by home) n
join rota.readings s on s.home = n.home and s.at = n.at
order by s.host, s.home;

-- name: list_beats  of running attempts, longest unheard first
select b.run_id, b.epoch, b.at, b.silence, b.data, t.name, s.name, coalesce(k.executor, ''), r.started_at
from rota.runs r /* sqlite: indexed by runs_running */
join rota.beats b on b.run_id = r.id and b.epoch = r.epoch
join rota.tasks t on t.id = r.task_id
join rota.spaces s on s.id = r.space_id
left join rota.kept k on k.run_id = r.id and k.epoch = r.epoch
where r.state = 'running' and (:space_id::bigint is null or r.space_id = :space_id::bigint)
order by b.at, b.run_id limit :most::int;
