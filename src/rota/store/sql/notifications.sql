-- name: unset_usual
update rota.preferences set usual = 0, updated_at = :now::bigint
where space_id = :space_id::bigint and usual = 1
  and not (channel = :channel::text and target = :target::text);

-- name: put_preference
insert into rota.preferences (space_id, channel, target, least, usual, updated_at)
values (:space_id::bigint, :channel::text, :target::text, :least::int, :usual::int, :now::bigint)
on conflict (space_id, channel, target) do update
set least = excluded.least, usual = excluded.usual, updated_at = excluded.updated_at
where preferences.least <> excluded.least or preferences.usual <> excluded.usual;

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
update rota.deliveries as d set state = 'withdrawn', error = :error::text
where d.run_id = any(:ids::bigint[]) and coalesce(d.state, '') = 'pending' and d.asking is not null
  and not exists (select 1 from rota.runs r
    where r.id = d.run_id and r.state = 'waiting' and r.epoch = d.asking)
returning id, run_id, space_id, channel;

-- name: withdraw_of_these
update rota.deliveries as d set state = 'withdrawn', error = :error::text
where d.id = any(:ids::bigint[]) and coalesce(d.state, '') = 'pending' and d.asking is not null
  and not exists (select 1 from rota.runs r
    where r.id = d.run_id and r.state = 'waiting' and r.epoch = d.asking)
returning id, run_id, space_id, channel;

-- name: insert_deliveries
insert into rota.deliveries (space_id, run_id, channel, target, body, dedupe_key, state,
  available_at, created_at, early, kind, asking, mail, files)
select w.space_id, w.run_id, w.channel, w.target, w.body, w.dedupe_key, 'pending', :now::bigint,
  :now::bigint, coalesce(w.early, 0), coalesce(w.kind, 'message'), w.asking, w.mail,
  w.files
from jsonb_to_recordset(:rows::text::jsonb) as w(space_id bigint, run_id bigint, channel text,
  target text, body text, dedupe_key text, early int, kind text, asking int, mail text, files text) where true
on conflict (dedupe_key) do nothing;
