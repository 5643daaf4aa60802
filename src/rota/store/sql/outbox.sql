-- name: pick_deliveries
select id from rota.deliveries where state = 'pending' and available_at <= :now::bigint
order by available_at, id limit :most::int for update skip locked;

-- name: take_deliveries
update rota.deliveries set state = 'sending', holder = :worker::text, tries = tries + 1,
  available_at = :until::bigint
where id = any(:ids::bigint[]) and coalesce(state, '') = 'pending';

-- name: get_deliveries
select id, run_id, channel, target, body, dedupe_key, state, tries, available_at, created_at, sent_at,
  error, kind, mail, files
from rota.deliveries where id = any(:ids::bigint[]) order by id;

-- name: mark_delivery
update rota.deliveries set state = :state::text, holder = null, error = :error::text,
  available_at = :available_at::bigint,
  sent_at = case when :state::text = 'sent' then :now::bigint else sent_at end
where id = :id::bigint and coalesce(state, '') = 'sending' and tries = :tries::int
returning id;

-- name: held_deliveries
select id, run_id, channel, target, body, dedupe_key, state, tries, available_at, created_at, sent_at,
  error, kind, mail, files
from rota.deliveries where state = 'sending' and holder = :worker::text order by id limit :most::int;

-- name: orphaned_deliveries  their sender is gone, or nobody came to say how it went
select id, run_id, channel, target, body, dedupe_key, state, tries, available_at, created_at, sent_at,
  error, kind, mail, files
from rota.deliveries
where state = 'sending' and (available_at <= :now::bigint
  or holder not in (select id from rota.workers where fenced = 0))
limit :most::int;

-- name: next_delivery
select min(available_at) from rota.deliveries where state = 'pending';
