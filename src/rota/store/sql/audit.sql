-- name: insert_audit_entry
insert into rota.audit_log (at, caller, space, command, subject, key, digest)
values (:now::bigint, :caller::text, :space::text, :command::text, :subject::text, :key::text,
  :digest::text)
on conflict (caller, key) where key is not null do nothing
returning id;

-- name: insert_audit_entries  without idempotency keys
insert into rota.audit_log (at, caller, space, command, subject)
select :now::bigint, caller, space, command, subject
from jsonb_to_recordset(:rows::text::jsonb)
  as w(caller text, space text, command text, subject text);

-- name: lock_attempt  a running attempt cannot end before this transaction does
select 1 as held from rota.runs
where id = :run_id::bigint and epoch = :epoch::int and state = 'running'
for no key update;

-- name: find_attempt
select r.id, r.epoch, r.task_id, t.name as task, coalesce(r.thread, t.thread) as thread,
  p.name as space
from rota.runs r join rota.tasks t on t.id = r.task_id join rota.spaces p on p.id = r.space_id
where r.id = :run_id::bigint and r.epoch = :epoch::int and r.state = 'running';

-- name: count_tasks_of_attempts  tasks that attempts have created in a space
select count(*) from rota.tasks
where space_id = :space_id::bigint and deleted_at is null and origin like 'attempt:%';

-- name: set_audit_answer
update rota.audit_log set status = :status::int, answer = :answer::text
where id = :id::bigint and status is null;

-- name: find_audit_entry
select id, at, caller, space, command, subject, key, digest, status, answer
from rota.audit_log where caller = :caller::text and key = :key::text;

-- name: find_equal_audit_entries  of several callers, oldest first
select id, at, caller, space, command, subject, key, digest, status, answer
from rota.audit_log
where caller = any(:callers::text[]) and key is not null and digest = :digest::text
order by id;

-- name: list_audit_entries
select id, at, caller, space, command, subject, key, digest, status, answer
from rota.audit_log
where id < :before::bigint and (:space::text is null or space = :space::text)
order by id desc limit :most::bigint;
