-- name: examine_tasks
select t.id, t.space_id, t.policy, t.after_task_id, u.space_id as after_space_id, t.after_on, t.enabled,
  t.updated_at, t.deleted_at
from rota.tasks t left join rota.tasks u on u.id = t.after_task_id
where t.id > :after::bigint order by t.id limit :most::int;

-- name: examine_runs  a run's place among ledger rows is the one that ends next after its slot
select r.id, r.space_id, r.task_id, r.state, r.source, r.epoch, r.retries, r.losses, r.created_at,
  r.started_at, r.finished_at, r.expires_at, r.schedule_id, r.slot_key, r.slot_at, r.upstream_id, r.key,
  r.depth, r.error_code, length(r.error) as error_length, octet_length(r.result) as result_bytes,
  octet_length(r.payload) as payload_bytes,
  (select u.state from rota.runs u where u.id = r.upstream_id) as upstream_state,
  (select s.task_id from rota.schedules s where s.id = r.schedule_id) as schedule_task_id,
  coalesce((select l.first_at from rota.ledger l
    where l.schedule_id = r.schedule_id and l.last_at >= r.slot_at order by l.last_at limit 1)
    <= r.slot_at, false)::int as in_ledger,
  (select count(*) from rota.deliveries d where d.run_id = r.id and d.early = 0
    and d.kind <> 'notice') as deliveries,
  (coalesce(r.place, '') = 'held' and r.lane is null)::int as astray,
  (select count(*) from rota.deferred d where d.run_id = r.id) as deferred,
  (select count(*) from rota.deferred d where d.run_id = r.id and (d.epoch > r.epoch
    or d.kind = 'question' and (r.state <> 'running' or d.epoch <> r.epoch))) as strays,
  (select count(*) from rota.effects e where e.run_id = r.id and e.early = 0) as applied,
  (select count(*) from rota.deliveries d where d.run_id = r.id and d.early = 0
    and d.kind = 'notice') as notices
from rota.runs r where r.id > :after::bigint order by r.id limit :most::int;

-- name: attempts_between
select run_id, number, outcome from rota.attempts
where run_id between :first::bigint and :last::bigint order by run_id, number;

-- name: moves_between  the events that move a run from state to state
select run_id, name, at, space_id, task_id, data::jsonb ->> 'state' as state from rota.events
where run_id is not null and run_id between :first::bigint and :last::bigint
  and name in ('run.settled', 'run.retried', 'run.lost', 'run.drained', 'run.held_back',
    'run.asked', 'run.answered')
order by run_id, id;

-- name: questions_between
select run_id, epoch, kind, answered_at, answer, action, digest, outcome from rota.questions
where run_id between :first::bigint and :last::bigint order by run_id, id;

-- name: unfollowed_between  finished runs, and the tasks declared to follow that have no run after them
select r.id, t.id as task_id
from rota.runs r join rota.tasks t on t.after_task_id = r.task_id and t.after_task_id is not null
  and t.deleted_at is null
where r.id between :first::bigint and :last::bigint and r.finished_at is not null
  and not exists (select 1 from rota.runs f
    where f.task_id = t.id and f.key = 'after:' || r.id and f.key is not null);

-- name: unnoticed_between  what must have been told of runs to a place, and was not
select r.id, p.channel || ':' || p.target as place, p.updated_at,
  coalesce(r.started_at, r.created_at) as at
from rota.runs r join rota.preferences p on p.space_id = r.space_id and p.least <= r.priority
where r.id between :first::bigint and :last::bigint and r.state in ('failed', 'expired')
  and not exists (select 1 from rota.deliveries d
    where d.run_id = r.id and d.channel = p.channel and d.target = p.target)
union all
select q.run_id, p.channel || ':' || p.target, p.updated_at, r.created_at
from rota.questions q join rota.runs r on r.id = q.run_id
  join rota.preferences p on p.space_id = r.space_id and p.least <= r.priority
where q.run_id between :first::bigint and :last::bigint
  and not exists (select 1 from rota.deliveries d where d.run_id = q.run_id and d.asking = q.epoch
    and d.channel = p.channel and d.target = p.target)
union all
select q.run_id, t.policy::jsonb ->> 'deliver_to', t.updated_at, r.created_at
from rota.questions q join rota.runs r on r.id = q.run_id join rota.tasks t on t.id = r.task_id
where q.run_id between :first::bigint and :last::bigint and t.policy::jsonb ->> 'deliver_to' is not null
  and not exists (select 1 from rota.deliveries d where d.run_id = q.run_id and d.asking = q.epoch
    and d.channel || ':' || d.target = t.policy::jsonb ->> 'deliver_to');

-- name: noticed_below_between  what was told of runs to a place that wants only what matters more
select r.id, p.channel || ':' || p.target as place, p.updated_at, r.created_at as at
from rota.runs r join rota.preferences p on p.space_id = r.space_id and p.least > r.priority
  join rota.deliveries d on d.run_id = r.id and d.channel = p.channel and d.target = p.target
  join rota.tasks t on t.id = r.task_id
where r.id between :first::bigint and :last::bigint and d.kind = 'notice'
  and t.updated_at < r.created_at and p.channel || ':' || p.target <> coalesce(t.policy::jsonb ->> 'deliver_to', '');

-- name: examine_deliveries
select d.id, d.run_id, d.space_id, d.state, d.tries, d.holder, d.created_at, d.sent_at,
  (d.error is not null)::int as refused, r.state as run_state, r.space_id as run_space_id,
  (select string_agg(e.name, ',') from rota.events e
    where e.run_id = d.run_id and e.run_id is not null and e.name like 'delivery.%'
      and (e.data::jsonb ->> 'delivery_id')::bigint = d.id) as ends
from rota.deliveries d left join rota.runs r on r.id = d.run_id
where d.id > :after::bigint order by d.id limit :most::int;

-- name: examine_schedules
select s.id, s.rule, s.generation, p.name || '/' || t.name || '/' || s.name as stagger, s.state, s.cursor,
  s.next_at, s.updated_at, s.deleted_at
from rota.schedules s join rota.tasks t on t.id = s.task_id join rota.spaces p on p.id = t.space_id
where s.id > :after::bigint order by s.id limit :most::int;

-- name: slot_fates  slots that have a run and no ledger row are as they should be, and left out
select f.schedule_id, f.key, f.at, f.has_run, l.id as ledger_id, l.first_at, l.last_at, l.count
from (
  select w.schedule_id, w.key, w.at,
    (exists (select 1 from rota.runs r where r.schedule_id = w.schedule_id
      and r.schedule_id is not null and r.slot_key = w.key))::int as has_run,
    (select l.id from rota.ledger l where l.schedule_id = w.schedule_id
      and l.last_at >= w.at order by l.last_at limit 1) as next_row
  from jsonb_to_recordset(:rows::text::jsonb) as w(schedule_id bigint, key text, at bigint)
) f left join rota.ledger l on l.id = f.next_row and l.first_at <= f.at
where f.has_run = 0 or l.id is not null;

-- name: slots_twice
select schedule_id, slot_key, count(*) from rota.runs where schedule_id is not null
group by schedule_id, slot_key having count(*) > 1 limit :most::int;

-- name: keys_twice
select task_id, key, count(*) from rota.runs where key is not null
group by task_id, key having count(*) > 1 limit :most::int;

-- name: messages_twice
select dedupe_key, count(*) from rota.deliveries
group by dedupe_key having count(*) > 1 limit :most::int;

-- name: lanes_twice
select space_id, lane, count(*) filter (where state = 'running'),
  count(*) filter (where place = 'ready')
from rota.runs where lane is not null and (state = 'running' or place = 'ready')
group by space_id, lane
having count(*) filter (where state = 'running') > 1 or count(*) filter (where place = 'ready') > 1
limit :most::int;

-- name: running_by_limit
select pool, space_id, grp, metered, count(*), max(started_at) from rota.runs /* sqlite: indexed by runs_running */
where state = 'running' group by pool, space_id, grp, metered;

-- name: ready_behind  ready runs whose head is not simply open
select c.pool, c.space_id, c.route, c.grp, c.metered, c.runs, c.first, h.open, h.gate
from (
  select pool, space_id, route, grp, metered, count(*) as runs, min(id) as first
  from rota.runs /* sqlite: indexed by runs_ready */ where place = 'ready' group by pool, space_id, route, grp, metered
) c left join rota.heads h on h.pool = c.pool and h.space_id = c.space_id and h.route = c.route
  and h.grp = c.grp and h.metered = c.metered
where h.open is null or h.open = 0 or h.gate <> '';

-- name: held_behind  lanes that wait while none of their runs is running or ready
select g.space_id, g.lane, g.runs, g.first from (
  select space_id, lane, count(*) as runs, min(id) as first from rota.runs
  where place in ('ready', 'held') and lane is not null
  group by space_id, lane having count(*) filter (where place = 'ready') = 0
) g left join lateral (
  select 1 as busy from rota.runs r where r.state = 'running' and r.lane is not null
    and r.space_id = g.space_id and r.lane = g.lane limit 1
) b on true
where b.busy is null;

-- name: waiting_pings
select distinct pool, space_id, route, grp, metered, lane from rota.pings;

-- name: orphans  what is left of runs that are gone
select 'attempt' as what, a.run_id from rota.attempts a
where not exists (select 1 from rota.runs r where r.id = a.run_id)
union all
select 'question', q.run_id from rota.questions q
where not exists (select 1 from rota.runs r where r.id = q.run_id)
union all
select 'deferred operation', d.run_id from rota.deferred d
where not exists (select 1 from rota.runs r where r.id = d.run_id)
union all
select 'effect', f.run_id from rota.effects f
where not exists (select 1 from rota.runs r where r.id = f.run_id)
union all
select 'end', e.run_id from rota.events e
where e.name = 'run.settled' and e.run_id is not null
  and not exists (select 1 from rota.runs r where r.id = e.run_id)
limit :most::int;

-- name: spending_wrong  what budgets count, held against the runs
select s.run_id, 'something is set aside for an attempt that has ended' as what
from rota.spending s left join rota.runs r on r.id = s.run_id
where s.open = 1 and (r.id is null or r.state <> 'running' or r.epoch <> s.epoch)
union all
select s.run_id, 'something is still set aside for an attempt that is closed' from rota.spending s
where s.open = 0 and (s.reserved_tokens <> 0 or s.reserved_cost <> 0 or s.reserved_turns <> 0
  or s.reserved_tools <> 0 or s.reserved_seconds <> 0)
union all
select s.run_id, 'what it used counts for another task or space'
from rota.spending s join rota.runs r on r.id = s.run_id
where r.task_id <> s.task_id or r.space_id <> s.space_id
union all
select u.run_id, 'it told of more tokens than are counted' from (
  select s.run_id, sum(s.tokens) as counted, max(s.task_id) as task_id from rota.spending s
  group by s.run_id
) u join rota.tasks t on t.id = u.task_id and t.spec::jsonb ->> 'gate' is null
where u.counted < (select coalesce(sum((e.data::jsonb ->> 'input')::bigint + (e.data::jsonb ->> 'output')::bigint), 0)
  from rota.events e where e.run_id = u.run_id and e.name = 'run.usage')
limit :most::int;

-- name: count_spending
select count(*) from rota.spending;

-- name: pruned_before
select value from rota.facts where name = 'pruned_before';
