-- What attempts say while they run: operations for the case of success, effects that happen once,
-- and questions that bind one exact action.

-- Applied in the order of epoch and seq by the settlement that makes a success of the run; an attempt
-- that comes to nothing drops its own. A question carries them on to whoever succeeds with the answer.
create table rota.deferred (
  run_id bigint not null,
  epoch integer not null,
  seq integer not null,
  kind text collate "C" not null
    check (kind in ('state', 'forget', 'seen', 'message', 'subtask', 'question')),
  name text collate "C" check (length(name) between 1 and 256),
  data text not null,
  at bigint not null,
  primary key (run_id, epoch, seq)
);
create unique index deferred_name on rota.deferred (run_id, name) where name is not null;
-- Whether a run may have any; who settles it reads that with the row it locks, and so never too early.
alter table rota.runs add column deferring integer not null default 0;

-- Done once for a slot of a task, or for a run that stands for none. `early` says that it was done
-- at once, whatever became of the run.
create table rota.effects (
  task_id bigint not null,
  slot text collate "C" not null,
  name text collate "C" not null check (length(name) between 1 and 256),
  run_id bigint not null,
  epoch integer not null,
  early integer not null check (early in (0, 1)),
  result text not null,
  at bigint not null,
  primary key (task_id, slot, name)
);
create index effects_run on rota.effects (run_id);

-- A message that a running attempt sent is in the outbox before its run has ended.
alter table rota.deliveries add column early integer not null default 0 check (early in (0, 1));

alter table rota.questions drop constraint questions_kind_check;
alter table rota.questions add column fallback text, add column action text,
  add column digest text collate "C",
  add constraint questions_kind_check check (kind in ('ask', 'lost', 'approval')),
  add constraint questions_action_check
    check ((kind = 'approval') = (action is not null and digest is not null));
