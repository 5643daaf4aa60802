-- The files that go with a message, as JSON: artifacts of its run, with their sizes and hashes.
alter table rota.deliveries add column files text;
