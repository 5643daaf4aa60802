-- What came of an action that a person approved and Rota did itself, as JSON.
alter table rota.questions add column outcome text
  constraint questions_outcome_check check (outcome is null or answer = 'approve');
