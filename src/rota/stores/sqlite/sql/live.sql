-- name: events_after  one row without an event if there is none
select f.pruned, 0 as hidden, e.id, e.at, e.name, e.space_id, e.task_id, e.run_id, e.data, '0' as xact
from (select (select value from facts where name = 'events_pruned') as pruned) f
left join (
  select * from events where id > :after and :xact >= '' order by id limit :most
) e on true
order by e.id;

-- name: run_events_after  the same for one run
select f.pruned, 0 as hidden, e.id, e.at, e.name, e.space_id, e.task_id, e.run_id, e.data, '0' as xact
from (select (select value from facts where name = 'events_pruned') as pruned) f
left join (
  select * from events where run_id = :run_id and run_id is not null and id > :after and :xact >= '' order by id limit :most
) e on true
order by e.id;

-- name: events_end
select (select value from facts where name = 'events_pruned') as pruned, '0' as xact,
  (select max(id) from events) as id;
