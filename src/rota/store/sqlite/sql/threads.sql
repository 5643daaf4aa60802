-- name: change_thread
update threads set
  title = case when json_type(:changes, '$.title') is not null then :changes ->> 'title' else title end,
  task_id = case when json_type(:changes,
  '$.task_id') is not null then :changes ->> 'task_id' else task_id end,
  trigger_word = case when json_type(:changes,
  '$.trigger') is not null then :changes ->> 'trigger' else trigger_word end,
  metadata = case when json_type(:changes,
  '$.metadata') is not null then :changes ->> 'metadata' else metadata end
where key = :key;
