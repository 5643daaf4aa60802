-- name: read_quotas  of spaces: their own caps, or what every member space has; whoever counts does so alone
select p.id, p.name, p.role,
  coalesce((select l.cap from limits l where l.scope = 'space' and l.key = :what || '/' || p.id),
    (select l.cap from limits l where l.scope = 'space' and l.key = :what)) as cap
from spaces p where p.id in (select value from json_each(:ids)) order by p.id;

-- name: count_queued  runs of a space that are queued, or will be once the run that asked succeeds
select
  (select count(*) from (select 1 from runs indexed by runs_ready
    where place = 'ready' and pool = 'foreground' and space_id = :space_id limit :most))
  + (select count(*) from (select 1 from runs indexed by runs_ready
    where place = 'ready' and pool = 'background' and space_id = :space_id limit :most))
  + (select count(*) from (select 1 from runs indexed by runs_later_space
    where place = 'later' and space_id = :space_id limit :most))
  + (select count(*) from (select 1 from runs indexed by runs_lane_queue
    where lane is not null and place in ('ready', 'held') and place = 'held'
      and space_id = :space_id limit :most))
  + (select count(*) from (select 1 from runs r indexed by runs_deferring
    cross join deferred d on d.run_id = r.id and d.kind = 'subtask'
    where r.deferring = 1 and r.finished_at is null and r.space_id = :space_id limit :most));
