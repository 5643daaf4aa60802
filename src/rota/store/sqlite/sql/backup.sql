-- name: doubt_deliveries  a message that may have been tried counts as tried
update deliveries set state = 'unknown', holder = null, tries = max(tries, 1), error = :error
where state in (select value from json_each(:states))
returning id, run_id, channel;
