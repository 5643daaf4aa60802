-- name: unset_default_target
update rota.notification_targets set is_default = 0, updated_at = :now::bigint
where space_id = :space_id::bigint and is_default = 1
  and not (channel = :channel::text and target = :target::text);

-- name: put_notification_target
insert into rota.notification_targets (space_id, channel, target, min_priority, is_default,
  updated_at)
values (:space_id::bigint, :channel::text, :target::text, :min_priority::int, :is_default::int,
  :now::bigint)
on conflict (space_id, channel, target) do update
set min_priority = excluded.min_priority, is_default = excluded.is_default,
  updated_at = excluded.updated_at
where notification_targets.min_priority <> excluded.min_priority
  or notification_targets.is_default <> excluded.is_default;

-- name: delete_notification_target
delete from rota.notification_targets
where space_id = :space_id::bigint and channel = :channel::text and target = :target::text
returning channel;

-- name: list_notification_targets
select p.space_id, s.name, p.channel, p.target, p.min_priority, p.is_default, p.updated_at
from rota.notification_targets p join rota.spaces s on s.id = p.space_id
where :space_id::bigint is null or p.space_id = :space_id::bigint
order by s.name, p.channel, p.target;

-- name: notification_targets_of_runs  at least one row for each run
select r.id, r.space_id, r.task_id, t.name, r.priority, p.channel, p.target, p.min_priority
from rota.runs r join rota.tasks t on t.id = r.task_id
  left join rota.notification_targets p on p.space_id = r.space_id
where r.id = any(:ids::bigint[]) order by r.id, p.channel, p.target;

-- name: withdraw_of_runs  notifications of questions that are closed
update rota.deliveries as d set state = 'withdrawn', error = :error::text
where d.run_id = any(:ids::bigint[]) and coalesce(d.state, '') = 'pending'
  and d.question_epoch is not null
  and not exists (select 1 from rota.runs r
    where r.id = d.run_id and r.state = 'waiting' and r.epoch = d.question_epoch)
returning id, run_id, space_id, channel;

-- name: withdraw_of_these
update rota.deliveries as d set state = 'withdrawn', error = :error::text
where d.id = any(:ids::bigint[]) and coalesce(d.state, '') = 'pending'
  and d.question_epoch is not null
  and not exists (select 1 from rota.runs r
    where r.id = d.run_id and r.state = 'waiting' and r.epoch = d.question_epoch)
returning id, run_id, space_id, channel;

-- name: insert_deliveries
insert into rota.deliveries (space_id, run_id, channel, target, body, dedupe_key, state,
  available_at, created_at, during_run, kind, question_epoch, mail, attachments)
select w.space_id, w.run_id, w.channel, w.target, w.body, w.dedupe_key, 'pending', :now::bigint,
  :now::bigint, coalesce(w.during_run, 0), coalesce(w.kind, 'message'), w.question_epoch, w.mail,
  w.attachments
from jsonb_to_recordset(:rows::text::jsonb) as w(space_id bigint, run_id bigint, channel text,
  target text, body text, dedupe_key text, during_run int, kind text, question_epoch int,
  mail text, attachments text) where true
on conflict (dedupe_key) do nothing;
