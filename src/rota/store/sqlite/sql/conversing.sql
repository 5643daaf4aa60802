-- name: lock_space  whoever changes which session a thread goes on in does so alone
select id from spaces where id = :id;

-- name: current_session  what the next run of a run's thread goes on in
select s.name, s.input, s.output, s.cached
from runs r join tasks t on t.id = r.task_id
join sessions s on s.space_id = r.space_id and s.thread = coalesce(r.thread, t.thread, '')
  and s.task_id = case when coalesce(r.thread, t.thread) is null then r.task_id else 0 end
where r.id = :run_id and s.agent = :agent and s.archived_at is null;

-- name: own_session  what a run that has asked goes on in, whatever its thread does meanwhile
select s.name, s.input, s.output, s.cached
from session_runs x join sessions s on s.id = x.session_id
where x.run_id = :run_id and s.agent = :agent and s.cleared_at is null
order by x.epoch desc limit 1;

-- name: named_session
select s.id, s.cleared_at is not null as cleared
from runs r join tasks t on t.id = r.task_id
join sessions s on s.space_id = r.space_id and s.thread = coalesce(r.thread, t.thread, '')
  and s.task_id = case when coalesce(r.thread, t.thread) is null then r.task_id else 0 end
where r.id = :run_id and s.agent = :agent and s.name in (:name, :was)
order by s.name = :name desc limit 1;

-- name: use_session
update sessions set name = :name, input = :input, output = :output, cached = :cached,
  used_at = max(used_at, :now)
where id = :id;

-- name: archive_current  of a run's thread
update sessions set archived_at = :now
where archived_at is null and agent = :agent and (space_id, thread, task_id) in (
  select r.space_id, coalesce(r.thread, t.thread, ''),
    case when coalesce(r.thread, t.thread) is null then r.task_id else 0 end
  from runs r join tasks t on t.id = r.task_id where r.id = :run_id);

-- name: archive_lost  a session of a run's thread that its agent does not know any more
update sessions set archived_at = coalesce(archived_at, :now)
where agent = :agent and name = :name and (space_id, thread, task_id) in (
  select r.space_id, coalesce(r.thread, t.thread, ''),
    case when coalesce(r.thread, t.thread) is null then r.task_id else 0 end
  from runs r join tasks t on t.id = r.task_id where r.id = :run_id);

-- name: insert_session
insert into sessions (space_id, thread, task_id, agent, name, title, input, output, cached,
  started_at, used_at, archived_at)
select r.space_id, coalesce(r.thread, t.thread, ''),
  case when coalesce(r.thread, t.thread) is null then r.task_id else 0 end, :agent, :name, :title,
  :input, :output, :cached, :now, :now, case when :shared then null else :now end
from runs r join tasks t on t.id = r.task_id where r.id = :run_id
on conflict do nothing returning id;

-- name: what_was_said
select said from kept where run_id = :run_id and epoch = :epoch;

-- name: note_exchange
insert into session_runs (run_id, epoch, session_id, at, said)
values (:run_id, :epoch, :session_id, :now, :said)
on conflict (run_id, epoch) do update set session_id = excluded.session_id;

-- name: list_sessions
select s.id, p.name as space, s.thread, t.name as task, s.agent, s.name, s.title, s.input, s.output,
  s.cached, (select count(distinct x.run_id) from session_runs x where x.session_id = s.id) as runs,
  s.started_at, s.used_at, s.archived_at
from sessions s join spaces p on p.id = s.space_id left join tasks t on t.id = s.task_id
where s.cleared_at is null and s.id < :before and (:space is null or p.name = :space)
  and (:thread is null or s.thread = :thread) and (:agent is null or s.agent = :agent)
  and (:archived is null or (s.archived_at is not null) = :archived)
order by s.id desc limit :most;

-- name: get_session
select s.id, p.name as space, s.thread, t.name as task, s.agent, s.name, s.title, s.input, s.output,
  s.cached, (select count(distinct x.run_id) from session_runs x where x.session_id = s.id) as runs,
  s.started_at, s.used_at, s.archived_at
from sessions s join spaces p on p.id = s.space_id left join tasks t on t.id = s.task_id
where s.cleared_at is null and s.id = :id;

-- name: session_history
select x.session_id, x.run_id, x.epoch, t.name as task, x.at, x.said, r.state, r.result, r.error
from session_runs x left join runs r on r.id = x.run_id left join tasks t on t.id = r.task_id
where x.session_id = :id and x.run_id < :before order by x.run_id desc, x.epoch desc limit :most;

-- name: search_sessions  in the newest of what was said, and how it was answered
select session_id, run_id, epoch, task, at, said, state, result, error from (
  select x.session_id, x.run_id, x.epoch, t.name as task, x.at, x.said, r.state,
    substr(r.result, 1, :longest) as result, r.error
  from sessions s join spaces p on p.id = s.space_id
  join session_runs x on x.session_id = s.id
  left join runs r on r.id = x.run_id left join tasks t on t.id = r.task_id
  where s.cleared_at is null and (:space is null or p.name = :space)
    and (:thread is null or s.thread = :thread)
  order by x.run_id desc, x.epoch desc limit :looked)
where said like :words escape '\' or result like :words escape '\'
order by run_id desc, epoch desc limit :most;

-- name: archive_session
update sessions set archived_at = coalesce(archived_at, :now), title = coalesce(:title, title)
where id = :id and cleared_at is null returning space_id;

-- name: clear_session
update sessions set archived_at = coalesce(archived_at, :now), cleared_at = :now, title = ''
where id = :id and cleared_at is null returning space_id;

-- name: forget_exchanges
delete from session_runs where session_id = :id;

-- name: archive_beside  the one that a session takes the place of
update sessions set archived_at = :now, title = coalesce(:title, title)
where archived_at is null and id <> :id and (space_id, thread, task_id, agent) in
  (select o.space_id, o.thread, o.task_id, o.agent from sessions o where o.id = :id);

-- name: unarchive_session
update sessions set archived_at = null where id = :id and cleared_at is null returning id;

-- name: lock_thread
select space_id from threads where key = :key;

-- name: thread_readers  runs that are queued to read what was said last in a thread
select distinct m.reader from (
  select n.reader from messages n
  where n.thread = :thread and n.state in ('pending', 'given') order by n.id desc limit :most) as m
join runs r on r.id = m.reader and r.state = 'queued'
order by m.reader;

-- name: count_pending  what somebody is there to read, with the bytes of its files
select count(*), coalesce(sum(length(m.body)), 0), coalesce(sum((
  select sum(f.size) from message_files f where f.message_id = m.id)), 0)
from messages m
where m.thread = :thread and m.state = 'pending' and exists (select 1 from runs r
  where r.id = m.reader and r.state in ('queued', 'running', 'waiting'));

-- name: insert_message
insert into messages (space_id, thread, sender, body, at, state, reader, follow_up)
values (:space_id, :thread, :sender, :body, :now, :state, :reader, :follow_up)
returning id;

-- name: insert_message_file
insert into message_files (message_id, position, name, mimetype, size, sha256, content)
values (:message_id, :position, :name, :mimetype, :size, :digest, :content);

-- name: empty_files  of what nobody will ever read
update message_files set content = null where message_id in (select value from json_each(:ids));

-- name: message_content
select content from message_files
where message_id = :id and position = :position;

-- name: pass_messages  the oldest that ask for nobody, where there are many
update messages set state = 'passed' where id in (
  select id from (
    select id, row_number() over (order by id desc) as nth,
      sum(size) over (order by id desc) as size, sum(bytes) over (order by id desc) as bytes
    from (select m.id, length(m.body) as size, coalesce((
        select sum(f.size) from message_files f where f.message_id = m.id), 0) as bytes
      from messages m
      where m.thread = :thread and m.state = 'pending' and m.reader is null) as w) as o
  where nth > :most or size > :characters or bytes > :bytes)
returning id;

-- name: turn_messages  to another reader, the newest ones, as many as it can be given
update messages set reader = :reader where id in (
  select id from (
    select id, sum(bytes) over (order by id desc) as bytes
    from (select m.id, coalesce((
        select sum(f.size) from message_files f where f.message_id = m.id), 0) as bytes
      from messages m where m.thread = :thread and m.state = 'pending'
      order by m.id desc limit :most) as w) as o
  where bytes <= :bytes);

-- name: thread_read_by  what a run was to read, and has not taken from anybody
select thread from messages where reader = :run_id and state in ('pending', 'given') limit 1;

-- name: hand_on_messages  to a run that does again what an earlier one was to do
update messages set state = 'pending', reader = :reader, run_id = null, epoch = null,
  read_at = null
where reader = :run_id and state in ('pending', 'given');

-- name: held_run
select space_id, thread from runs where id = :run_id and epoch = :epoch and state = 'running'
  and (:worker is null or holder = :worker);

-- name: give_messages
update messages set state = 'given', run_id = :run_id, epoch = coalesce(epoch, :epoch),
  read_at = coalesce(read_at, :now)
where reader = :run_id and state in ('pending', 'given');

-- name: thread_given_to  of what an attempt was given, and no earlier one
select thread from messages where reader = :run_id and run_id = :run_id
  and epoch = :epoch and state = 'given' limit 1;

-- name: give_back_messages  that an attempt was given which never began
update messages set state = 'pending', run_id = null, epoch = null, read_at = null
where reader = :run_id and run_id = :run_id and epoch = :epoch and state = 'given';

-- name: given_messages  to a run, as its input or while it worked
select m.id, m.thread, m.sender, m.body, m.at, m.state, m.reader, m.run_id, m.epoch, m.read_at,
  (select '' || json_group_array(json_array(f.name, f.mimetype, f.size, f.sha256)
    order by f.position) from message_files f where f.message_id = m.id) as files
from messages m
where m.run_id = :run_id and m.state in ('given', 'taken') order by m.id;

-- name: find_message
select id, thread, sender, body, at, state, reader, run_id, epoch, read_at from messages
where id = :id and thread = :thread;

-- name: take_messages  everything that was said up to one of them, but for what is left to the next run
update messages set state = 'taken', run_id = :run_id, epoch = :epoch, read_at = :now
where thread = :thread and state = 'pending' and id <= :upto
  and reader is not null and follow_up = 0
returning reader;

-- name: idle_readers  runs for which nothing is left to read
select r.id, r.epoch, r.task_id from runs r
where r.id in (select value from json_each(:ids)) and r.state = 'queued'
  and not exists (select 1 from messages m
    where m.reader = r.id and m.state in ('pending', 'given'));

-- name: pending_messages  for whoever goes on, and not in a box already
select m.id, m.thread, m.sender, m.body, m.at, m.state, m.reader, m.run_id, m.epoch, m.read_at,
  (select '' || json_group_array(json_array(f.name, f.mimetype, f.size, f.sha256)
    order by f.position) from message_files f where f.message_id = m.id) as files
from messages m
where m.thread = :thread and m.state = 'pending' and (m.box is null or m.box <> :box)
  and m.reader is not null and m.follow_up = 0
order by m.id limit :most;

-- name: box_message
update messages set box = :box, number = :number
where id = :id and state = 'pending';

-- name: boxed_message
select id from messages where box = :box and number = :number;

-- name: list_messages  what nobody is there to read any more is unread
select m.id, m.thread, m.sender, m.body, m.at,
  case when m.state = 'pending' and m.reader is not null and not exists (
    select 1 from runs r where r.id = m.reader and r.state in ('queued', 'running', 'waiting'))
  then 'unread' else m.state end as state, m.reader, m.run_id, m.epoch, m.read_at,
  (select '' || json_group_array(json_array(f.name, f.mimetype, f.size, f.sha256)
    order by f.position) from message_files f where f.message_id = m.id) as files
from messages m join spaces p on p.id = m.space_id
where m.thread = :thread and m.id < :before and (:space is null or p.name = :space)
order by m.id desc limit :most;

-- name: prune_exchanges
delete from session_runs where run_id in (select value from json_each(:ids));

-- name: prune_sessions  that nobody goes on in, and of which nothing is left
delete from sessions where id in (select s.id from sessions s
  where s.archived_at is not null and s.used_at < :before
    and not exists (select 1 from session_runs x where x.session_id = s.id)
  order by s.used_at limit :most);

-- name: prune_messages  with their files, so many bytes of them that nobody waits long
delete from messages where id in (
  select id from (
    select id, row_number() over (order by id) as nth, sum(bytes) over (order by id) as bytes
    from (select m.id, coalesce((
        select sum(f.size) from message_files f
        where f.message_id = m.id and f.content is not null), 0) as bytes
      from messages m
      where m.at < :before and (m.state <> 'pending' or not exists (select 1 from runs r
        where r.id = m.reader and r.state in ('queued', 'running', 'waiting')))
      order by m.id limit :most) as w) as o
  where nth = 1 or bytes <= :bytes);
