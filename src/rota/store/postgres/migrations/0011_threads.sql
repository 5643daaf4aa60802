-- Threads that are registered: what they are called, who answers, the word that asks for it, and
-- what is known of them elsewhere.
alter table rota.threads
  add column title text not null default '' check (length(title) <= 200),
  add column task_id bigint,
  add column trigger_word text check (length(trigger_word) between 1 and 64),
  add column facts text not null default '{}';
create index threads_space on rota.threads (space_id, id);

-- A message that asks for nobody has no reader, until one is asked for or newer ones take its place
-- (passed). One with follow_up is never told to a run that is going on.
alter table rota.messages
  alter column reader drop not null,
  drop constraint messages_state_check,
  drop constraint messages_check,
  add column follow_up integer not null default 0 check (follow_up in (0, 1)),
  add constraint messages_state_check check (state in ('pending', 'given', 'taken', 'passed')),
  add constraint messages_check check ((state in ('pending', 'passed')) = (run_id is null));

-- What is going on in a conversation, or is to.
create index runs_thread on rota.runs (thread) where thread is not null and finished_at is null;

-- A pool that nobody has named: people who wait for an answer go before the rest.
update rota.tasks set policy = (policy::jsonb - 'pool')::text
where policy::jsonb ->> 'pool' = 'background';
