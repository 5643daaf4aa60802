-- Attempts that outlive the daemon which started them.

-- A home is a folder of keepers; they end by themselves at `until`, and not before.
create table homes (
  id text primary key,
  host text not null,
  until integer not null
);

create table kept (
  run_id integer primary key,
  epoch integer not null,
  home text not null,
  nonce text not null,
  boot text not null,
  executor text not null,
  out_at integer not null default 0 check (out_at >= 0),
  err_at integer not null default 0 check (err_at >= 0)
);
create index kept_home on kept (home, run_id);
