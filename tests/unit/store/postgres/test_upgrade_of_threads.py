"""A database from before threads were registered keeps its messages and its pools, on both stores."""

from __future__ import annotations

from rota.model.tasks import Pool
from rota.model.threads import MessageState, NewMessage, ThreadFilter

BEFORE = 10
ROWS = """
insert into {0}spaces (name, role, timezone, created_at) values ('main', 'main', 'UTC', 1);
insert into {0}threads (space_id, key, created_at) values (1, 'cli:default', 1);
insert into {0}tasks (space_id, name, title, kind, route, spec, policy, origin, enabled,
  enabled_since, created_at, updated_at) values
  (1, 'usual', '', 'agent', 'agent', '{{}}', '{{"pool": "background", "priority": 3}}', 'cli', 1, 1,
    1, 5),
  (1, 'quick', '', 'agent', 'agent', '{{}}', '{{"pool": "foreground"}}', 'cli', 1, 1, 1, 5);
insert into {0}messages (space_id, thread, sender, body, at, state, reader, run_id, epoch, read_at)
  values (1, 'cli:default', 'ann', 'one', 1, 'given', 4, 4, 1, 2),
  (1, 'cli:default', 'ann', 'two', 2, 'pending', 5, null, null, null),
  (1, 'cli:default', 'ann', 'gone', 3, 'pending', 5, null, null, null);
delete from {0}messages where body = 'gone';
"""


def test_messages_and_pools_are_carried_over(old_store, runner):
    runner.run(_carried_over(runner.run(old_store(BEFORE, ROWS))))


async def _carried_over(store):
    await store.open()
    try:
        two, one = await store.list_messages("cli:default", None, 1 << 62, 10)
        assert (one.body, one.state, one.run_id) == ("one", MessageState.GIVEN, 4)
        assert (two.body, two.state, two.reader) == ("two", MessageState.UNREAD, 5)
        (thread,) = await store.list_threads(ThreadFilter())
        assert (thread.title, thread.trigger, thread.facts, thread.pending) == ("", None, {}, 1)
        said = await store.say(NewMessage(1, "cli:default", "ann", "three"), None)
        assert said.id == 4, "no number is used twice"
        pools = {task.name: task.policy.pool for task in await store.list_tasks(1)}
        assert pools == {"usual": None, "quick": Pool.FOREGROUND}
        (usual,) = [task for task in await store.list_tasks(1) if task.name == "usual"]
        assert usual.policy.priority == 3
    finally:
        await store.close()
