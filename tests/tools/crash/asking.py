"""Ask, wait, answer, go on: with a real program, and the daemon killed between any two steps.

Each blow has a run of its own. Its program begins, somebody asks a person on its behalf and defers
an item, it ends its turn, the run waits, it is answered, and a second program ends it. Whenever the
daemon dies, another one is started. The program begins twice, no more; the question is asked and
answered once, and told once to each place; the item is marked once, with the success.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from contextlib import suppress
from typing import Final

from rota.errors import Fenced, IllegalMove, NotFound
from rota.flow.define import runs, tasks
from rota.flow.define.runs import answer_question
from rota.model.attempt_requests import AttemptRef, DeferredKind, DeferredOperation
from rota.model.attempts import WaitingForAnswer
from rota.model.ids import Epoch, RunId
from rota.model.json import to_json
from rota.model.runs import FINISHED, Run, RunState
from rota.model.spaces import SpaceRole
from rota.model.tasks import Overlap, Policy, TaskKind
from rota.rules.effects import effect_slot
from rota.rules.permissions import LOCAL
from rota.store.attempt_requests import defer_operations
from rota.store.notifications import set_notification_target
from rota.store.store import Store
from rota.store.tasks import add_space, find_space, get_seen
from rota.store.views import get_run, list_deliveries, list_questions
from tests.tools.crash.cases import Blow
from tests.tools.crash.driver import LEAVE_SECONDS, QUIET_SECONDS, verified
from tests.tools.crash.kept import KeptDriver
from tests.tools.crash.processes import wait_for

TASK: Final = "asking"
TOLD: Final = [("notice", "home"), ("notice", "ops"), ("result", "home")]
"""What people are told of each run: its question in two places, and its result."""
RETRY_SECONDS: Final = 0.03
LAST_MOMENT: Final = 2.0
"""How long a daemon has to die after the commit that ends its run."""
BLOW_SECONDS: Final = 30.0
QUESTION: Final = WaitingForAnswer(question="Shall I go on?", options=("yes", "no"))
PROGRAM: Final = """
import json, os, sys, time
run, epoch = os.environ["ROTA_RUN_ID"], os.environ["ROTA_ATTEMPT"]
with open("begun", "a") as begun:
    begun.write("%s %s\\n" % (run, epoch))
answers = json.loads(os.environ.get("ROTA_ANSWERS", "[]"))
end = time.monotonic() + 60
while not answers and not os.path.exists("asked-" + run) and time.monotonic() < end:
    time.sleep(0.01)
print(answers[-1] if answers else "I have asked", flush=True)
"""


class AskingDriver(KeptDriver):
    """Lets programs ask, answers them, and kills the daemon meanwhile."""

    def _go(self) -> None:
        self._runs = []
        self._asked: set[int] = set()
        self._work = self._folder / "home" / "spaces" / "main" / "work"
        self._work.mkdir(mode=0o700, parents=True)
        (self._work / "program.py").write_text(PROGRAM)
        self._token = f"asking-{os.getpid()}-{self._folder.name}"
        self._ask(self._define)
        for blow in self._case.blows:
            self._strike(blow)
        self._let_end()
        self.result.faults += self._ask(self._judge_runs)
        self.result.faults += asyncio.run(verified(self._address))

    async def _define(self, store: Store) -> None:
        try:
            await store.read(find_space, "main")
        except NotFound:
            await store.write(add_space, "main", SpaceRole.MAIN, "UTC")
        await tasks.put_task(
            store,
            LOCAL,
            TASK,
            kind=TaskKind.SCRIPT,
            route="script",
            spec={"command": ["python3", "program.py", self._token]},
            policy=Policy(overlap=Overlap.ALLOW, deliver_to="log:home"),
        )
        space = await store.read(find_space, "main")
        await store.write(set_notification_target, space.id, "log", "ops", 0, usual=False)

    def _let_end(self) -> None:
        """Start one more daemon: it finds nothing to do, and ends when it is told to."""
        daemon = self._start_daemon("")
        if not wait_for(lambda: daemon.up and not self._database.left_open(), QUIET_SECONDS):
            self.result.faults += [f"stranded: {said}" for said in self._database.left_open()]
        daemon.send(signal.SIGTERM)
        if not daemon.wait(LEAVE_SECONDS) or daemon.code != 0:
            self._complain(f"the healed daemon ended with code {daemon.code}")

    def _strike(self, blow: Blow) -> None:
        run_id = self._ask(self._queue_one)
        self._runs.append(run_id)
        daemon, struck = self._start_daemon(blow.fault), False
        deadline = time.monotonic() + BLOW_SECONDS
        while not self._ask(lambda store: self._step(store, run_id)):
            if not daemon.alive and not struck:
                self._bury(daemon, blow)
                daemon, struck = self._start_daemon(""), True
            if time.monotonic() > deadline:
                self._complain(f"run {run_id} did not come to its end at {blow}")
                break
            time.sleep(RETRY_SECONDS)
        struck = struck or wait_for(lambda: not daemon.alive, LAST_MOMENT)
        self.result.struck += struck
        if not struck:
            self._complain(f"the daemon never came to {blow}")
        self._bury(daemon, blow if not daemon.alive else Blow())

    async def _queue_one(self, store: Store) -> RunId:
        return (await runs.run_now(store, LOCAL, TASK)).run_id

    async def _step(self, store: Store, run_id: RunId) -> bool:
        """Do what is next for a run; true if it has ended."""
        run = await store.read(get_run, run_id)
        if run is None or run.state in FINISHED:
            return True
        if run.state is RunState.RUNNING and (run_id, run.epoch) in self._begun_attempts():
            await self._ask_for(store, run)
        elif run.state is RunState.WAITING:
            (question,) = await store.read(list_questions, [run_id])
            with suppress(IllegalMove):
                await answer_question(store, LOCAL, question.id, "yes")
        return False

    async def _ask_for(self, store: Store, run: Run) -> None:
        if run.id in self._asked:
            return
        space = await store.read(find_space, "main")
        speaker = AttemptRef(
            run_id=run.id,
            epoch=run.epoch,
            task_id=run.task_id,
            space_id=space.id,
            slot=effect_slot(run),
        )
        item = json.dumps({"items": [["", str(run.id), "null"]]})
        question = json.dumps(to_json(QUESTION))
        operations = [
            DeferredOperation(kind=DeferredKind.SEEN, data=item, name="seen"),
            DeferredOperation(kind=DeferredKind.QUESTION, data=question, name="question"),
        ]
        with suppress(Fenced):
            await store.write(defer_operations, speaker, operations)
            self._asked.add(run.id)
            (self._work / f"asked-{run.id}").touch()

    def _begun_attempts(self) -> list[tuple[int, Epoch]]:
        file = self._work / "begun"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(run), Epoch(int(epoch))) for run, epoch in (line.split() for line in lines)]

    async def _judge_runs(self, store: Store) -> list[str]:
        faults = []
        begun = [run for run, _ in self._begun_attempts()]
        for run_id in self._runs:
            run = await store.read(get_run, run_id)
            if run is None or (run.state, run.result) != (RunState.SUCCEEDED, '"yes"'):
                faults.append(f"lost: run {run_id} came to {run}")
                continue
            if begun.count(run_id) != 2:
                faults.append(f"doubled: run {run_id} began {begun.count(run_id)} programs")
            questions = await store.read(list_questions, [run_id])
            if [question.answer for question in questions] != ["yes"]:
                faults.append(f"doubled: run {run_id} asked {questions}")
            seen = await store.read(get_seen, run.task_id, "", str(run_id))
            if seen is None or seen.count != 1:
                faults.append(f"doubled: what run {run_id} deferred came to {seen}")
            sent = [(d.kind.value, d.target) for d in await store.read(list_deliveries, run_id, 10)]
            if sorted(sent) != TOLD:
                faults.append(f"doubled: people were told of run {run_id} by {sorted(sent)}")
        return faults
