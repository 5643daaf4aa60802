"""A database from before sessions were things of their own keeps them, on both stores."""

from __future__ import annotations

import json

from rota.model.sessions import SessionFilter

BEFORE = 3
TASKS = """
insert into {0}spaces (name, role, timezone, created_at) values ('main', 'main', 'UTC', 1);
insert into {0}threads (space_id, key, created_at) values (1, 'cli:default', 1);
insert into {0}tasks (space_id, name, title, kind, route, spec, policy, origin, enabled,
  enabled_since, created_at, updated_at, thread) values
  (1, 'old', 'Old', 'agent', 'agent', '{{"keep_session": true}}', '{{}}', 'cli', 1, 1, 1, 5,
    'cli:default'),
  (1, 'new', 'New', 'agent', 'agent', '{{"keep_session": true, "model": "x"}}', '{{}}', 'cli', 1,
    1, 1, 9, 'cli:default'),
  (1, 'alone', 'Alone', 'agent', 'agent', '{{"keep_session": false}}', '{{}}', 'cli', 1, 1, 1, 7,
    null),
  (1, 'script', '', 'script', 'script', '{{"command": ["ls"]}}', '{{}}', 'cli', 1, 1, 1, 7, null);
insert into {0}sessions (task_id, thread, session) values
  (1, '', '{{"agent": "claude", "id": "s-1", "input": 3, "output": 2, "cached": 1}}'),
  (2, '', '{{"agent": "claude", "id": "s-2"}}'), (3, '', '{{"agent": "pi", "id": "s-3"}}');
"""


def test_sessions_and_wishes_are_carried_over(old_store, runner):
    runner.run(_carried_over(runner.run(old_store(BEFORE, TASKS))))


async def _carried_over(store):
    await store.open()
    try:
        found = await store.list_sessions(SessionFilter())
        facts = {one.name: (one.thread, one.task, one.title, one.archived_at) for one in found}
        old_at = facts["s-1"][-1]
        assert old_at is not None
        assert facts == {
            "s-1": ("cli:default", None, "Old", old_at),
            "s-2": ("cli:default", None, "New", None),
            "s-3": (None, "alone", "Alone", None),
        }
        assert {one.name: one.input for one in found} == {"s-1": 3, "s-2": 0, "s-3": 0}
        tasks = {task.name: task.spec for task in await store.list_tasks(1)}
        assert json.loads(json.dumps(tasks)) == {
            "old": {"context": "group"},
            "new": {"context": "group", "model": "x"},
            "alone": {"context": "isolated"},
            "script": {"command": ["ls"]},
        }
    finally:
        await store.close()
