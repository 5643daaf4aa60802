-- What came of an action that a person approved and Rota did itself, as JSON.
alter table questions add column outcome text check (outcome is null or answer = 'approve');
