-- How machines were doing: one row for each home and heartbeat, kept for a week.
create table rota.readings (
  home text collate "C" not null,
  at bigint not null,
  host text not null,
  running integer not null,
  agents integer not null,
  panes integer not null,
  spaces integer not null,
  cpu_percent double precision,
  memory_bytes bigint,
  memory_total bigint,
  primary key (home, at)
);
create index readings_at on rota.readings (at);
