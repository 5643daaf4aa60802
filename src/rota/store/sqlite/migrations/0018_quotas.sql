-- What a space has of schedules that go on, of runs that wait for an instant, and of runs that may
-- have deferred subtasks is counted without looking at what others have.
alter table schedules add column space_id integer not null default 0;
update schedules set space_id = (select t.space_id from tasks t where t.id = schedules.task_id);
create index schedules_space on schedules (space_id) where next_at is not null;
create index runs_later_space on runs (space_id) where place = 'later';
create index runs_deferring on runs (space_id) where deferring = 1 and finished_at is null;
