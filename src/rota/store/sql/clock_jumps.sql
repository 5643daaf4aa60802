-- name: read_leaps  and up to when any schedule is planned, but for those that zone data have moved
select (select value from rota.facts where name = 'clock_leapt') as forward,
  (select value from rota.facts where name = 'clock_returned') as returned,
  (select max(cursor) from rota.schedules where deleted_at is null and cursor <> updated_at)
    as planned;

-- name: missed_schedules
select s.id, s.task_id, t.name as task, p.name as space, s.name, s.rule, s.generation, s.version,
  s.state, s.note, s.cursor, s.next_at, s.created_at, s.updated_at
from rota.schedules s join rota.tasks t on t.id = s.task_id join rota.spaces p on p.id = t.space_id
where s.deleted_at is null and (:task_id::bigint is null or t.id = :task_id::bigint)
  and (:space_id::bigint is null or t.space_id = :space_id::bigint)
  and exists (select 1 from rota.ledger l where l.schedule_id = s.id
    and l.last_at >= :start::bigint and l.first_at <= :end::bigint
    and l.reason in ('missed', 'too_late', 'coalesced', 'catch_up_cap'))
order by s.id limit :most::int;
