-- What attempts say while they run: operations for the case of success, effects that happen once,
-- and questions that bind one exact action.

-- Applied in the order of epoch and seq by the settlement that makes a success of the run; an attempt
-- that comes to nothing drops its own. A question carries them on to whoever succeeds with the answer.
create table deferred (
  run_id integer not null,
  epoch integer not null,
  seq integer not null,
  kind text not null
    check (kind in ('state', 'forget', 'seen', 'message', 'subtask', 'question')),
  name text check (length(name) between 1 and 256),
  data text not null,
  at integer not null,
  primary key (run_id, epoch, seq)
) without rowid;
create unique index deferred_name on deferred (run_id, name) where name is not null;
-- Whether a run may have any; who settles it reads that with the row it locks, and so never too early.
alter table runs add column deferring integer not null default 0;

-- Done once for a slot of a task, or for a run that stands for none. `early` says that it was done
-- at once, whatever became of the run.
create table effects (
  task_id integer not null,
  slot text not null,
  name text not null check (length(name) between 1 and 256),
  run_id integer not null,
  epoch integer not null,
  early integer not null check (early in (0, 1)),
  result text not null,
  at integer not null,
  primary key (task_id, slot, name)
) without rowid;
create index effects_run on effects (run_id);

-- A message that a running attempt sent is in the outbox before its run has ended.
alter table deliveries add column early integer not null default 0 check (early in (0, 1));

-- Another kind of question, which SQLite takes only into a table that is made anew.
drop index questions_run;
alter table questions rename to questions_before;
create table questions (
  id integer primary key autoincrement,
  run_id integer not null,
  epoch integer not null,
  kind text not null check (kind in ('ask', 'lost', 'approval')),
  question text not null,
  context text not null,
  options text not null,
  asked_at integer not null,
  expires_at integer not null,
  answered_at integer,
  answer text,
  answered_by text,
  fallback text,
  action text,
  digest text,
  check ((kind = 'approval') = (action is not null and digest is not null))
);
insert into questions
select id, run_id, epoch, kind, question, context, options, asked_at, expires_at, answered_at, answer,
  answered_by, null, null, null
from questions_before;
delete from sqlite_sequence where name = 'questions';
insert into sqlite_sequence (name, seq)
select 'questions', seq from sqlite_sequence where name = 'questions_before';
drop table questions_before;
create index questions_run on questions (run_id, id);
