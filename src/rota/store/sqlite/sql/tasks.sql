-- name: touch_schedules  of tasks that have changed: a plan that was made before does not apply
update schedules set version = version + 1
where task_id in (select value from json_each(:task_ids)) and deleted_at is null;
