-- What the newest runs of a task have used, however many there were before.
create index spending_run on spending (task_id, run_id);
