-- name: lock_thread
select space_id from rota.threads where key = :key::text for update;

-- name: queued_reader_runs  queued runs that will read the newest messages of a thread
select distinct m.reader_run_id from (
  select n.reader_run_id from rota.messages n
  where n.thread = :thread::text and n.state in ('pending', 'assigned')
  order by n.id desc limit :most::int) as m
join rota.runs r on r.id = m.reader_run_id and r.state = 'queued'
order by m.reader_run_id;

-- name: count_pending  messages that a reader run will read, with the bytes of their files
select count(*), coalesce(sum(length(m.body)), 0), coalesce(sum((
  select sum(f.size) from rota.message_files f where f.message_id = m.id)), 0)::bigint
from rota.messages m
where m.thread = :thread::text and m.state = 'pending' and exists (select 1 from rota.runs r
  where r.id = m.reader_run_id and r.state in ('queued', 'running', 'waiting'));

-- name: insert_message
insert into rota.messages (space_id, thread, sender, body, at, state, reader_run_id, follow_up)
values (:space_id::bigint, :thread::text, :sender::text, :body::text, :now::bigint, :state::text,
  :reader_run_id::bigint, :follow_up::int)
returning id;

-- name: insert_message_file
insert into rota.message_files (message_id, position, name, mimetype, size, sha256, content)
values (:message_id::bigint, :position::int, :name::text, :mimetype::text, :size::int,
  :digest::text, :content::bytea);

-- name: drop_file_contents  of messages that nobody will read
update rota.message_files set content = null where message_id = any(:ids::bigint[]);

-- name: message_content
select content from rota.message_files
where message_id = :id::bigint and position = :position::int;

-- name: skip_messages  the oldest messages without a reader run, beyond a number or size
update rota.messages set state = 'skipped' where id in (
  select id from (
    select id, row_number() over (order by id desc) as nth,
      sum(size) over (order by id desc) as size, sum(bytes) over (order by id desc) as bytes
    from (select m.id, length(m.body) as size, coalesce((
        select sum(f.size) from rota.message_files f where f.message_id = m.id), 0) as bytes
      from rota.messages m
      where m.thread = :thread::text and m.state = 'pending' and m.reader_run_id is null) as w) as o
  where nth > :most::int or size > :characters::int or bytes > :bytes::bigint)
returning id;

-- name: assign_reader_run  to the newest messages that a run can be given
update rota.messages set reader_run_id = :reader_run_id::bigint where id in (
  select id from (
    select id, sum(bytes) over (order by id desc) as bytes
    from (select m.id, coalesce((
        select sum(f.size) from rota.message_files f where f.message_id = m.id), 0) as bytes
      from rota.messages m where m.thread = :thread::text and m.state = 'pending'
      order by m.id desc limit :most::int) as w) as o
  where bytes <= :bytes::bigint);

-- name: thread_of_reader_run  the thread that a run was queued to read
select thread from rota.messages where reader_run_id = :run_id::bigint
  and state in ('pending', 'assigned') limit 1;

-- name: reassign_messages  to the run that retries another one
update rota.messages set state = 'pending', reader_run_id = :reader_run_id::bigint, run_id = null,
  epoch = null,
  read_at = null
where reader_run_id = :run_id::bigint and state in ('pending', 'assigned');

-- name: thread_of_attempt
select space_id, thread from rota.runs where id = :run_id::bigint and epoch = :epoch::int
  and state = 'running'
  and (:worker::text is null or worker_id = :worker::text)
for share;

-- name: assign_messages
update rota.messages set state = 'assigned', run_id = :run_id::bigint,
  epoch = coalesce(epoch, :epoch::int),
  read_at = coalesce(read_at, :now::bigint)
where reader_run_id = :run_id::bigint and state in ('pending', 'assigned');

-- name: messages_of_run  given to a run as its input or while it worked
select m.id, m.thread, m.sender, m.body, m.at, m.state, m.reader_run_id, m.run_id, m.epoch,
  m.read_at,
  (select '' || json_agg(json_build_array(f.name, f.mimetype, f.size, f.sha256)
    order by f.position)::text from rota.message_files f where f.message_id = m.id) as files
from rota.messages m
where m.run_id = :run_id::bigint and m.state in ('assigned', 'acknowledged') order by m.id;

-- name: find_message
select id, thread, sender, body, at, state, reader_run_id, run_id, epoch, read_at from rota.messages
where id = :id::bigint and thread = :thread::text;

-- name: acknowledge_messages  all up to one of them, except follow-ups
update rota.messages set state = 'acknowledged', run_id = :run_id::bigint, epoch = :epoch::int,
  read_at = :now::bigint
where thread = :thread::text and state = 'pending' and id <= :upto::bigint
  and reader_run_id is not null and follow_up = 0
returning reader_run_id;

-- name: idle_reader_runs  queued reader runs without anything to read
select r.id, r.epoch, r.task_id from rota.runs r
where r.id = any(:ids::bigint[]) and r.state = 'queued'
  and not exists (select 1 from rota.messages m
    where m.reader_run_id = r.id and m.state in ('pending', 'assigned'));

-- name: pending_messages  for a running attempt, without those in its mailbox already
select m.id, m.thread, m.sender, m.body, m.at, m.state, m.reader_run_id, m.run_id, m.epoch,
  m.read_at,
  (select '' || json_agg(json_build_array(f.name, f.mimetype, f.size, f.sha256)
    order by f.position)::text from rota.message_files f where f.message_id = m.id) as files
from rota.messages m
where m.thread = :thread::text and m.state = 'pending' and (m.mailbox is null
  or m.mailbox <> :mailbox::text)
  and m.reader_run_id is not null and m.follow_up = 0
order by m.id limit :most::int;

-- name: offer_message
update rota.messages set mailbox = :mailbox::text, mailbox_number = :mailbox_number::int
where id = :id::bigint and state = 'pending';

-- name: offered_message
select id from rota.messages where mailbox = :mailbox::text
  and mailbox_number = :mailbox_number::int;

-- name: list_messages  a pending message whose reader run has ended is shown as unread
select m.id, m.thread, m.sender, m.body, m.at,
  case when m.state = 'pending' and m.reader_run_id is not null and not coalesce((
    select r.state in ('queued', 'running', 'waiting') from rota.runs r
    where r.id = m.reader_run_id), false)
  then 'unread' else m.state end as state, m.reader_run_id, m.run_id, m.epoch, m.read_at,
  (select '' || json_agg(json_build_array(f.name, f.mimetype, f.size, f.sha256)
    order by f.position)::text from rota.message_files f where f.message_id = m.id) as files
from rota.messages m join rota.spaces p on p.id = m.space_id
where m.thread = :thread::text and m.id < :before::bigint
  and (:space::text is null or p.name = :space::text)
order by m.id desc limit :most::int;

-- name: list_threads  of one space, or of all
select h.id, p.name as space, h.key, h.title, t.id as task_id, t.name as task, h.trigger_word,
  h.metadata, h.created_at, (select max(m.at) from rota.messages m where m.id =
    (select max(n.id) from rota.messages n where n.thread = h.key)) as last_message_at,
  (select count(*) from rota.messages m where m.thread = h.key and m.state = 'pending') as pending
from rota.threads h join rota.spaces p on p.id = h.space_id
left join rota.tasks t on t.id = (select a.id from rota.tasks a
  where a.space_id = h.space_id and a.deleted_at is null and a.enabled = 1 and a.kind = 'agent'
    and (a.id = h.task_id or (a.thread = h.key and (a.spec::jsonb ->> 'answers')::boolean))
  order by case when a.id = h.task_id then 0 else 1 end, a.id limit 1)
where (:space_id::bigint is null or h.space_id = :space_id::bigint)
  and h.id < :before::bigint
order by h.id desc limit :most::int;

-- name: get_thread
select h.id, p.name as space, h.key, h.title, t.id as task_id, t.name as task, h.trigger_word,
  h.metadata, h.created_at, (select max(m.at) from rota.messages m where m.id =
    (select max(n.id) from rota.messages n where n.thread = h.key)) as last_message_at,
  (select count(*) from rota.messages m where m.thread = h.key and m.state = 'pending') as pending
from rota.threads h join rota.spaces p on p.id = h.space_id
left join rota.tasks t on t.id = (select a.id from rota.tasks a
  where a.space_id = h.space_id and a.deleted_at is null and a.enabled = 1 and a.kind = 'agent'
    and (a.id = h.task_id or (a.thread = h.key and (a.spec::jsonb ->> 'answers')::boolean))
  order by case when a.id = h.task_id then 0 else 1 end, a.id limit 1)
where h.key = :key::text;

-- name: change_thread  the fields that are given
update rota.threads set
  title = case when jsonb_exists(:changes::text::jsonb,
  'title') then :changes::text::jsonb ->> 'title' else title end,
  task_id = case when jsonb_exists(:changes::text::jsonb,
  'task_id') then (:changes::text::jsonb ->> 'task_id')::bigint else task_id end,
  trigger_word = case when jsonb_exists(:changes::text::jsonb,
  'trigger') then :changes::text::jsonb ->> 'trigger' else trigger_word end,
  metadata = case when jsonb_exists(:changes::text::jsonb,
  'metadata') then :changes::text::jsonb ->> 'metadata' else metadata end
where key = :key::text;

-- name: open_runs_in  runs of a thread that are queued, running or waiting
select id, task_id, space_id, state, epoch, retries, losses, created_at, depth,
  cancel_requested_at is not null as cancelling
from rota.runs where thread = :thread::text and finished_at is null and space_id = :space_id::bigint
order by id limit :most::int;

-- name: find_thread
select space_id from rota.threads where key = :key::text;
