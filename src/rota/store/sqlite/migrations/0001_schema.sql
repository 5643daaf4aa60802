-- Instants are microseconds since 1970 in UTC. Booleans are 0 and 1.

-- Facts about the whole database: its incarnation, pauses, how far events are pruned.
create table metadata (
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

-- A conversation with people: its title, the task that answers, the word that triggers it, and
-- metadata of its provider.
create table threads (
  id integer primary key,
  space_id integer not null references spaces (id),
  key text not null unique check (length(key) between 1 and 256),
  title text not null default '' check (length(title) <= 200),
  task_id integer,
  trigger_word text check (length(trigger_word) between 1 and 64),
  metadata text not null default '{}',
  created_at integer not null
);
create index threads_space on threads (space_id, id);

-- `suppressed_count` counts successes that were sent to nobody, pruned runs included. `disabled_at`
-- is null where the time is not known.
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
  suppressed_count integer not null default 0,
  pruned_counts text not null default '{}',
  created_at integer not null,
  updated_at integer not null,
  deleted_at integer
);
create unique index tasks_name on tasks (space_id, name) where deleted_at is null;
create index tasks_after on tasks (after_task_id)
  where after_task_id is not null and deleted_at is null;
create index tasks_thread on tasks (thread) where thread is not null;

-- `space_id` is that of the task, so that the schedules of a space can be counted by an index.
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
  recorded_at integer not null
);
create index ledger_schedule on ledger (schedule_id, last_at);

-- `has_deferred` says whether a run may have deferred operations; it is read with the locked row,
-- so it cannot be stale.
create table runs (
  id integer primary key autoincrement,
  space_id integer not null,
  task_id integer not null,
  state text not null,
  queue_state text,
  pool text not null check (pool in ('foreground', 'background')),
  priority integer not null,
  available_at integer not null,
  route text not null,
  limit_group text not null,
  metered integer not null check (metered in (0, 1)),
  source text not null check (source in ('slot', 'catch_up', 'enqueue', 'manual', 'backfill', 'after')),
  epoch integer not null,
  cause text not null check (cause in ('first', 'retry', 'lost', 'resume', 'released')),
  retries integer not null default 0,
  losses integer not null default 0,
  created_at integer not null,
  started_at integer,
  finished_at integer,
  worker_id text,
  lane text,
  key text check (length(key) between 1 and 256),
  expires_at integer,
  cancel_requested_at integer,
  stuck integer not null default 0,
  question_count integer not null default 0,
  has_deferred integer not null default 0,
  schedule_id integer,
  slot_key text,
  slot_at integer,
  upstream_id integer,
  depth integer not null default 0,
  thread text,
  check_state text check (check_state in ('verified', 'unverified', 'contradicted')),
  suppressed text check (suppressed in ('by_gate', 'by_result')),
  error_code text,
  error text,
  result text,
  payload text not null,
  -- One expression, because it is evaluated at every transition: a queue state exactly while
  -- queued, a worker exactly while running, an end exactly when finished.
  check (case state
    when 'running' then worker_id is not null and queue_state is null and finished_at is null
    when 'succeeded' then finished_at is not null and worker_id is null and queue_state is null
    when 'queued' then coalesce(queue_state, '') in ('ready', 'delayed', 'held')
      and worker_id is null
      and finished_at is null
    when 'failed' then finished_at is not null and worker_id is null and queue_state is null
    when 'waiting' then worker_id is null and queue_state is null and finished_at is null
    when 'cancelled' then finished_at is not null and worker_id is null and queue_state is null
    when 'expired' then finished_at is not null and worker_id is null and queue_state is null
    else 0 end)
);
create index runs_ready on runs (pool, space_id, route, limit_group, metered, priority desc, available_at, id)
  where queue_state = 'ready';
create index runs_delayed on runs (available_at, id) where queue_state = 'delayed';
create index runs_running on runs (pool, space_id, metered, worker_id) where state = 'running';
create index runs_running_limit_group on runs (limit_group)
  where limit_group <> '' and state = 'running';
create unique index runs_lane_running on runs (space_id, lane)
  where lane is not null and state = 'running';
create unique index runs_lane_ready on runs (space_id, lane)
  where lane is not null and queue_state = 'ready';
create index runs_lane_queue on runs (space_id, lane, pool desc, priority desc, available_at, id)
  where lane is not null and queue_state in ('ready', 'held');
create index runs_lane_waiting on runs (space_id, lane)
  where lane is not null and state = 'waiting';
create index runs_expiry on runs (expires_at)
  where expires_at is not null and state in ('queued', 'waiting');
create unique index runs_key on runs (task_id, key) where key is not null;
create unique index runs_slot on runs (schedule_id, slot_key) where schedule_id is not null;
create index runs_task on runs (task_id, id);
create index runs_next on runs (task_id) where queue_state = 'delayed' and key is not null;
create index runs_over_budget on runs (space_id)
  where queue_state = 'delayed' and error_code = 'over_budget';
create index runs_thread on runs (thread) where thread is not null and finished_at is null;
create index runs_delayed_space on runs (space_id) where queue_state = 'delayed';
create index runs_has_deferred on runs (space_id) where has_deferred = 1 and finished_at is null;

-- `exit` is the exit record of the processes and `check_results` what the checks found, both as
-- JSON and null where there were none.
create table attempts (
  run_id integer not null,
  epoch integer not null,
  cause text not null,
  worker_id text,
  started_at integer not null,
  ended_at integer not null,
  outcome text not null,
  error text,
  exit text,
  check_results text,
  primary key (run_id, epoch)
) without rowid;

-- An approval is bound to the exact bytes of one action. `outcome` is the result of an approved
-- action that Rota performed, as JSON.
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

-- Limits on each run of a task, or on a task or a space in a day. Costs are in millionths of a
-- dollar.
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

-- One row for each attempt under a budget: what is reserved for it while it is open, and what it
-- has used. It counts for the day on which it started, in the zone of its space.
create table budget_usage (
  run_id integer not null,
  epoch integer not null,
  space_id integer not null,
  task_id integer not null,
  day text not null,
  is_open integer not null check (is_open in (0, 1)),
  started_at integer not null,
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
  stop_reason text,
  primary key (run_id, epoch)
) without rowid;
create index budget_usage_task on budget_usage (task_id, day);
create index budget_usage_space on budget_usage (space_id, day);
create index budget_usage_open on budget_usage (run_id) where is_open = 1;
create index budget_usage_left_over on budget_usage (run_id)
where is_open = 0 and (reserved_tokens <> 0 or reserved_cost <> 0 or reserved_turns <> 0
  or reserved_tools <> 0 or reserved_seconds <> 0);

-- An agent's own conversation state, for a thread or, with task_id, for a task without one. `name`
-- is the agent's id for it. The next run continues the one that is not archived.
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

-- The prompt of an attempt in a session; the result is in the row of its run.
create table session_runs (
  run_id integer not null,
  epoch integer not null,
  session_id integer not null references sessions (id),
  at integer not null,
  prompt_text text not null,
  primary key (run_id, epoch)
) without rowid;
create index session_runs_session on session_runs (session_id, run_id);

-- Text sent in a thread. `reader_run_id` is the run that is queued to read it, `run_id` and `epoch`
-- the attempt that has: as its input (assigned) or while it worked (acknowledged). A message that
-- asks for no answer has no reader run, until one is queued or newer messages replace it (skipped).
-- One with `follow_up` is never sent to a running attempt. `mailbox` is the launch that was offered
-- it last, and `mailbox_number` its number there.
create table messages (
  id integer primary key autoincrement,
  space_id integer not null references spaces (id),
  thread text not null,
  sender text not null,
  body text not null,
  at integer not null,
  state text not null check (state in ('pending', 'assigned', 'acknowledged', 'skipped')),
  follow_up integer not null default 0 check (follow_up in (0, 1)),
  reader_run_id integer,
  run_id integer,
  epoch integer,
  read_at integer,
  mailbox text,
  mailbox_number integer,
  check ((state in ('pending', 'skipped')) = (run_id is null))
);
create index messages_pending on messages (thread, id) where state = 'pending';
create index messages_thread on messages (thread, id);
create index messages_reader_run on messages (reader_run_id);
create index messages_mailbox on messages (mailbox, mailbox_number) where mailbox is not null;

-- Files sent with a message. The content of one that nobody will read is dropped. `content` is the
-- last column: listing files does not read its pages.
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

-- Writes that are applied, in the order of epoch and seq, only if the run succeeds. Those of an
-- attempt that fails are dropped; a question keeps them for the attempt that continues.
create table deferred_operations (
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
create unique index deferred_operations_name on deferred_operations (run_id, name)
  where name is not null;

-- Actions done once for a slot of a task, or for a run without a slot. `during_run` marks one that
-- was done at once, whatever became of the run.
create table effects (
  task_id integer not null,
  slot text not null,
  name text not null check (length(name) between 1 and 256),
  run_id integer not null,
  epoch integer not null,
  during_run integer not null check (during_run in (0, 1)),
  result text not null,
  at integer not null,
  primary key (task_id, slot, name)
) without rowid;
create index effects_run on effects (run_id);

-- `during_run` marks a message that was sent before its run ended. `question_epoch` is the epoch
-- whose question a notification announces: once that is answered, an unsent one is withdrawn.
-- `mail` holds the fields of an e-mail, and `attachments` artifacts of the run, as JSON.
create table deliveries (
  id integer primary key autoincrement,
  space_id integer not null,
  run_id integer,
  kind text not null default 'message' check (kind in ('message', 'result', 'notification')),
  during_run integer not null default 0 check (during_run in (0, 1)),
  question_epoch integer check (question_epoch is null or kind = 'notification'),
  channel text not null,
  target text not null,
  dedupe_key text not null unique,
  state text not null
    check (state in ('pending', 'sending', 'sent', 'unknown', 'dead', 'withdrawn')),
  tries integer not null default 0,
  worker_id text,
  available_at integer not null,
  created_at integer not null,
  sent_at integer,
  error text,
  body text not null,
  mail text,
  attachments text
);
create index deliveries_pending on deliveries (available_at, id) where state = 'pending';
create index deliveries_sending on deliveries (worker_id) where state = 'sending';
create index deliveries_run on deliveries (run_id);
create index deliveries_unsent on deliveries (state, space_id)
where state not in ('sent', 'withdrawn');

-- Where the notifications of a space go, from which priority up; results of tasks without a target
-- go to the default one.
create table notification_targets (
  space_id integer not null,
  channel text not null,
  target text not null,
  min_priority integer not null,
  is_default integer not null default 0 check (is_default in (0, 1)),
  updated_at integer not null,
  primary key (space_id, channel, target)
) without rowid;
create unique index notification_targets_default on notification_targets (space_id)
  where is_default = 1;

create table task_state (
  task_id integer not null references tasks (id),
  key text not null check (length(key) between 1 and 256),
  value text not null,
  updated_at integer not null,
  updated_by text not null,
  primary key (task_id, key)
) without rowid;

create table seen_items (
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

-- One row for every change requested through an interface, written in the transaction of the
-- change.
create table audit_log (
  id integer primary key autoincrement,
  at integer not null,
  caller text not null,
  space text not null,
  command text not null,
  subject text not null,
  key text check (length(key) between 1 and 256),
  digest text,
  status integer,
  answer text
);
create unique index audit_log_key on audit_log (caller, key) where key is not null;

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

-- A home is a folder of keepers; its keepers may be alive until `lease_until`.
create table homes (
  id text primary key,
  host text not null,
  lease_until integer not null
);

-- Attempts that outlive the daemon that started them. `gate_reply` is empty while the gate runs,
-- then its reply as JSON.
create table kept_attempts (
  run_id integer primary key,
  epoch integer not null,
  home text not null,
  nonce text not null,
  boot text not null,
  executor text not null,
  can_write_outside integer not null default 0,
  out_offset integer not null default 0 check (out_offset >= 0),
  err_offset integer not null default 0 check (err_offset >= 0),
  check_starts integer not null default 0,
  launches integer not null default 0 check (launches >= 0),
  relaunch_at integer,
  started_at integer not null default 0,
  agent text not null default '',
  session text,
  gate_reply text,
  prompt_text text not null default ''
);
create index kept_attempts_home on kept_attempts (home, run_id);

-- The newest sample of each running attempt; overdue after `due_at`, and `missed_reason` says why.
create table heartbeats (
  run_id integer primary key,
  epoch integer not null,
  at integer not null,
  due_at integer not null,
  missed_reason text,
  sample text not null
);

-- The load of machines: one row for each home and heartbeat, kept for a week.
create table machine_samples (
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
create index machine_samples_at on machine_samples (at);

create table limits (
  scope text not null check (scope in ('total', 'pool', 'space', 'group')),
  key text not null,
  cap integer,
  rate integer,
  period integer,
  bucket_level real,
  refilled_at integer,
  primary key (scope, key)
) without rowid;

-- What a claim reads besides runs: queue_heads say which combinations may have ready runs and whose
-- turn it is, claim_hints where to look again. Both are caches of runs.
create table queue_heads (
  id integer primary key,
  pool text not null,
  space_id integer not null,
  route text not null,
  limit_group text not null,
  metered integer not null,
  blocking_group text not null,
  is_open integer not null,
  turn integer not null,
  unique (pool, space_id, route, limit_group, metered)
);
create index queue_heads_turn on queue_heads (pool, blocking_group, turn, space_id)
  where is_open = 1;

create table claim_hints (
  id integer primary key,
  pool text not null,
  space_id integer not null,
  route text,
  limit_group text,
  metered integer,
  lane text
);
