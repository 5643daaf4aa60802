-- name: doubt_deliveries  a message that may have been tried counts as tried
update rota.deliveries set state = 'unknown', holder = null, tries = greatest(tries, 1),
  error = :error::text
where id in (
  select id from rota.deliveries where state = 'pending' and 'pending' = any(:states::text[])
  union all
  select id from rota.deliveries where state = 'sending' and 'sending' = any(:states::text[]))
returning id, run_id, channel;

-- name: count_running
select count(*) from rota.runs /* sqlite: indexed by runs_running */ where state = 'running';
