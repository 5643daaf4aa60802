-- The files that people send with a message, gone with it. One that nobody will ever read has
-- no content any more. Contents are stored aside and as they are: whoever lists files reads none of
-- them, and most are packed already.
create table rota.message_files (
  message_id bigint not null references rota.messages (id) on delete cascade,
  position integer not null,
  name text not null,
  mimetype text not null,
  size integer not null,
  sha256 text collate "C" not null check (length(sha256) = 64),
  content bytea check (octet_length(content) = size),
  primary key (message_id, position)
);
alter table rota.message_files alter column content set storage external;
