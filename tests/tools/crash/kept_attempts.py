"""Real programs under real keepers while their daemon is killed at its points.

Each program notes outside of Rota that it has begun, and leaves a command in its mailbox. However
often the daemon dies, a program begins once, every line of it is recorded once and in order, its
command is carried out once, its run ends once, and nobody is left.

In a case of questions each blow has a run of its own. Its program begins, somebody asks a person on
its behalf and defers an item, it ends its turn, the run waits, it is answered, and a second program
ends it. Whenever the daemon dies, another one is started. The program begins twice, no more; the
question is asked and answered once, and sent once to each target; the item is marked once, with the
success.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from rota.app.addresses import store_at
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
from rota.runtime.clock import SystemClock
from rota.store.attempt_requests import defer_operations
from rota.store.audit import find_audit_entry
from rota.store.notifications import set_notification_target
from rota.store.store import Store
from rota.store.tasks import add_space, find_space, get_seen
from rota.store.views import (
    get_run,
    list_attempts,
    list_deliveries,
    list_questions,
    list_run_output,
)
from tests.tools.crash.cases import Blow
from tests.tools.crash.driver import LEAVE_SECONDS, QUIET_SECONDS, Driver, verified
from tests.tools.crash.processes import Process, wait_for

Answer = TypeVar("Answer")

BEGUN_SECONDS: Final = 20.0
LINES: Final = 30
ROOM: Final = {"ROTA_LIMIT_BACKGROUND": "100", "ROTA_LIMIT_SPACE_BACKGROUND": "100"}
MOST_EVENTS: Final = 1_000
MAX_LOSSES: Final = 3
"""After so many blows a daemon is left to work: a run that loses its worker more often fails."""
NEED_AN_ENDED_ONE: Final = frozenset({"drop_kept_attempt"})
CARRIED_OUT: Final = frozenset({"put_state", "defer_state"})
PROGRAM: Final = """
import json, os, sys, time
box = os.environ["ROTA_MAILBOX"] + "/out/"
asked = {"key": os.environ["ROTA_RUN_ID"], "value": 1, "task": os.environ["ROTA_TASK"]}
with open(box + "tmp", "w") as file:
    json.dump({"request_id": "note", "type": "set_state", **asked}, file)
os.rename(box + "tmp", box + "note.json")
with open("begun", "a") as begun:
    begun.write("%s %d\\n" % (os.environ["ROTA_RUN_ID"], os.getpid()))
for number in range(int(sys.argv[1])):
    print("line", number, flush=True)
    time.sleep(0.01)
end = time.monotonic() + 120
while sys.argv[2] == "long" and not os.path.exists("go") and time.monotonic() < end:
    time.sleep(0.02)
print("finished", flush=True)
"""


def checks(token: str) -> list[dict[str, object]]:
    """Return what makes a run look at the world before it counts, by a program known by a word."""
    look = "print(open('begun').read())"
    return [
        {"not_like": "line"},
        {"file_newer": "begun"},
        {"command": ["python3", "-c", look, token]},
    ]


class KeptDriver(Driver):
    """Leaves programs behind, kills whoever comes for them, and judges what is on record.

    The first life finds one program that goes on and one that has ended, and so does every third
    one after it; each starts two of its own.
    """

    _runs: list[RunId]

    def _go(self) -> None:
        self._runs = []
        self._work = self._folder / "home" / "spaces" / "main" / "work"
        self._work.mkdir(mode=0o700, parents=True)
        (self._work / "program.py").write_text(PROGRAM)
        self._token = f"kept-{os.getpid()}-{self._folder.name}"
        self._ask(self._define)
        try:
            for number, blow in enumerate(self._case.blows):
                if number % MAX_LOSSES == 0 or blow.owner in NEED_AN_ENDED_ONE:
                    self._leave_behind()
                self._strike(blow)
            self._let_end()
        finally:
            (self._work / "go").touch()
        self.result.faults += self._ask(self._judge_runs)
        self.result.faults += asyncio.run(verified(self._address))

    def _ask(self, question: Callable[[Store], Awaitable[Answer]]) -> Answer:
        async def asked() -> Answer:
            store = store_at(self._address, SystemClock())
            await store.open()
            try:
                return await question(store)
            finally:
                await store.close()

        return asyncio.run(asked())

    async def _define(self, store: Store) -> None:
        try:
            await store.read(find_space, "main")
        except NotFound:
            await store.write(add_space, "main", SpaceRole.MAIN, "UTC")
        for name in ("short", "long"):
            command = ["python3", "program.py", str(LINES), name, self._token]
            await tasks.put_task(
                store,
                LOCAL,
                name,
                kind=TaskKind.SCRIPT,
                route="script",
                spec={"command": command, "checks": checks(self._token)},
                policy=Policy(overlap=Overlap.ALLOW),
            )

    async def _queue(self, store: Store) -> tuple[RunId, RunId]:
        short, long = [(await runs.run_now(store, LOCAL, n)).run_id for n in ("short", "long")]
        self._runs += [short, long]
        return short, long

    def _start_daemon(self, fault: str, *, cold: bool = False, **more: str) -> Process:
        """Start one that has room for every program at once."""
        return super()._start_daemon(fault, cold=cold, **ROOM, **more)

    def _leave_behind(self) -> None:
        """Let a daemon end one program and begin another, and kill it."""
        short, long = self._ask(self._queue)
        daemon = self._start_daemon("")
        ended = wait_for(lambda: long in self._begun() and self._ended(short), BEGUN_SECONDS)
        if not ended:
            self._complain(f"runs {short} and {long} did not begin")
        self._bury(daemon, Blow())

    def _strike(self, blow: Blow) -> None:
        self._ask(self._queue)
        daemon = self._start_daemon(blow.fault)
        if daemon.wait(BEGUN_SECONDS):
            self.result.struck += 1
        else:
            self._complain(f"the daemon never came to {blow}")
        self._bury(daemon, blow)

    def _let_end(self) -> None:
        (self._work / "go").touch()
        daemon = self._start_daemon("")
        if not wait_for(lambda: not self._database.left_open(), QUIET_SECONDS):
            self.result.faults += [f"stranded: {said}" for said in self._database.left_open()]
        daemon.send(signal.SIGTERM)
        if not daemon.wait(LEAVE_SECONDS) or daemon.code != 0:
            self._complain(f"the healed daemon ended with code {daemon.code}")

    def _begun(self) -> list[int]:
        """Return the runs of the programs that have begun, as they noted it themselves."""
        file = self._work / "begun"
        lines = file.read_text().splitlines() if file.exists() else []
        return [int(line.partition(" ")[0]) for line in lines]

    def _ended(self, run_id: RunId) -> bool:
        async def look(store: Store) -> Run | None:
            return await store.read(get_run, run_id)

        run = self._ask(look)
        return run is not None and run.state in FINISHED

    async def _judge_runs(self, store: Store) -> list[str]:
        faults = []
        begun = self._begun()
        wanted = [*(f"line {number}" for number in range(LINES)), "finished"]
        for run_id in self._runs:
            run = await store.read(get_run, run_id)
            if run is None:
                faults.append(f"lost: run {run_id} is gone")
                continue
            if (run.state, run.result) != (RunState.SUCCEEDED, json.dumps("finished")):
                faults.append(f"lost: run {run_id} is {run.state.value} with {run.result}")
            if begun.count(run_id) != 1:
                faults.append(
                    f"doubled: the program of run {run_id} began {begun.count(run_id)} times"
                )
            events = await store.read(list_run_output, run_id, MOST_EVENTS)
            said = "\n".join(str(event.data["text"]) for event in events).splitlines()
            if said != wanted:
                faults.append(f"doubled: run {run_id} is said to have said {said}")
            caller = f"attempt:{run_id}.{run.epoch}"
            asked = await store.read(find_audit_entry, caller, "note")
            if asked is None or asked.command not in CARRIED_OUT:
                faults.append(f"lost: the command of run {run_id} was not carried out: {asked}")
            ends = len(await store.read(list_attempts, run_id))
            if ends != run.epoch:
                faults.append(f"doubled: run {run_id} has {ends} ends at attempt {run.epoch}")
        faults += [f"stranded: process {pid} is left" for pid in _carrying(self._token)]
        return faults


def _carrying(token: str) -> list[int]:
    """Return the processes that have a word of their own among their words."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and token.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


TASK: Final = "asking"
TOLD: Final = [("notification", "home"), ("notification", "ops"), ("result", "home")]
"""What people are told of each run: its question in two places, and its result."""
RETRY_SECONDS: Final = 0.03
LAST_MOMENT: Final = 2.0
"""How long a daemon has to die after the commit that ends its run."""
BLOW_SECONDS: Final = 30.0
QUESTION: Final = WaitingForAnswer(question="Shall I go on?", options=("yes", "no"))
ASKING_PROGRAM: Final = """
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
        (self._work / "program.py").write_text(ASKING_PROGRAM)
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
