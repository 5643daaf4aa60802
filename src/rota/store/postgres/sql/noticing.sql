-- name: unset_usual
update rota.preferences set usual = 0, updated_at = :now::bigint
where space_id = :space_id::bigint and usual = 1
  and not (channel = :channel::text and target = :target::text);

-- name: put_preference
insert into rota.preferences as p (space_id, channel, target, least, usual, updated_at)
values (:space_id::bigint, :channel::text, :target::text, :least::int, :usual::int, :now::bigint)
on conflict (space_id, channel, target) do update
set least = excluded.least, usual = excluded.usual, updated_at = excluded.updated_at
where p.least <> excluded.least or p.usual <> excluded.usual;

-- name: drop_preference
delete from rota.preferences
where space_id = :space_id::bigint and channel = :channel::text and target = :target::text
returning channel;

-- name: list_preferences
select p.space_id, s.name, p.channel, p.target, p.least, p.usual, p.updated_at
from rota.preferences p join rota.spaces s on s.id = p.space_id
where :space_id::bigint is null or p.space_id = :space_id::bigint
order by s.name, p.channel, p.target;

-- name: preferences_of_runs  one row at least for each run
select r.id, r.space_id, r.task_id, t.name, r.priority, p.channel, p.target, p.least
from rota.runs r join rota.tasks t on t.id = r.task_id
  left join rota.preferences p on p.space_id = r.space_id
where r.id = any(:ids::bigint[]) order by r.id, p.channel, p.target;

-- name: withdraw_of_runs  what asks for answers that nobody waits for any more
update rota.deliveries d set state = 'withdrawn', error = :error::text
where d.run_id = any(:ids::bigint[]) and coalesce(d.state, '') = 'pending' and d.asking is not null
  and not exists (select 1 from rota.runs r
    where r.id = d.run_id and r.state = 'waiting' and r.epoch = d.asking)
returning d.id, d.run_id, d.space_id, d.channel;

-- name: withdraw_of_these
update rota.deliveries d set state = 'withdrawn', error = :error::text
where d.id = any(:ids::bigint[]) and coalesce(d.state, '') = 'pending' and d.asking is not null
  and not exists (select 1 from rota.runs r
    where r.id = d.run_id and r.state = 'waiting' and r.epoch = d.asking)
returning d.id, d.run_id, d.space_id, d.channel;
