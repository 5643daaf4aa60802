-- What Rota found out about runs, what tasks may use, and what attempts have used.

alter table runs add column checked text
  check (checked in ('verified', 'unverified', 'contradicted'));
alter table runs add column mark text check (mark in ('quiet', 'silent'));
create index runs_next on runs (task_id) where place = 'later' and key is not null;
create index runs_held_back on runs (space_id)
  where place = 'later' and error_code = 'over_budget';

-- What the checks of an attempt found, as JSON, where its task has any.
alter table attempts add column checks text;

-- How many runs of a task woke nobody, pruned ones included.
alter table tasks add column quiet integer not null default 0;

-- Empty while the gate of an attempt runs; then what it said, as JSON.
alter table kept add column gate text;

-- What each run of a task, or a task or a space in a day, may use. Money is in millionths of a dollar.
create table budgets (
  scope text not null check (scope in ('run', 'task', 'space')),
  key integer not null,
  tokens integer check (tokens > 0),
  cost integer check (cost > 0),
  turns integer check (turns > 0),
  tools integer check (tools > 0),
  seconds integer check (seconds > 0),
  set_at integer not null,
  set_by text not null,
  primary key (scope, key)
) without rowid;

-- One row for each attempt that may use something: what is set aside for it while it is open, and
-- what it has used. It counts for the day on which it began, in the zone of its space.
create table spending (
  run_id integer not null,
  epoch integer not null,
  space_id integer not null,
  task_id integer not null,
  day text not null,
  open integer not null check (open in (0, 1)),
  began integer not null,
  reserved_tokens integer not null default 0,
  reserved_cost integer not null default 0,
  reserved_turns integer not null default 0,
  reserved_tools integer not null default 0,
  reserved_seconds integer not null default 0,
  tokens integer not null default 0,
  cost integer not null default 0,
  turns integer not null default 0,
  tools integer not null default 0,
  seconds integer not null default 0,
  priced integer not null default 0 check (priced in (0, 1)),
  stopped text,
  primary key (run_id, epoch)
) without rowid;
create index spending_task on spending (task_id, day);
create index spending_space on spending (space_id, day);
create index spending_open on spending (run_id) where open = 1;
