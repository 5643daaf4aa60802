-- name: put_reading  what a worker runs, and how its machine is doing
insert into rota.readings (home, at, host, running, agents, panes, spaces, cpu_percent, memory_bytes, memory_total)
select :home::text, :now::bigint, :host::text, count(*), count(*) filter (where r.route = 'agent'),
  count(*) filter (where k.executor = 'tmux'), count(distinct r.space_id),
  :cpu::double precision, :memory::bigint, :total::bigint
from rota.runs r left join rota.kept k on k.run_id = r.id and k.epoch = r.epoch
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
select distinct on (host, home) home, at, host, running, agents, panes, spaces, cpu_percent, memory_bytes, memory_total
from rota.readings where at >= :since::bigint
order by host, home, at desc;

-- name: list_beats  of running attempts, longest unheard first
select b.run_id, b.epoch, b.at, b.silence, b.data, t.name, s.name, coalesce(k.executor, ''), r.started_at
from rota.runs r
join rota.beats b on b.run_id = r.id and b.epoch = r.epoch
join rota.tasks t on t.id = r.task_id
join rota.spaces s on s.id = r.space_id
left join rota.kept k on k.run_id = r.id and k.epoch = r.epoch
where r.state = 'running' and (:space_id::bigint is null or r.space_id = :space_id::bigint)
order by b.at, b.run_id limit :most::int;
