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

-- name: given_messages  to a run, as its input or while it worked
select m.id, m.thread, m.sender, m.body, m.at, m.state, m.reader, m.run_id, m.epoch, m.read_at,
  (select '' || json_agg(json_build_array(f.name, f.mimetype, f.size, f.sha256)
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
  (select '' || json_agg(json_build_array(f.name, f.mimetype, f.size, f.sha256)
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
  (select '' || json_agg(json_build_array(f.name, f.mimetype, f.size, f.sha256)
    order by f.position)::text from rota.message_files f where f.message_id = m.id) as files
from rota.messages m join rota.spaces p on p.id = m.space_id
where m.thread = :thread::text and m.id < :before::bigint
  and (:space::text is null or p.name = :space::text)
order by m.id desc limit :most::int;

-- name: list_threads  of one space, or of all
select h.id, p.name as space, h.key, h.title, t.id as task_id, t.name as task, h.trigger_word,
  h.facts, h.created_at, (select max(m.at) from rota.messages m where m.id =
    (select max(n.id) from rota.messages n where n.thread = h.key)) as said_at,
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
  h.facts, h.created_at, (select max(m.at) from rota.messages m where m.id =
    (select max(n.id) from rota.messages n where n.thread = h.key)) as said_at,
  (select count(*) from rota.messages m where m.thread = h.key and m.state = 'pending') as pending
from rota.threads h join rota.spaces p on p.id = h.space_id
left join rota.tasks t on t.id = (select a.id from rota.tasks a
  where a.space_id = h.space_id and a.deleted_at is null and a.enabled = 1 and a.kind = 'agent'
    and (a.id = h.task_id or (a.thread = h.key and (a.spec::jsonb ->> 'answers')::boolean))
  order by case when a.id = h.task_id then 0 else 1 end, a.id limit 1)
where h.key = :key::text;

-- name: change_thread  what is said of it; the rest stays as it is
update rota.threads set
  title = case when jsonb_exists(:changes::text::jsonb, 'title') then :changes::text::jsonb ->> 'title' else title end,
  task_id = case when jsonb_exists(:changes::text::jsonb, 'task_id') then (:changes::text::jsonb ->> 'task_id')::bigint else task_id end,
  trigger_word = case when jsonb_exists(:changes::text::jsonb, 'trigger') then :changes::text::jsonb ->> 'trigger' else trigger_word end,
  facts = case when jsonb_exists(:changes::text::jsonb, 'facts') then :changes::text::jsonb ->> 'facts' else facts end
where key = :key::text;

-- name: open_runs_in  a conversation: what runs, what is queued, and what waits for an answer
select id, task_id, space_id, state, epoch, retries, losses, created_at, depth,
  cancel_at is not null as cancelling
from rota.runs where thread = :thread::text and finished_at is null and space_id = :space_id::bigint
order by id limit :most::int;

-- name: find_thread
select space_id from rota.threads where key = :key::text;
