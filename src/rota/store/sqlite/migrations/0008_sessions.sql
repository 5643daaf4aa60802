-- Sessions as things of their own, what was said in them, and messages that wait to be read.

-- Which agent an attempt was started with, and what it was told first.
alter table kept add column agent text not null default '';
alter table kept add column said text not null default '';

alter table sessions rename to sessions_before;

-- An agent's conversation: a thread's, or with task_id a task's that has no thread. `name` is what
-- the agent calls it. The one that is not archived is what the next run goes on in.
create table sessions (
  id integer primary key autoincrement,
  space_id integer not null references spaces (id),
  thread text not null,
  task_id integer not null,
  agent text not null,
  name text not null,
  title text not null,
  input integer not null default 0,
  output integer not null default 0,
  cached integer not null default 0,
  started_at integer not null,
  used_at integer not null,
  archived_at integer,
  cleared_at integer check (cleared_at is null or archived_at is not null)
);

insert into sessions (space_id, thread, task_id, agent, name, title, input, output, cached,
  started_at, used_at, archived_at)
select t.space_id, coalesce(nullif(b.thread, ''), t.thread, ''),
  case when coalesce(nullif(b.thread, ''), t.thread) is null then t.id else 0 end,
  b.session ->> 'agent', b.session ->> 'id', t.title, coalesce(b.session ->> 'input', 0),
  coalesce(b.session ->> 'output', 0), coalesce(b.session ->> 'cached', 0), t.created_at,
  t.updated_at, t.updated_at
from sessions_before b join tasks t on t.id = b.task_id order by t.updated_at;
update sessions set archived_at = null
where id in (select max(id) from sessions group by space_id, thread, task_id, agent);
delete from sessions where id not in
  (select max(id) from sessions group by space_id, thread, task_id, agent, name);
drop table sessions_before;

create unique index sessions_current on sessions (space_id, thread, task_id, agent)
  where archived_at is null;
create unique index sessions_name on sessions (space_id, thread, task_id, agent, name);
create index sessions_archived on sessions (used_at) where archived_at is not null;

-- What an attempt said to its agent in a session; what it came to stands with its run.
create table session_runs (
  run_id integer not null,
  epoch integer not null,
  session_id integer not null references sessions (id),
  at integer not null,
  said text not null,
  primary key (run_id, epoch)
) without rowid;
create index session_runs_session on session_runs (session_id, run_id);

-- What people say in a thread. `reader` is the run that is queued to read it, `run_id` and `epoch`
-- the attempt that has: as its input (given), or while it was going on (taken). `box` is the try
-- that was offered it last, and `number` what it is called there.
create table messages (
  id integer primary key autoincrement,
  space_id integer not null references spaces (id),
  thread text not null,
  sender text not null,
  body text not null,
  at integer not null,
  state text not null check (state in ('pending', 'given', 'taken')),
  reader integer not null,
  run_id integer,
  epoch integer,
  read_at integer,
  box text,
  number integer,
  check ((state = 'pending') = (run_id is null))
);
create index messages_pending on messages (thread, id) where state = 'pending';
create index messages_thread on messages (thread, id);
create index messages_reader on messages (reader);
create index messages_box on messages (box, number) where box is not null;

update tasks set spec = json_remove(json_set(spec, '$.context',
  case when spec ->> 'keep_session' then 'group' else 'isolated' end), '$.keep_session')
where json_type(spec, '$.keep_session') is not null;
