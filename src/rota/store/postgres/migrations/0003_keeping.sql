-- Attempts that outlive the daemon which started them.

-- A home is a folder of keepers; they end by themselves at `until`, and not before.
create table rota.homes (
  id text collate "C" primary key,
  host text not null,
  until bigint not null
);

create table rota.kept (
  run_id bigint primary key,
  epoch integer not null,
  home text collate "C" not null,
  nonce text not null,
  boot text not null,
  executor text not null,
  out_at bigint not null default 0 check (out_at >= 0),
  err_at bigint not null default 0 check (err_at >= 0),
  tries integer not null default 0 check (tries >= 0),
  until bigint,
  began bigint not null default 0,
  session text
);
create index kept_home on rota.kept (home, run_id);

-- Where a task's next run goes on: one conversation of its agent for each thread.
create table rota.sessions (
  task_id bigint not null references rota.tasks (id),
  thread text collate "C" not null,
  session text not null,
  primary key (task_id, thread)
);
-- How the processes of an attempt ended, as JSON, where it had any.
alter table rota.attempts add column ending text;

-- What was last heard of an attempt; overdue after `due_at`, and `silence` says why.
create table rota.beats (
  run_id bigint primary key,
  epoch integer not null,
  at bigint not null,
  due_at bigint not null,
  silence text,
  data text not null
);
