-- name: open_heads  heads with a turn to come, oldest turn first, per open gate
select h.space_id, h.route, h.grp, h.metered, h.turn, h.pool
from unnest(:pools::text[]) as p(pool) cross join unnest(:gates::text[]) as g(gate)
cross join lateral (
  select o.space_id, o.route, o.grp, o.metered, o.turn, o.pool from rota.heads o
  where o.open = 1 and o.pool = p.pool and o.gate = g.gate
    and o.route = any(:routes::text[])
    and (o.metered = 0 or p.pool <> all(:full_pools::text[]))
  order by o.turn, o.space_id limit :most::int
) h;

-- name: count_total
select count(*) from (select 1 from rota.runs /* sqlite: indexed by runs_running */
  where state = 'running' and metered = 1 limit :cap::bigint) r;

-- name: count_pool
select count(*) from (select 1 from rota.runs /* sqlite: indexed by runs_running */
  where state = 'running' and pool = :pool::text and metered = 1 limit :cap::bigint) r;

-- name: count_group
select count(*) from (select 1 from rota.runs /* sqlite: indexed by runs_running_group */
  where state = 'running' and grp <> '' and grp = :grp::text limit :cap::bigint) r;

-- name: count_spaces
select w.space_id, r.used
from jsonb_to_recordset(:rows::text::jsonb) as w(space_id bigint, cap bigint)
cross join lateral (
  select count(*) as used from (
    select 1 from rota.runs q
    where q.state = 'running' and q.pool = :pool::text and q.space_id = w.space_id and q.metered = 1
    limit w.cap
  ) c
) r;

-- name: pick_runs  the best ready runs of each head, but for those that somebody holds
select r.id, r.epoch, r.space_id, r.task_id, r.route, r.cause, r.retries, r.losses, r.created_at,
  r.expires_at, r.slot_at, r.slot_key, r.depth, r.asked, r.thread, r.key, r.payload,
  r.priority, r.available_at, t.updated_at, w.n, r.grp, r.metered
from jsonb_to_recordset(:rows::text::jsonb) as w(n int, space_id bigint, route text, grp text,
  metered int, most int)
cross join lateral (
  select * from rota.runs q
  where q.place = 'ready' and q.pool = :pool::text and q.space_id = w.space_id
    and q.route = w.route and q.grp = w.grp and q.metered = w.metered
  order by q.priority desc, q.available_at, q.id limit least(w.most, :most::int)
  for update skip locked
) r
cross join lateral (select updated_at from rota.tasks where id = r.task_id limit 1) t;

-- name: take_runs  the best ready runs of one head, leased, but for those that somebody holds
with picked as materialized (
  select id from rota.runs
  where place = 'ready' and pool = :pool::text and space_id = :space_id::bigint
    and route = :route::text and grp = :grp::text and metered = :metered::int
  order by priority desc, available_at, id limit :most::int
  for update skip locked
)
update rota.runs as r set state = 'running', place = null, epoch = r.epoch + 1,
  holder = :worker::text, started_at = :now::bigint
where r.id = any(array(select id from picked))
returning r.id, r.epoch, r.space_id, r.task_id, r.route, r.cause, r.retries, r.losses, r.created_at,
  r.expires_at, r.slot_at, r.slot_key, r.depth, r.asked, r.thread, r.key, r.payload,
  r.priority, r.available_at, (select t.updated_at from rota.tasks t where t.id = r.task_id);

-- name: lease_runs
update rota.runs set state = 'running', place = null, epoch = epoch + 1, holder = :worker::text,
  started_at = :now::bigint
where id = any(:ids::bigint[]) and coalesce(place, '') = 'ready';

-- name: drop_heads
delete from rota.heads where id = any(array(
  select h.id from jsonb_to_recordset(:rows::text::jsonb) as w(space_id bigint, route text,
    grp text, metered int)
  cross join lateral (
    select e.id from rota.heads e
    where e.pool = :pool::text and e.space_id = w.space_id and e.route = w.route and e.grp = w.grp
      and e.metered = w.metered limit 1
  ) h));

-- name: turn_heads
update rota.heads set turn = :now::bigint
where pool = :pool::text and space_id = any(:spaces::bigint[]);

-- name: shut_heads
update rota.heads set open = 0
where pool = :pool::text and metered = 1 and space_id = any(:spaces::bigint[]) and open = 1;

-- name: read_limits
select scope, key, cap, rate, period, tokens, refilled_at from rota.limits;

-- name: keep_bucket
update rota.limits set tokens = :tokens::double precision, refilled_at = :refilled_at::bigint
where scope = 'group' and key = :key::text;

-- name: delete_limit
delete from rota.limits where scope = :scope::text and key = :key::text;

-- name: insert_limits
insert into rota.limits (scope, key, cap, rate, period, tokens, refilled_at)
select w.scope, w.key, w.cap, w.rate, w.period, w.rate, w.refilled_at
from jsonb_to_recordset(:rows::text::jsonb) as w(scope text, key text, cap bigint, rate bigint,
  period bigint, refilled_at bigint);

-- name: reset_gates
update rota.heads as h set open = 1,
  gate = case when exists (select 1 from rota.limits l where l.scope = 'group' and l.key = h.grp)
    then h.grp else '' end;

-- name: given_answers
select run_id, case when digest is null then answer
  else answer || ' sha256:' || digest || coalesce(' ' || outcome, '') end
from rota.questions
where run_id = any(:ids::bigint[]) and kind <> 'lost' and answered_at is not null
order by id;
