-- name: lock_space  whoever changes which session a thread goes on in does so alone
select id from rota.spaces where id = :id::bigint for no key update;

-- name: current_session  what the next run of a run's thread goes on in
select s.name, s.input, s.output, s.cached
from rota.runs r join rota.tasks t on t.id = r.task_id
join rota.sessions s on s.space_id = r.space_id and s.thread = coalesce(r.thread, t.thread, '')
  and s.task_id = case when coalesce(r.thread, t.thread) is null then r.task_id else 0 end
where r.id = :run_id::bigint and s.agent = :agent::text and s.archived_at is null;

-- name: own_session  what a run that has asked goes on in, whatever its thread does meanwhile
select s.name, s.input, s.output, s.cached
from rota.session_runs x join rota.sessions s on s.id = x.session_id
where x.run_id = :run_id::bigint and s.agent = :agent::text and s.cleared_at is null
order by x.epoch desc limit 1;

-- name: named_session
select s.id, s.cleared_at is not null as cleared
from rota.runs r join rota.tasks t on t.id = r.task_id
join rota.sessions s on s.space_id = r.space_id and s.thread = coalesce(r.thread, t.thread, '')
  and s.task_id = case when coalesce(r.thread, t.thread) is null then r.task_id else 0 end
where r.id = :run_id::bigint and s.agent = :agent::text and s.name in (:name::text, :was::text)
order by s.name = :name::text desc limit 1;

-- name: use_session
update rota.sessions set name = :name::text, input = :input::bigint, output = :output::bigint,
  cached = :cached::bigint,
  used_at = greatest(used_at, :now::bigint)
where id = :id::bigint;

-- name: archive_current  of a run's thread
update rota.sessions set archived_at = :now::bigint
where archived_at is null and agent = :agent::text and (space_id, thread, task_id) in (
  select r.space_id, coalesce(r.thread, t.thread, ''),
    case when coalesce(r.thread, t.thread) is null then r.task_id else 0 end
  from rota.runs r join rota.tasks t on t.id = r.task_id where r.id = :run_id::bigint);

-- name: archive_lost  a session of a run's thread that its agent does not know any more
update rota.sessions set archived_at = coalesce(archived_at, :now::bigint)
where agent = :agent::text and name = :name::text and (space_id, thread, task_id) in (
  select r.space_id, coalesce(r.thread, t.thread, ''),
    case when coalesce(r.thread, t.thread) is null then r.task_id else 0 end
  from rota.runs r join rota.tasks t on t.id = r.task_id where r.id = :run_id::bigint);

-- name: insert_session
insert into rota.sessions (space_id, thread, task_id, agent, name, title, input, output, cached,
  started_at, used_at, archived_at)
select r.space_id, coalesce(r.thread, t.thread, ''),
  case when coalesce(r.thread, t.thread) is null then r.task_id else 0 end, :agent::text,
  :name::text, :title::text,
  :input::bigint, :output::bigint, :cached::bigint, :now::bigint, :now::bigint,
  case when :shared::boolean then null else :now::bigint end
from rota.runs r join rota.tasks t on t.id = r.task_id where r.id = :run_id::bigint
on conflict do nothing returning id;

-- name: what_was_said
select said from rota.kept where run_id = :run_id::bigint and epoch = :epoch::int;

-- name: note_exchange
insert into rota.session_runs (run_id, epoch, session_id, at, said)
values (:run_id::bigint, :epoch::int, :session_id::bigint, :now::bigint, :said::text)
on conflict (run_id, epoch) do update set session_id = excluded.session_id;

-- name: list_sessions
select s.id, p.name as space, s.thread, t.name as task, s.agent, s.name, s.title, s.input, s.output,
  s.cached,
  (select count(distinct x.run_id) from rota.session_runs x where x.session_id = s.id) as runs,
  s.started_at, s.used_at, s.archived_at
from rota.sessions s join rota.spaces p on p.id = s.space_id
left join rota.tasks t on t.id = s.task_id
where s.cleared_at is null and s.id < :before::bigint
  and (:space::text is null or p.name = :space::text)
  and (:thread::text is null or s.thread = :thread::text)
  and (:agent::text is null or s.agent = :agent::text)
  and (:archived::boolean is null or (s.archived_at is not null) = :archived::boolean)
order by s.id desc limit :most::int;

-- name: get_session
select s.id, p.name as space, s.thread, t.name as task, s.agent, s.name, s.title, s.input, s.output,
  s.cached,
  (select count(distinct x.run_id) from rota.session_runs x where x.session_id = s.id) as runs,
  s.started_at, s.used_at, s.archived_at
from rota.sessions s join rota.spaces p on p.id = s.space_id
left join rota.tasks t on t.id = s.task_id
where s.cleared_at is null and s.id = :id::bigint;

-- name: session_history
select x.session_id, x.run_id, x.epoch, t.name as task, x.at, x.said, r.state, r.result, r.error
from rota.session_runs x left join rota.runs r on r.id = x.run_id
left join rota.tasks t on t.id = r.task_id
where x.session_id = :id::bigint and x.run_id < :before::bigint
order by x.run_id desc, x.epoch desc limit :most::int;

-- name: search_sessions  in the newest of what was said, and how it was answered
select session_id, run_id, epoch, task, at, said, state, result, error from (
  select x.session_id, x.run_id, x.epoch, t.name as task, x.at, x.said, r.state,
    substr(r.result, 1, :longest::int) as result, r.error
  from rota.sessions s join rota.spaces p on p.id = s.space_id
  join rota.session_runs x on x.session_id = s.id
  left join rota.runs r on r.id = x.run_id left join rota.tasks t on t.id = r.task_id
  where s.cleared_at is null and (:space::text is null or p.name = :space::text)
    and (:thread::text is null or s.thread = :thread::text)
  order by x.run_id desc, x.epoch desc limit :looked::int) as newest
where said ilike :words::text escape '\' or result ilike :words::text escape '\'
order by run_id desc, epoch desc limit :most::int;

-- name: archive_session
update rota.sessions set archived_at = coalesce(archived_at, :now::bigint),
  title = coalesce(:title::text, title)
where id = :id::bigint and cleared_at is null returning space_id;

-- name: clear_session
update rota.sessions set archived_at = coalesce(archived_at, :now::bigint),
  cleared_at = :now::bigint, title = ''
where id = :id::bigint and cleared_at is null returning space_id;

-- name: forget_exchanges
delete from rota.session_runs where session_id = :id::bigint;

-- name: archive_beside  the one that a session takes the place of
update rota.sessions set archived_at = :now::bigint, title = coalesce(:title::text, title)
where archived_at is null and id <> :id::bigint and (space_id, thread, task_id, agent) in
  (select o.space_id, o.thread, o.task_id, o.agent from rota.sessions o where o.id = :id::bigint);

-- name: unarchive_session
update rota.sessions set archived_at = null
where id = :id::bigint and cleared_at is null returning id;
