-- Who may come in, what was asked for, and what tasks remember.

create table keys (
  id integer primary key autoincrement,
  space_id integer not null references spaces (id),
  name text not null check (length(name) between 1 and 128),
  prefix text not null,
  digest text not null unique,
  role text not null check (role in ('main', 'member')),
  scopes text not null,
  created_at integer not null,
  created_by text not null,
  expires_at integer,
  used_at integer,
  revoked_at integer
);

-- One row for every change somebody asked for through a door, in the transaction of the change.
create table requests (
  id integer primary key autoincrement,
  at integer not null,
  caller text not null,
  space text not null,
  command text not null,
  about text not null,
  key text check (length(key) between 1 and 256),
  digest text,
  status integer,
  answer text
);
create unique index requests_key on requests (caller, key) where key is not null;

create table state (
  task_id integer not null references tasks (id),
  key text not null check (length(key) between 1 and 256),
  value text not null,
  updated_at integer not null,
  updated_by text not null,
  primary key (task_id, key)
) without rowid;

create table seen (
  task_id integer not null references tasks (id),
  provider text not null,
  item text not null check (length(item) between 1 and 512),
  data text not null,
  first_at integer not null,
  last_at integer not null,
  count integer not null check (count > 0),
  primary key (task_id, provider, item)
) without rowid;

alter table tasks add column thread text check (length(thread) between 1 and 256);
create index tasks_thread on tasks (thread) where thread is not null;

-- What is not delivered is counted; what is, is not.
create index deliveries_unsent on deliveries (state, space_id) where state <> 'sent';
