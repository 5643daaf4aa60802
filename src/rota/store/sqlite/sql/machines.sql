-- name: put_reading  what a worker runs, and how its machine is doing
insert into readings (home, at, host, running, agents, panes, spaces, cpu_percent, memory_bytes, memory_total)
select :home, :now, :host, count(*), count(*) filter (where r.route = 'agent'),
  count(*) filter (where k.executor = 'tmux'), count(distinct r.space_id), :cpu, :memory, :total
from runs r indexed by runs_running left join kept k on k.run_id = r.id and k.epoch = r.epoch
where r.state = 'running' and r.holder = :worker
on conflict (home, at) do nothing;

-- name: prune_readings
delete from readings where at < :before;

-- name: list_readings  newest first
select home, at, host, running, agents, panes, spaces, cpu_percent, memory_bytes, memory_total
from readings where at >= :since and at < :before and (:host is null or host = :host)
order by at desc, home limit :most;

-- name: newest_readings  of each home since then
select s.home, s.at, s.host, s.running, s.agents, s.panes, s.spaces, s.cpu_percent, s.memory_bytes, s.memory_total
from (select home, max(at) as at from readings where at >= :since group by home) n
join readings s on s.home = n.home and s.at = n.at
order by s.host, s.home;

-- name: list_beats  of running attempts, longest unheard first
select b.run_id, b.epoch, b.at, b.silence, b.data, t.name, s.name, coalesce(k.executor, ''), r.started_at
from runs r indexed by runs_running
join beats b on b.run_id = r.id and b.epoch = r.epoch
join tasks t on t.id = r.task_id
join spaces s on s.id = r.space_id
left join kept k on k.run_id = r.id and k.epoch = r.epoch
where r.state = 'running' and (:space_id is null or r.space_id = :space_id)
order by b.at, b.run_id limit :most;
