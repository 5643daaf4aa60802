-- Instants are microseconds since 1970 in UTC. Booleans are 0 and 1.

-- What is true of the whole database: its incarnation, pauses, how far events are pruned.
create table facts (
  name text primary key,
  value text not null
) without rowid;

create table spaces (
  id integer primary key,
  name text not null unique check (length(name) between 1 and 64),
  role text not null check (role in ('main', 'member')),
  timezone text not null,
  created_at integer not null
);

-- A conversation with people: what it is called, who answers, the word that asks for it, and what is
-- known of it elsewhere.
create table threads (
  id integer primary key,
  space_id integer not null references spaces (id),
  key text not null unique check (length(key) between 1 and 256),
  title text not null default '' check (length(title) <= 200),
  task_id integer,
  trigger_word text check (length(trigger_word) between 1 and 64),
  facts text not null default '{}',
  created_at integer not null
);
create index threads_space on threads (space_id, id);

-- `quiet` counts the runs that woke nobody, pruned ones included. `disabled_at` is null where nobody
-- has noted since when.
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
  thread text check (length(thread) between 1 and 256),
  origin text not null,
  enabled integer not null check (enabled in (0, 1)),
  enabled_since integer not null,
  paused_until integer,
  disabled_reason text,
  disabled_at integer,
  failures integer not null default 0,
  quiet integer not null default 0,
  pruned text not null default '{}',
  created_at integer not null,
  updated_at integer not null,
  deleted_at integer
);
create unique index tasks_name on tasks (space_id, name) where deleted_at is null;
create index tasks_after on tasks (after_task_id) where after_task_id is not null and deleted_at is null;
create index tasks_thread on tasks (thread) where thread is not null;

-- `space_id` is the task's: what a space has of schedules that go on is counted without looking at
-- what others have.
create table schedules (
  id integer primary key autoincrement,
  task_id integer not null references tasks (id),
  space_id integer not null default 0,
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
create index schedules_space on schedules (space_id) where next_at is not null;

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

-- `deferring` says whether a run may have deferred operations; who settles it reads that with the row
-- it locks, and so never too early.
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
  deferring integer not null default 0,
  schedule_id integer,
  slot_key text,
  slot_at integer,
  upstream_id integer,
  depth integer not null default 0,
  thread text,
  checked text check (checked in ('verified', 'unverified', 'contradicted')),
  mark text check (mark in ('quiet', 'silent')),
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
create index runs_next on runs (task_id) where place = 'later' and key is not null;
create index runs_held_back on runs (space_id)
  where place = 'later' and error_code = 'over_budget';
create index runs_thread on runs (thread) where thread is not null and finished_at is null;
create index runs_later_space on runs (space_id) where place = 'later';
create index runs_deferring on runs (space_id) where deferring = 1 and finished_at is null;

-- `ending` is how the processes of an attempt ended, as JSON, where it had any; `checks` is what its
-- checks found, as JSON, where its task has any.
create table attempts (
  run_id integer not null,
  number integer not null,
  cause text not null,
  worker text,
  started_at integer not null,
  ended_at integer not null,
  outcome text not null,
  error text,
  ending text,
  checks text,
  primary key (run_id, number)
) without rowid;

-- An approval binds one exact action. `outcome` is what came of an action that a person approved and
-- Rota did itself, as JSON.
create table questions (
  id integer primary key autoincrement,
  run_id integer not null,
  epoch integer not null,
  kind text not null check (kind in ('ask', 'lost', 'approval')),
  question text not null,
  context text not null,
  options text not null,
  action text,
  digest text,
  fallback text,
  asked_at integer not null,
  expires_at integer not null,
  answered_at integer,
  answer text,
  answered_by text,
  outcome text check (outcome is null or answer = 'approve'),
  check ((kind = 'approval') = (action is not null and digest is not null))
);
create index questions_run on questions (run_id, id);

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
create index spending_left_over on spending (run_id)
where open = 0 and (reserved_tokens <> 0 or reserved_cost <> 0 or reserved_turns <> 0
  or reserved_tools <> 0 or reserved_seconds <> 0);

-- An agent's conversation: a thread's, or with task_id a task's that has no thread. `name` is what
-- the agent calls it. The one that is not archived is what the next run goes on in.
create table sessions (
  id integer primary key autoincrement,
  space_id integer not null references spaces (id),
  thread text not null,
  task_id integer not null,
  agent text not null,
  name text not null,
  title text not null,
  input integer not null default 0,
  output integer not null default 0,
  cached integer not null default 0,
  started_at integer not null,
  used_at integer not null,
  archived_at integer,
  cleared_at integer check (cleared_at is null or archived_at is not null)
);
create unique index sessions_current on sessions (space_id, thread, task_id, agent)
  where archived_at is null;
create unique index sessions_name on sessions (space_id, thread, task_id, agent, name);
create index sessions_archived on sessions (used_at) where archived_at is not null;

-- What an attempt said to its agent in a session; what it came to stands with its run.
create table session_runs (
  run_id integer not null,
  epoch integer not null,
  session_id integer not null references sessions (id),
  at integer not null,
  said text not null,
  primary key (run_id, epoch)
) without rowid;
create index session_runs_session on session_runs (session_id, run_id);

-- What people say in a thread. `reader` is the run that is queued to read it, `run_id` and `epoch`
-- the attempt that has: as its input (given), or while it was going on (taken). A message that asks
-- for nobody has no reader, until one is asked for or newer ones take its place (passed). One with
-- `follow_up` is never told to a run that is going on. `box` is the try that was offered it last, and
-- `number` what it is called there.
create table messages (
  id integer primary key autoincrement,
  space_id integer not null references spaces (id),
  thread text not null,
  sender text not null,
  body text not null,
  at integer not null,
  state text not null check (state in ('pending', 'given', 'taken', 'passed')),
  follow_up integer not null default 0 check (follow_up in (0, 1)),
  reader integer,
  run_id integer,
  epoch integer,
  read_at integer,
  box text,
  number integer,
  check ((state in ('pending', 'passed')) = (run_id is null))
);
create index messages_pending on messages (thread, id) where state = 'pending';
create index messages_thread on messages (thread, id);
create index messages_reader on messages (reader);
create index messages_box on messages (box, number) where box is not null;

-- The files that people send with a message, gone with it. One that nobody will ever read has no
-- content any more. The content stands last: whoever lists files reads no page of it.
create table message_files (
  id integer primary key,
  message_id integer not null references messages (id) on delete cascade,
  position integer not null,
  name text not null,
  mimetype text not null,
  size integer not null,
  sha256 text not null check (length(sha256) = 64),
  content blob check (content is null or typeof(content) = 'blob' and length(content) = size),
  unique (message_id, position)
);

-- What a running attempt has asked for in case of success. Applied in the order of epoch and seq by
-- the settlement that makes a success of the run; an attempt that comes to nothing drops its own. A
-- question carries them on to whoever succeeds with the answer.
create table deferred (
  run_id integer not null,
  epoch integer not null,
  seq integer not null,
  kind text not null
    check (kind in ('state', 'forget', 'seen', 'message', 'subtask', 'question')),
  name text check (length(name) between 1 and 256),
  data text not null,
  at integer not null,
  primary key (run_id, epoch, seq)
) without rowid;
create unique index deferred_name on deferred (run_id, name) where name is not null;

-- Done once for a slot of a task, or for a run that stands for none. `early` says that it was done
-- at once, whatever became of the run.
create table effects (
  task_id integer not null,
  slot text not null,
  name text not null check (length(name) between 1 and 256),
  run_id integer not null,
  epoch integer not null,
  early integer not null check (early in (0, 1)),
  result text not null,
  at integer not null,
  primary key (task_id, slot, name)
) without rowid;
create index effects_run on effects (run_id);

-- `early` says that a running attempt sent it, before its run had ended. `asking` is the epoch whose
-- question a notice tells: once it is closed, what was not sent yet is withdrawn. `mail` is what a
-- mail has beside its body, and `files` are artifacts of its run, as JSON, with sizes and hashes.
create table deliveries (
  id integer primary key autoincrement,
  space_id integer not null,
  run_id integer,
  kind text not null default 'message' check (kind in ('message', 'result', 'notice')),
  early integer not null default 0 check (early in (0, 1)),
  asking integer check (asking is null or kind = 'notice'),
  channel text not null,
  target text not null,
  dedupe_key text not null unique,
  state text not null
    check (state in ('pending', 'sending', 'sent', 'unknown', 'dead', 'withdrawn')),
  tries integer not null default 0,
  holder text,
  available_at integer not null,
  created_at integer not null,
  sent_at integer,
  error text,
  body text not null,
  mail text,
  files text
);
create index deliveries_pending on deliveries (available_at, id) where state = 'pending';
create index deliveries_sending on deliveries (holder) where state = 'sending';
create index deliveries_run on deliveries (run_id);
create index deliveries_unsent on deliveries (state, space_id)
where state not in ('sent', 'withdrawn');

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

-- A home is a folder of keepers; they end by themselves at `until`, and not before.
create table homes (
  id text primary key,
  host text not null,
  until integer not null
);

-- Attempts that outlive the daemon which started them: which agent one was started with, what it was
-- told first, how often it was begun to look at its checks, and whether it could write to somewhere
-- outside, through the gateway. `gate` is empty while the gate runs; then what it said, as JSON.
create table kept (
  run_id integer primary key,
  epoch integer not null,
  home text not null,
  nonce text not null,
  boot text not null,
  executor text not null,
  writes integer not null default 0,
  out_at integer not null default 0 check (out_at >= 0),
  err_at integer not null default 0 check (err_at >= 0),
  looks integer not null default 0,
  tries integer not null default 0 check (tries >= 0),
  until integer,
  began integer not null default 0,
  agent text not null default '',
  session text,
  gate text,
  said text not null default ''
);
create index kept_home on kept (home, run_id);

-- What was last heard of an attempt; overdue after `due_at`, and `silence` says why.
create table beats (
  run_id integer primary key,
  epoch integer not null,
  at integer not null,
  due_at integer not null,
  silence text,
  data text not null
);

-- How machines were doing: one row for each home and heartbeat, kept for a week.
create table readings (
  home text not null,
  at integer not null,
  host text not null,
  running integer not null,
  agents integer not null,
  panes integer not null,
  spaces integer not null,
  cpu_percent real,
  memory_bytes integer,
  memory_total integer,
  primary key (home, at)
) without rowid;
create index readings_at on readings (at);

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

-- What claiming reads beside runs. heads says which combinations may have ready runs and whose turn
-- it is; pings say where to look again. Both are caches: runs alone is the truth.
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
