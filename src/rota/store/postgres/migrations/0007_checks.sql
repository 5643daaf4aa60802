-- What Rota found out about runs, what tasks may use, and what attempts have used.

alter table rota.runs add column checked text
  check (checked in ('verified', 'unverified', 'contradicted'));
alter table rota.runs add column mark text check (mark in ('quiet', 'silent'));
create index runs_next on rota.runs (task_id) where place = 'later' and key is not null;
create index runs_held_back on rota.runs (space_id)
  where place = 'later' and error_code = 'over_budget';

-- What the checks of an attempt found, as JSON, where its task has any.
alter table rota.attempts add column checks text;

-- How many runs of a task woke nobody, pruned ones included.
alter table rota.tasks add column quiet integer not null default 0;

-- Empty while the gate of an attempt runs; then what it said, as JSON.
alter table rota.kept add column gate text;

-- What each run of a task, or a task or a space in a day, may use. Money is in millionths of a dollar.
create table rota.budgets (
  scope text not null check (scope in ('run', 'task', 'space')),
  key bigint not null,
  tokens bigint check (tokens > 0),
  cost bigint check (cost > 0),
  turns bigint check (turns > 0),
  tools bigint check (tools > 0),
  seconds bigint check (seconds > 0),
  set_at bigint not null,
  set_by text not null,
  primary key (scope, key)
);

-- One row for each attempt that may use something: what is set aside for it while it is open, and
-- what it has used. It counts for the day on which it began, in the zone of its space.
create table rota.spending (
  run_id bigint not null,
  epoch integer not null,
  space_id bigint not null,
  task_id bigint not null,
  day text not null,
  open integer not null check (open in (0, 1)),
  began bigint not null,
  reserved_tokens bigint not null default 0,
  reserved_cost bigint not null default 0,
  reserved_turns bigint not null default 0,
  reserved_tools bigint not null default 0,
  reserved_seconds bigint not null default 0,
  tokens bigint not null default 0,
  cost bigint not null default 0,
  turns bigint not null default 0,
  tools bigint not null default 0,
  seconds bigint not null default 0,
  priced integer not null default 0 check (priced in (0, 1)),
  stopped text,
  primary key (run_id, epoch)
);
create index spending_task on rota.spending (task_id, day);
create index spending_space on rota.spending (space_id, day);
create index spending_open on rota.spending (run_id) where open = 1;
