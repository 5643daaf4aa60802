-- name: mark_deliveries_unknown
update deliveries set state = 'unknown', worker_id = null, tries = max(tries, 1), error = :error
where state in (select value from json_each(:states))
returning id, run_id, channel;
