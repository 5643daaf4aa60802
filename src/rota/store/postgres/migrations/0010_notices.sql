-- Whom to tell of what needs a person, and messages that are withdrawn because nobody needs them.

-- Where a space wants its notices, from which priority up; results of tasks that name no place of
-- their own go to the one marked as usual.
create table rota.preferences (
  space_id bigint not null,
  channel text collate "C" not null,
  target text collate "C" not null,
  least integer not null,
  usual integer not null default 0 check (usual in (0, 1)),
  updated_at bigint not null,
  primary key (space_id, channel, target)
);
create unique index preferences_usual on rota.preferences (space_id) where usual = 1;

-- `asking` is the epoch whose question a notice tells: once it is closed, what was not sent yet is
-- withdrawn. `mail` is what a mail has beside its body.
alter table rota.deliveries drop constraint deliveries_state_check,
  add constraint deliveries_state_check
    check (state in ('pending', 'sending', 'sent', 'unknown', 'dead', 'withdrawn')),
  add column kind text not null default 'message' check (kind in ('message', 'result', 'notice')),
  add column asking integer,
  add column mail text,
  add constraint deliveries_asking_check check (asking is null or kind = 'notice');
drop index rota.deliveries_unsent;
create index deliveries_unsent on rota.deliveries (state, space_id)
where state not in ('sent', 'withdrawn');

-- Questions up to this one were asked when nobody was told.
insert into rota.facts (name, value)
select 'untold_questions', coalesce(max(id), 0)::text from rota.questions;
