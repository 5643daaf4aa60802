-- Threads that are registered: what they are called, who answers, the word that asks for it, and
-- what is known of them elsewhere.
alter table threads add column title text not null default '' check (length(title) <= 200);
alter table threads add column task_id integer;
alter table threads add column trigger_word text check (length(trigger_word) between 1 and 64);
alter table threads add column facts text not null default '{}';
create index threads_space on threads (space_id, id);

-- A message that asks for nobody has no reader, until one is asked for or newer ones take its place
-- (passed). One with follow_up is never told to a run that is going on.
alter table messages rename to messages_before;
create table messages (
  id integer primary key autoincrement,
  space_id integer not null references spaces (id),
  thread text not null,
  sender text not null,
  body text not null,
  at integer not null,
  state text not null check (state in ('pending', 'given', 'taken', 'passed')),
  reader integer,
  run_id integer,
  epoch integer,
  read_at integer,
  box text,
  number integer,
  follow_up integer not null default 0 check (follow_up in (0, 1)),
  check ((state in ('pending', 'passed')) = (run_id is null))
);
insert into messages (id, space_id, thread, sender, body, at, state, reader, run_id, epoch, read_at,
  box, number)
select id, space_id, thread, sender, body, at, state, reader, run_id, epoch, read_at, box, number
from messages_before;
delete from sqlite_sequence where name = 'messages';
insert into sqlite_sequence (name, seq)
select 'messages', seq from sqlite_sequence where name = 'messages_before';
drop table messages_before;
create index messages_pending on messages (thread, id) where state = 'pending';
create index messages_thread on messages (thread, id);
create index messages_reader on messages (reader);
create index messages_box on messages (box, number) where box is not null;

-- What is going on in a conversation, or is to.
create index runs_thread on runs (thread) where thread is not null and finished_at is null;

-- A pool that nobody has named: people who wait for an answer go before the rest.
update tasks set policy = json_remove(policy, '$.pool') where policy ->> 'pool' = 'background';
