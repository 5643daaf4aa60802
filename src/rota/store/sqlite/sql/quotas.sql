-- name: read_quotas
select p.id, p.name, p.role,
  coalesce((select l.cap from limits l where l.scope = 'space' and l.key = :what || '/' || p.id),
    (select l.cap from limits l where l.scope = 'space' and l.key = :what)) as cap
from spaces p where p.id in (select value from json_each(:ids)) order by p.id;

-- name: count_queued
select
  (select count(*) from (select 1 from runs indexed by runs_ready
    where queue_state = 'ready' and pool = 'foreground' and space_id = :space_id limit :most))
  + (select count(*) from (select 1 from runs indexed by runs_ready
    where queue_state = 'ready' and pool = 'background' and space_id = :space_id limit :most))
  + (select count(*) from (select 1 from runs indexed by runs_delayed_space
    where queue_state = 'delayed' and space_id = :space_id limit :most))
  + (select count(*) from (select 1 from runs indexed by runs_lane_queue
    where lane is not null and queue_state in ('ready', 'held') and queue_state = 'held'
      and space_id = :space_id limit :most))
  + (select count(*) from (select 1 from runs r indexed by runs_has_deferred
    cross join deferred_operations d on d.run_id = r.id and d.kind = 'subtask'
    where r.has_deferred = 1 and r.finished_at is null and r.space_id = :space_id limit :most));
