-- Attempts that outlive the daemon which started them.

-- A home is a folder of keepers; they end by themselves at `until`, and not before.
create table homes (
  id text primary key,
  host text not null,
  until integer not null
);

create table kept (
  run_id integer primary key,
  epoch integer not null,
  home text not null,
  nonce text not null,
  boot text not null,
  executor text not null,
  out_at integer not null default 0 check (out_at >= 0),
  err_at integer not null default 0 check (err_at >= 0),
  tries integer not null default 0 check (tries >= 0),
  until integer,
  began integer not null default 0,
  session text
);
create index kept_home on kept (home, run_id);

-- Where a task's next run goes on: one conversation of its agent for each thread.
create table sessions (
  task_id integer not null references tasks (id),
  thread text not null,
  session text not null,
  primary key (task_id, thread)
) without rowid;
-- How the processes of an attempt ended, as JSON, where it had any.
alter table attempts add column ending text;

-- What was last heard of an attempt; overdue after `due_at`, and `silence` says why.
create table beats (
  run_id integer primary key,
  epoch integer not null,
  at integer not null,
  due_at integer not null,
  silence text,
  data text not null
);
