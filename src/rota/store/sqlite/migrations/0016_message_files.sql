-- The files that people send with a message, gone with it. One that nobody will ever read has
-- no content any more. It stands last: whoever lists files reads no page of it.
create table message_files (
  id integer primary key,
  message_id integer not null references messages (id) on delete cascade,
  position integer not null,
  name text not null,
  mimetype text not null,
  size integer not null,
  sha256 text not null check (length(sha256) = 64),
  content blob check (content is null or typeof(content) = 'blob' and length(content) = size),
  unique (message_id, position)
);
