-- Whom to tell of what needs a person, and messages that are withdrawn because nobody needs them.

-- Where a space wants its notices, from which priority up; results of tasks that name no place of
-- their own go to the one marked as usual.
create table preferences (
  space_id integer not null,
  channel text not null,
  target text not null,
  least integer not null,
  usual integer not null default 0 check (usual in (0, 1)),
  updated_at integer not null,
  primary key (space_id, channel, target)
) without rowid;
create unique index preferences_usual on preferences (space_id) where usual = 1;

-- Another state, which SQLite takes only into a table that is made anew. `asking` is the epoch whose
-- question a notice tells: once it is closed, what was not sent yet is withdrawn. `mail` is what a
-- mail has beside its body.
drop index deliveries_pending;
drop index deliveries_sending;
drop index deliveries_run;
drop index deliveries_unsent;
alter table deliveries rename to deliveries_before;
create table deliveries (
  id integer primary key autoincrement,
  space_id integer not null,
  run_id integer,
  channel text not null,
  target text not null,
  body text not null,
  dedupe_key text not null unique,
  state text not null
    check (state in ('pending', 'sending', 'sent', 'unknown', 'dead', 'withdrawn')),
  tries integer not null default 0,
  holder text,
  available_at integer not null,
  created_at integer not null,
  sent_at integer,
  error text,
  early integer not null default 0 check (early in (0, 1)),
  kind text not null default 'message' check (kind in ('message', 'result', 'notice')),
  asking integer check (asking is null or kind = 'notice'),
  mail text
);
insert into deliveries
select id, space_id, run_id, channel, target, body, dedupe_key, state, tries, holder, available_at,
  created_at, sent_at, error, early, 'message', null, null
from deliveries_before;
delete from sqlite_sequence where name = 'deliveries';
insert into sqlite_sequence (name, seq)
select 'deliveries', seq from sqlite_sequence where name = 'deliveries_before';
drop table deliveries_before;
create index deliveries_pending on deliveries (available_at, id) where state = 'pending';
create index deliveries_sending on deliveries (holder) where state = 'sending';
create index deliveries_run on deliveries (run_id);
create index deliveries_unsent on deliveries (state, space_id)
where state not in ('sent', 'withdrawn');

-- Questions up to this one were asked when nobody was told.
insert into facts (name, value) select 'untold_questions', coalesce(max(id), 0) from questions;
