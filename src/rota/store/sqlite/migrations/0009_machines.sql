-- How machines were doing: one row for each home and heartbeat, kept for a week.
create table readings (
  home text not null,
  at integer not null,
  host text not null,
  running integer not null,
  agents integer not null,
  panes integer not null,
  spaces integer not null,
  cpu_percent real,
  memory_bytes integer,
  memory_total integer,
  primary key (home, at)
) without rowid;
create index readings_at on readings (at);
