-- Instants are microseconds since 1970 in UTC. Booleans are 0 and 1.

create table spaces (
  id integer primary key,
  name text not null unique check (length(name) between 1 and 64),
  role text not null check (role in ('main', 'member')),
  timezone text not null,
  created_at integer not null
);

create table threads (
  id integer primary key,
  space_id integer not null references spaces (id),
  key text not null unique check (length(key) between 1 and 256),
  created_at integer not null
);

create table tasks (
  id integer primary key autoincrement,
  space_id integer not null references spaces (id),
  name text not null check (length(name) between 1 and 128),
  title text not null,
  kind text not null check (kind in ('python', 'script', 'agent')),
  route text not null check (length(route) between 1 and 160),
  spec text not null,
  policy text not null,
  after_task_id integer references tasks (id),
  after_on text check (after_on in ('success', 'failure', 'any')),
  origin text not null,
  enabled integer not null check (enabled in (0, 1)),
  enabled_since integer not null,
  paused_until integer,
  disabled_reason text,
  failures integer not null default 0,
  pruned text not null default '{}',
  created_at integer not null,
  updated_at integer not null,
  deleted_at integer
);
create unique index tasks_name on tasks (space_id, name) where deleted_at is null;
create index tasks_after on tasks (after_task_id) where after_task_id is not null and deleted_at is null;

create table schedules (
  id integer primary key autoincrement,
  task_id integer not null references tasks (id),
  name text not null check (length(name) between 1 and 128),
  rule text not null,
  generation integer not null,
  version integer not null default 1,
  state text not null check (state in ('active', 'ended', 'quarantined')),
  note text,
  cursor integer not null,
  next_at integer,
  created_at integer not null,
  updated_at integer not null,
  deleted_at integer
);
create unique index schedules_name on schedules (task_id, name) where deleted_at is null;
create index schedules_due on schedules (next_at) where next_at is not null;

create table runs (
  id integer primary key autoincrement,
  space_id integer not null,
  task_id integer not null,
  state text not null,
  place text,
  pool text not null check (pool in ('foreground', 'background')),
  priority integer not null,
  available_at integer not null,
  route text not null,
  grp text not null,
  metered integer not null check (metered in (0, 1)),
  source text not null check (source in ('slot', 'catch_up', 'enqueue', 'manual', 'backfill', 'after')),
  epoch integer not null,
  cause text not null check (cause in ('first', 'retry', 'lost', 'resume', 'drained')),
  retries integer not null default 0,
  losses integer not null default 0,
  created_at integer not null,
  started_at integer,
  finished_at integer,
  holder text,
  lane text,
  key text check (length(key) between 1 and 256),
  expires_at integer,
  cancel_at integer,
  stuck integer not null default 0,
  asked integer not null default 0,
  schedule_id integer,
  slot_key text,
  slot_at integer,
  upstream_id integer,
  depth integer not null default 0,
  thread text,
  error_code text,
  error text,
  result text,
  payload text not null,
  -- One expression, because it is evaluated at every move: a place exactly while queued, a holder
  -- exactly while running, an end exactly when finished.
  check (case state
    when 'running' then holder is not null and place is null and finished_at is null
    when 'succeeded' then finished_at is not null and holder is null and place is null
    when 'queued' then coalesce(place, '') in ('ready', 'later', 'held') and holder is null
      and finished_at is null
    when 'failed' then finished_at is not null and holder is null and place is null
    when 'waiting' then holder is null and place is null and finished_at is null
    when 'cancelled' then finished_at is not null and holder is null and place is null
    when 'expired' then finished_at is not null and holder is null and place is null
    else 0 end)
);
create index runs_ready on runs (pool, space_id, route, grp, metered, priority desc, available_at, id)
  where place = 'ready';
create index runs_later on runs (available_at, id) where place = 'later';
create index runs_running on runs (pool, space_id, metered, holder) where state = 'running';
create index runs_running_group on runs (grp) where grp <> '' and state = 'running';
create unique index runs_lane_running on runs (space_id, lane)
  where lane is not null and state = 'running';
create unique index runs_lane_ready on runs (space_id, lane)
  where lane is not null and place = 'ready';
create index runs_lane_queue on runs (space_id, lane, pool desc, priority desc, available_at, id)
  where lane is not null and place in ('ready', 'held');
create index runs_lane_waiting on runs (space_id, lane) where lane is not null and state = 'waiting';
create index runs_expiry on runs (expires_at)
  where expires_at is not null and state in ('queued', 'waiting');
create unique index runs_key on runs (task_id, key) where key is not null;
create unique index runs_slot on runs (schedule_id, slot_key) where schedule_id is not null;
create index runs_task on runs (task_id, id);

create table attempts (
  run_id integer not null,
  number integer not null,
  cause text not null,
  worker text,
  started_at integer not null,
  ended_at integer not null,
  outcome text not null,
  error text,
  primary key (run_id, number)
) without rowid;

create table ledger (
  id integer primary key,
  schedule_id integer not null,
  reason text not null check (reason in
    ('disabled', 'paused', 'missed', 'too_late', 'coalesced', 'catch_up_cap', 'overlap', 'restored')),
  first_key text not null,
  last_key text not null,
  first_at integer not null,
  last_at integer not null,
  count integer not null check (count > 0),
  noted_at integer not null
);
create index ledger_schedule on ledger (schedule_id, last_at);

create table questions (
  id integer primary key autoincrement,
  run_id integer not null,
  epoch integer not null,
  kind text not null check (kind in ('ask', 'lost')),
  question text not null,
  context text not null,
  options text not null,
  asked_at integer not null,
  expires_at integer not null,
  answered_at integer,
  answer text,
  answered_by text
);
create index questions_run on questions (run_id, id);

create table deliveries (
  id integer primary key autoincrement,
  space_id integer not null,
  run_id integer,
  channel text not null,
  target text not null,
  body text not null,
  dedupe_key text not null unique,
  state text not null check (state in ('pending', 'sending', 'sent', 'unknown', 'dead')),
  tries integer not null default 0,
  holder text,
  available_at integer not null,
  created_at integer not null,
  sent_at integer,
  error text
);
create index deliveries_pending on deliveries (available_at, id) where state = 'pending';
create index deliveries_sending on deliveries (holder) where state = 'sending';
create index deliveries_run on deliveries (run_id);

create table events (
  id integer primary key autoincrement,
  at integer not null,
  name text not null,
  space_id integer,
  task_id integer,
  run_id integer,
  data text not null
);

create index events_run on events (run_id) where run_id is not null;

create table workers (
  id text primary key,
  home text not null,
  host text not null,
  pid integer not null,
  roles text not null,
  routes text not null,
  slots integer not null,
  started_at integer not null,
  seen_at integer not null,
  lease_until integer not null,
  fenced integer not null default 0 check (fenced in (0, 1))
) without rowid;

-- What claiming reads beside runs. heads says which combinations may have ready runs and whose
-- turn it is; pings say where to look again. Both are caches: runs alone is the truth.
create table heads (
  id integer primary key,
  pool text not null,
  space_id integer not null,
  route text not null,
  grp text not null,
  metered integer not null,
  gate text not null,
  open integer not null,
  turn integer not null,
  unique (pool, space_id, route, grp, metered)
);
create index heads_turn on heads (pool, gate, turn, space_id) where open = 1;

create table pings (
  id integer primary key,
  pool text not null,
  space_id integer not null,
  route text,
  grp text,
  metered integer,
  lane text
);

create table limits (
  scope text not null check (scope in ('total', 'pool', 'space', 'group')),
  key text not null,
  cap integer,
  rate integer,
  period integer,
  tokens real,
  refilled_at integer,
  primary key (scope, key)
) without rowid;

create table facts (
  name text primary key,
  value text not null
) without rowid;
