-- How often it was begun to look at the checks of an attempt.
alter table kept add column looks integer not null default 0;
