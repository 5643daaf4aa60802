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

-- name: lock_thread
select space_id from rota.threads where key = :key::text for update;

-- name: thread_readers  runs that are queued to read what was said last in a thread
select distinct m.reader from (
  select n.reader from rota.messages n
  where n.thread = :thread::text and n.state in ('pending', 'given')
  order by n.id desc limit :most::int) as m
join rota.runs r on r.id = m.reader and r.state = 'queued'
order by m.reader;

-- name: count_pending  what somebody is there to read, with the bytes of its files
select count(*), coalesce(sum(length(m.body)), 0), coalesce(sum((
  select sum(f.size) from rota.message_files f where f.message_id = m.id)), 0)::bigint
from rota.messages m
where m.thread = :thread::text and m.state = 'pending' and exists (select 1 from rota.runs r
  where r.id = m.reader and r.state in ('queued', 'running', 'waiting'));

-- name: insert_message
insert into rota.messages (space_id, thread, sender, body, at, state, reader, follow_up)
values (:space_id::bigint, :thread::text, :sender::text, :body::text, :now::bigint, :state::text,
  :reader::bigint, :follow_up::int)
returning id;

-- name: insert_message_file
insert into rota.message_files (message_id, position, name, mimetype, size, sha256, content)
values (:message_id::bigint, :position::int, :name::text, :mimetype::text, :size::int,
  :digest::text, :content::bytea);

-- name: empty_files  of what nobody will ever read
update rota.message_files set content = null where message_id = any(:ids::bigint[]);

-- name: message_content
select content from rota.message_files
where message_id = :id::bigint and position = :position::int;

-- name: pass_messages  the oldest that ask for nobody, where there are many
update rota.messages set state = 'passed' where id in (
  select id from (
    select id, row_number() over (order by id desc) as nth,
      sum(size) over (order by id desc) as size, sum(bytes) over (order by id desc) as bytes
    from (select m.id, length(m.body) as size, coalesce((
        select sum(f.size) from rota.message_files f where f.message_id = m.id), 0) as bytes
      from rota.messages m
      where m.thread = :thread::text and m.state = 'pending' and m.reader is null) as w) as o
  where nth > :most::int or size > :characters::int or bytes > :bytes::bigint)
returning id;

-- name: turn_messages  to another reader, the newest ones, as many as it can be given
update rota.messages set reader = :reader::bigint where id in (
  select id from (
    select id, sum(bytes) over (order by id desc) as bytes
    from (select m.id, coalesce((
        select sum(f.size) from rota.message_files f where f.message_id = m.id), 0) as bytes
      from rota.messages m where m.thread = :thread::text and m.state = 'pending'
      order by m.id desc limit :most::int) as w) as o
  where bytes <= :bytes::bigint);

-- name: thread_read_by  what a run was to read, and has not taken from anybody
select thread from rota.messages where reader = :run_id::bigint
  and state in ('pending', 'given') limit 1;

-- name: hand_on_messages  to a run that does again what an earlier one was to do
update rota.messages set state = 'pending', reader = :reader::bigint, run_id = null, epoch = null,
  read_at = null
where reader = :run_id::bigint and state in ('pending', 'given');

-- name: held_run
select space_id, thread from rota.runs where id = :run_id::bigint and epoch = :epoch::int
  and state = 'running'
  and (:worker::text is null or holder = :worker::text)
for share;

-- name: give_messages
update rota.messages set state = 'given', run_id = :run_id::bigint,
  epoch = coalesce(epoch, :epoch::int),
  read_at = coalesce(read_at, :now::bigint)
where reader = :run_id::bigint and state in ('pending', 'given');

-- name: thread_given_to  of what an attempt was given, and no earlier one
select thread from rota.messages where reader = :run_id::bigint and run_id = :run_id::bigint
  and epoch = :epoch::int and state = 'given' limit 1;

-- name: give_back_messages  that an attempt was given which never began
update rota.messages set state = 'pending', run_id = null, epoch = null, read_at = null
where reader = :run_id::bigint and run_id = :run_id::bigint and epoch = :epoch::int and state = 'given';

-- name: given_messages  to a run, as its input or while it worked
select m.id, m.thread, m.sender, m.body, m.at, m.state, m.reader, m.run_id, m.epoch, m.read_at,
  (select json_agg(json_build_array(f.name, f.mimetype, f.size, f.sha256)
    order by f.position)::text from rota.message_files f where f.message_id = m.id) as files
from rota.messages m
where m.run_id = :run_id::bigint and m.state in ('given', 'taken') order by m.id;

-- name: find_message
select id, thread, sender, body, at, state, reader, run_id, epoch, read_at from rota.messages
where id = :id::bigint and thread = :thread::text;

-- name: take_messages  everything that was said up to one of them, but for what is left to the next run
update rota.messages set state = 'taken', run_id = :run_id::bigint, epoch = :epoch::int,
  read_at = :now::bigint
where thread = :thread::text and state = 'pending' and id <= :upto::bigint
  and reader is not null and follow_up = 0
returning reader;

-- name: idle_readers  runs for which nothing is left to read
select r.id, r.epoch, r.task_id from rota.runs r
where r.id = any(:ids::bigint[]) and r.state = 'queued'
  and not exists (select 1 from rota.messages m
    where m.reader = r.id and m.state in ('pending', 'given'));

-- name: pending_messages  for whoever goes on, and not in a box already
select m.id, m.thread, m.sender, m.body, m.at, m.state, m.reader, m.run_id, m.epoch, m.read_at,
  (select json_agg(json_build_array(f.name, f.mimetype, f.size, f.sha256)
    order by f.position)::text from rota.message_files f where f.message_id = m.id) as files
from rota.messages m
where m.thread = :thread::text and m.state = 'pending' and (m.box is null or m.box <> :box::text)
  and m.reader is not null and m.follow_up = 0
order by m.id limit :most::int;

-- name: box_message
update rota.messages set box = :box::text, number = :number::int
where id = :id::bigint and state = 'pending';

-- name: boxed_message
select id from rota.messages where box = :box::text and number = :number::int;

-- name: list_messages  what nobody is there to read any more is unread
select m.id, m.thread, m.sender, m.body, m.at,
  case when m.state = 'pending' and m.reader is not null and not coalesce((
    select r.state in ('queued', 'running', 'waiting') from rota.runs r where r.id = m.reader), false)
  then 'unread' else m.state end as state, m.reader, m.run_id, m.epoch, m.read_at,
  (select json_agg(json_build_array(f.name, f.mimetype, f.size, f.sha256)
    order by f.position)::text from rota.message_files f where f.message_id = m.id) as files
from rota.messages m join rota.spaces p on p.id = m.space_id
where m.thread = :thread::text and m.id < :before::bigint
  and (:space::text is null or p.name = :space::text)
order by m.id desc limit :most::int;

-- name: prune_exchanges
delete from rota.session_runs where run_id = any(:ids::bigint[]);

-- name: prune_sessions  that nobody goes on in, and of which nothing is left
delete from rota.sessions where id in (select s.id from rota.sessions s
  where s.archived_at is not null and s.used_at < :before::bigint
    and not exists (select 1 from rota.session_runs x where x.session_id = s.id)
  order by s.used_at limit :most::int);

-- name: prune_messages  with their files, so many bytes of them that nobody waits long
delete from rota.messages where id in (
  select id from (
    select id, row_number() over (order by id) as nth, sum(bytes) over (order by id) as bytes
    from (select m.id, coalesce((
        select sum(f.size) from rota.message_files f
        where f.message_id = m.id and f.content is not null), 0) as bytes
      from rota.messages m
      where m.at < :before::bigint and (m.state <> 'pending' or not coalesce((
        select r.state in ('queued', 'running', 'waiting') from rota.runs r where r.id = m.reader),
        false))
      order by m.id limit :most::int) as w) as o
  where nth = 1 or bytes <= :bytes::bigint);
