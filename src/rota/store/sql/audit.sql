-- name: insert_request
insert into rota.requests (at, caller, space, command, about, key, digest)
values (:now::bigint, :caller::text, :space::text, :command::text, :about::text, :key::text,
  :digest::text)
on conflict (caller, key) where key is not null do nothing
returning id;

-- name: insert_requests  without keys
insert into rota.requests (at, caller, space, command, about)
select :now::bigint, caller, space, command, about
from jsonb_to_recordset(:rows::text::jsonb)
  as w(caller text, space text, command text, about text);

-- name: lock_held  an attempt that goes on cannot end before this transaction does
select 1 as held from rota.runs
where id = :run_id::bigint and epoch = :epoch::int and state = 'running'
for no key update;

-- name: find_held
select r.id, r.epoch, r.task_id, t.name as task, coalesce(r.thread, t.thread) as thread,
  p.name as space
from rota.runs r join rota.tasks t on t.id = r.task_id join rota.spaces p on p.id = r.space_id
where r.id = :run_id::bigint and r.epoch = :epoch::int and r.state = 'running';

-- name: count_made  by attempts
select count(*) from rota.tasks
where space_id = :space_id::bigint and deleted_at is null and origin like 'attempt:%';

-- name: answer_request
update rota.requests set status = :status::int, answer = :answer::text
where id = :id::bigint and status is null;

-- name: find_request
select id, at, caller, space, command, about, key, digest, status, answer
from rota.requests where caller = :caller::text and key = :key::text;

-- name: requests_alike  of several callers, in the order they were made
select id, at, caller, space, command, about, key, digest, status, answer
from rota.requests
where caller = any(:callers::text[]) and key is not null and digest = :digest::text
order by id;

-- name: list_requests
select id, at, caller, space, command, about, key, digest, status, answer
from rota.requests
where id < :before::bigint and (:space::text is null or space = :space::text)
order by id desc limit :most::bigint;
