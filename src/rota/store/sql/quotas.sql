-- name: read_quotas  of spaces: their own caps, or what every member space has; whoever counts does so alone
with found as materialized (
  select p.id, p.name, p.role, coalesce(
    (select l.cap from rota.limits l
      where l.scope = 'space' and l.key = :what::text || '/' || p.id),
    (select l.cap from rota.limits l where l.scope = 'space' and l.key = :what::text)) as cap
  from rota.spaces p where p.id = any(:ids::bigint[])
),
held as materialized (
  select p.id from rota.spaces p
  where p.id = any(array(select f.id from found f where f.role = 'member' and f.cap is not null))
  order by p.id for no key update
)
select f.id, f.name, f.role, f.cap from found f left join held h on h.id = f.id order by f.id;

-- name: count_queued  runs of a space that are queued, or will be once the run that asked succeeds
select
  (select count(*) from (select 1 from rota.runs
    where place = 'ready' and pool = 'foreground' and space_id = :space_id::bigint
    limit :most::bigint) r)
  + (select count(*) from (select 1 from rota.runs
    where place = 'ready' and pool = 'background' and space_id = :space_id::bigint
    limit :most::bigint) r)
  + (select count(*) from (select 1 from rota.runs
    where place = 'later' and space_id = :space_id::bigint limit :most::bigint) r)
  + (select count(*) from (select 1 from rota.runs
    where lane is not null and place = 'held' and space_id = :space_id::bigint
    limit :most::bigint) r)
  + (select count(*) from (select 1 from rota.runs r cross join lateral (
      select 1 from rota.deferred d where d.run_id = r.id and d.kind = 'subtask' offset 0) d
    where r.deferring = 1 and r.finished_at is null and r.space_id = :space_id::bigint
    limit :most::bigint) r);

-- name: count_schedules  of a space that have a slot to come
select count(*) from (select 1 from rota.schedules /* sqlite: indexed by schedules_space */
  where next_at is not null and space_id = :space_id::bigint limit :most::bigint) s;

-- name: space_of_task
select space_id from rota.tasks where id = :task_id::bigint;
