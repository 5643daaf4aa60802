-- name: unset_usual
update preferences set usual = 0, updated_at = :now
where space_id = :space_id and usual = 1 and not (channel = :channel and target = :target);

-- name: put_preference
insert into preferences (space_id, channel, target, least, usual, updated_at)
values (:space_id, :channel, :target, :least, :usual, :now)
on conflict (space_id, channel, target) do update
set least = excluded.least, usual = excluded.usual, updated_at = excluded.updated_at
where preferences.least <> excluded.least or preferences.usual <> excluded.usual;

-- name: drop_preference
delete from preferences where space_id = :space_id and channel = :channel and target = :target
returning channel;

-- name: list_preferences
select p.space_id, s.name, p.channel, p.target, p.least, p.usual, p.updated_at
from preferences p join spaces s on s.id = p.space_id
where :space_id is null or p.space_id = :space_id order by s.name, p.channel, p.target;

-- name: preferences_of_runs  one row at least for each run
select r.id, r.space_id, r.task_id, t.name, r.priority, p.channel, p.target, p.least
from runs r join tasks t on t.id = r.task_id left join preferences p on p.space_id = r.space_id
where r.id in (select value from json_each(:ids)) order by r.id, p.channel, p.target;

-- name: withdraw_of_runs  what asks for answers that nobody waits for any more
update deliveries set state = 'withdrawn', error = :error
where run_id in (select value from json_each(:ids)) and state = 'pending' and asking is not null
  and not exists (select 1 from runs r
    where r.id = deliveries.run_id and r.state = 'waiting' and r.epoch = deliveries.asking)
returning id, run_id, space_id, channel;

-- name: withdraw_of_these
update deliveries set state = 'withdrawn', error = :error
where id in (select value from json_each(:ids)) and state = 'pending' and asking is not null
  and not exists (select 1 from runs r
    where r.id = deliveries.run_id and r.state = 'waiting' and r.epoch = deliveries.asking)
returning id, run_id, space_id, channel;
