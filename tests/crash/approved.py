"""Approves an action in a child of its own, which is killed at every point on the way.

Run as a program: it has one thread, so that a child has all that its parent has. It prints how many
children were killed, and ends badly where anything is lost, doubled or unsound.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

from rota.commands.context import AppContext, RequestContext
from rota.commands.runs import AnswerInput, answer_run
from rota.errors import IllegalMove
from rota.faultpoints import STAGES, arm
from rota.flow.define.runs import enqueue
from rota.flow.define.tasks import put_task, task_for
from rota.flow.observe.verification import verify
from rota.flow.settle import running
from rota.model.attempts import AttemptReport
from rota.model.runs import RunState
from rota.model.spaces import SpaceRole
from rota.model.tasks import TaskKind
from rota.model.views import RunFilter
from rota.rules.approvals import QuestionAuthor, question_in
from rota.rules.permissions import LOCAL
from rota.rules.settlement import SettlementContext, settle
from rota.runtime.clock import SystemClock
from rota.store import settlement as store_settlement
from rota.store.claims import claim_runs
from rota.store.sqlite.database import SqliteDatabase
from rota.store.tasks import add_space
from rota.store.views import list_questions, list_runs
from rota.testing.fakes import FixedChance
from tests.tools.plugins import plugins

MARK = "[ZUBOT_CONTROL_REQUEST]"
OTHER, ASKING = 1, 2
"""The run that an action may be about, and the one that asks for it."""
ACTIONS = {
    "enqueue_task": {"task": "report"},
    "enqueue_agentic_task": {"instructions": "Look.", "agent": "claude"},
    "kill_task_run": {"run": OTHER},
}
MOST_STATEMENTS = 80


@asynccontextmanager
async def opened(file):
    store = SqliteDatabase(str(file), SystemClock())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def ask(file, action):
    """Let a run ask for an action; return the hash of what people are shown."""
    async with opened(file) as store:
        await store.write(add_space, "main", SpaceRole.MAIN, "UTC")
        await task_for(store, LOCAL, TaskKind.AGENT, "main")
        other = await put_task(store, LOCAL, "report", route="report", spec={"call": "a:b"})
        assert (await enqueue(store, other, None)).run_id == OTHER
        task = await put_task(store, LOCAL, "asks", route="asks", spec={"call": "a:b"})
        await enqueue(store, task, None)
        (lease,) = (await store.write(claim_runs, "w", ("background",), ["asks"], 1)).leases
        assert lease.run_id == ASKING
        request = {"action_id": "a", "action": action, "payload": ACTIONS[action]}
        asker = QuestionAuthor(run=ASKING, attempt=lease.epoch, task="asks", space="main")
        asked = question_in(f"{MARK}{json.dumps(request)}{MARK}", asker, store.now())
        context = SettlementContext(policy=task.policy, now=store.now())
        assert await store.write(
            store_settlement.settle, [settle(running(lease), AttemptReport(outcome=asked), context)]
        )
        return (await store.read(list_questions, [ASKING]))[0].digest


async def look(file):
    """Return the answer, what came of it, how many runs are new, and whether the other one ended."""
    async with opened(file) as store:
        (question,) = await store.read(list_questions, [ASKING])
        found = {run.id: run.state for run in await store.read(list_runs, RunFilter(limit=10))}
        report = await verify(store)
        assert report.clean, report.violations
        done = (len(found) - 2, found[OTHER] is RunState.CANCELLED)
        return question.answer, question.outcome, done


async def approve(file, digest, fault=""):
    async with opened(file) as store:
        arm(fault)
        app = AppContext(store=store, chance=FixedChance(), plugins=plugins("command"))
        office = RequestContext(app=app, caller=LOCAL)
        asked = AnswerInput(run=ASKING, answer="approve", action_hash=digest)
        try:
            await answer_run(office, asked)
        except IllegalMove:
            return False
        return True


def killed(file, digest, fault):
    """Approve in a child; return whether it was killed on the way."""
    child = os.fork()
    if child == 0:
        asyncio.run(approve(file, digest, fault))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in {0, signal.SIGKILL}, status
    return status == signal.SIGKILL


def places():
    yield from (f"approve.{stage}:1" for stage in STAGES if stage != "statement")
    yield "approve.done:1"
    yield from (f"approve.statement:{hit}" for hit in range(1, MOST_STATEMENTS))


def main(folder, action):
    expected = (0, True) if action == "kill_task_run" else (1, False)
    struck = 0
    for place in places():
        file = Path(folder) / f"{place.replace(':', '-')}.db"
        digest = asyncio.run(ask(file, action))
        if not killed(file, digest, f"{place}:kill"):
            assert place.startswith("approve.statement"), place
            break  # there are no more statements
        struck += 1
        said, outcome, done = asyncio.run(look(file))
        if said is None:
            assert (outcome, done) == (None, (0, False)), (place, outcome, done)
        else:
            assert done == expected, (place, done)
        assert asyncio.run(approve(file, digest)) is (said is None), place
        said, outcome, done = asyncio.run(look(file))
        assert (said, json.loads(outcome)["ok"], done) == ("approve", True, expected), place
    print(struck)


if __name__ == "__main__":
    main(*sys.argv[1:])
