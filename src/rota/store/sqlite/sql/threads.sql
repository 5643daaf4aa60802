-- name: change_thread  what is said of it; the rest stays as it is
update threads set
  title = case when json_type(:changes, '$.title') is not null then :changes ->> 'title' else title end,
  task_id = case when json_type(:changes, '$.task_id') is not null then :changes ->> 'task_id' else task_id end,
  trigger_word = case when json_type(:changes, '$.trigger') is not null then :changes ->> 'trigger' else trigger_word end,
  facts = case when json_type(:changes, '$.facts') is not null then :changes ->> 'facts' else facts end
where key = :key;
