-- name: held_behind  lanes that wait while none of their runs is running or ready
select g.space_id, g.lane, g.runs, g.first from (
  select space_id, lane, count(*) as runs, min(id) as first from runs indexed by runs_lane_queue
  where place in ('ready', 'held') and lane is not null
  group by space_id, lane having sum(place = 'ready') = 0
) g
where not exists (select 1 from runs r where r.state = 'running' and r.lane is not null
  and r.space_id = g.space_id and r.lane = g.lane);
