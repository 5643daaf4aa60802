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

-- name: tally_events
with page as (
  select id, name, data from events where id > :after and :xact >= '' order by id limit :most
)
select name, case name when 'run.settled' then coalesce(data ->> 'state', '') else '' end as state,
  count(*), '0' as xact, max(id)
from page group by 1, 2;

-- name: tally_lateness  of runs that began at their first attempt, by how many bounds are passed
with page as (
  select id, name, run_id from events where id > :after and :xact >= '' order by id limit :most
), late as (
  select max(0, r.started_at - r.slot_at) as micros
  from page p join runs r on r.id = p.run_id
  where p.name = 'run.settled' and r.source = 'slot' and r.epoch = 1 and r.started_at is not null
)
select (select count(*) from json_each(:bounds) b where b.value < micros) as bucket, count(*),
  sum(micros)
from late group by 1;
