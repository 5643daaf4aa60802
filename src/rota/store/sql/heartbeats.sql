-- name: put_heartbeats  of runs that the worker holds; clears a missed heartbeat
insert into rota.heartbeats (run_id, epoch, at, due_at, sample)
select r.id, r.epoch, :now::bigint, :due::bigint, w.sample
from (
  select * from jsonb_to_recordset(:rows::text::jsonb) as j(run_id bigint, epoch int, sample text)
  order by run_id
) w
join rota.runs r on r.id = w.run_id
where r.epoch = w.epoch and r.state = 'running' and r.worker_id = :worker::text
on conflict (run_id) do update set epoch = excluded.epoch, at = excluded.at,
  due_at = excluded.due_at, missed_reason = null, sample = excluded.sample;

-- name: heartbeats_of  of the current attempts of runs
select b.run_id, b.epoch, b.at, b.missed_reason, b.sample
from rota.heartbeats b join rota.runs r on r.id = b.run_id and r.epoch = b.epoch
where b.run_id = any(:ids::bigint[]);

-- name: overdue_heartbeats  each missed heartbeat is reported once
select r.id, r.epoch, coalesce(b.at, r.started_at) as at,
  exists (select 1 from rota.workers w where w.id = r.worker_id and w.fenced = 0) as trusted,
  exists (select 1 from rota.kept_attempts k where k.run_id = r.id and k.epoch = r.epoch) as kept
from rota.runs r /* sqlite: indexed by runs_running */
left join rota.heartbeats b on b.run_id = r.id and b.epoch = r.epoch
where r.state = 'running' and coalesce(b.due_at, r.started_at + :patience::bigint) < :now::bigint
  and b.missed_reason is null
limit :most::int;

-- name: record_missed_heartbeats  unless a newer heartbeat arrived
insert into rota.heartbeats (run_id, epoch, at, due_at, missed_reason, sample)
select r.id, r.epoch, w.at, w.at, w.missed_reason, '{}'
from (
  select * from jsonb_to_recordset(:rows::text::jsonb)
    as j(run_id bigint, epoch int, at bigint, missed_reason text)
  order by run_id
) w
join rota.runs r on r.id = w.run_id
where r.epoch = w.epoch and r.state = 'running'
on conflict (run_id) do update set epoch = excluded.epoch, at = excluded.at,
  due_at = excluded.due_at, missed_reason = excluded.missed_reason,
  sample = case when heartbeats.epoch = excluded.epoch then heartbeats.sample else excluded.sample end
where heartbeats.epoch <> excluded.epoch or (heartbeats.at = excluded.at
  and heartbeats.missed_reason is null)
returning run_id;

-- name: insert_machine_sample  what a worker runs, and the load of its machine
insert into rota.machine_samples (home, at, host, running, agents, panes, spaces, cpu_percent,
  memory_bytes, memory_total)
select :home::text, :now::bigint, :host::text, count(*), count(*) filter (where r.route = 'agent'),
  count(*) filter (where k.executor = 'tmux'), count(distinct r.space_id),
  :cpu::double precision, :memory::bigint, :total::bigint
from rota.runs r /* sqlite: indexed by runs_running */ left join rota.kept_attempts k
  on k.run_id = r.id and k.epoch = r.epoch
where r.state = 'running' and r.worker_id = :worker::text
on conflict (home, at) do nothing;

-- name: prune_machine_samples
delete from rota.machine_samples where at < :before::bigint;

-- name: list_machine_samples  newest first
select home, at, host, running, agents, panes, spaces, cpu_percent, memory_bytes, memory_total
from rota.machine_samples
where at >= :since::bigint and at < :before::bigint and (:host::text is null or host = :host::text)
order by at desc, home limit :most::int;

-- name: newest_machine_samples  the newest of each home since an instant
select s.home, s.at, s.host, s.running, s.agents, s.panes, s.spaces, s.cpu_percent, s.memory_bytes,
  s.memory_total
from (select home, max(at) as at from rota.machine_samples where at >= :since::bigint
  group by home) n
join rota.machine_samples s on s.home = n.home and s.at = n.at
order by s.host, s.home;

-- name: list_heartbeats  of running attempts, oldest heartbeat first
select b.run_id, b.epoch, b.at, b.missed_reason, b.sample, t.name, s.name, coalesce(k.executor,
  ''), r.started_at
from rota.runs r /* sqlite: indexed by runs_running */
join rota.heartbeats b on b.run_id = r.id and b.epoch = r.epoch
join rota.tasks t on t.id = r.task_id
join rota.spaces s on s.id = r.space_id
left join rota.kept_attempts k on k.run_id = r.id and k.epoch = r.epoch
where r.state = 'running' and (:space_id::bigint is null or r.space_id = :space_id::bigint)
order by b.at, b.run_id limit :most::int;
