-- name: insert_keys
insert into rota.keys (space_id, name, prefix, digest, role, scopes, created_at, created_by,
  expires_at)
select w.space_id, w.name, w.prefix, w.digest, w.role, w.scopes, :now::bigint, w.created_by,
  w.expires_at
from jsonb_to_recordset(:rows::text::jsonb) as w(space_id bigint, name text, prefix text,
  digest text, role text, scopes text, created_by text, expires_at bigint);

-- name: find_key
select k.id, k.space_id, p.name as space, k.name, k.prefix, k.role, k.scopes, k.created_at,
  k.created_by, k.expires_at, k.used_at, k.revoked_at
from rota.keys k join rota.spaces p on p.id = k.space_id where k.digest = :digest::text;

-- name: list_keys
select k.id, k.space_id, p.name as space, k.name, k.prefix, k.role, k.scopes, k.created_at,
  k.created_by, k.expires_at, k.used_at, k.revoked_at
from rota.keys k join rota.spaces p on p.id = k.space_id
where :space_id::bigint is null or k.space_id = :space_id::bigint
order by k.id;

-- name: revoke_key
update rota.keys set revoked_at = coalesce(revoked_at, :now::bigint) where id = :id::bigint;

-- name: touch_keys
update rota.keys as k set used_at = greatest(coalesce(k.used_at, 0), w.at)
from jsonb_to_recordset(:rows::text::jsonb) as w(id bigint, at bigint) where k.id = w.id;
