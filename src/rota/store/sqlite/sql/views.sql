-- name: list_deliveries
select id, run_id, channel, target, body, dedupe_key, state, tries, available_at, created_at, sent_at,
  error, kind, mail, files
from deliveries where :run_id is null or run_id = :run_id order by id desc limit :most;

-- name: unserved_routes
select distinct h.route from heads h
where (:space_id is null or h.space_id = :space_id)
  and h.route not in (select r.value from workers w, json_each(w.routes) r where w.fenced = 0);
