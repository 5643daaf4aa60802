-- What a space has of schedules that go on, of runs that wait for an instant, and of runs that may
-- have deferred subtasks is counted without looking at what others have.
alter table rota.schedules add column space_id bigint not null default 0;
update rota.schedules s set space_id = t.space_id from rota.tasks t where t.id = s.task_id;
create index schedules_space on rota.schedules (space_id) where next_at is not null;
create index runs_later_space on rota.runs (space_id) where place = 'later';
create index runs_deferring on rota.runs (space_id) where deferring = 1 and finished_at is null;
