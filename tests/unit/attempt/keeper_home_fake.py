"""A keeper home without a machine, and attempts in it."""

from __future__ import annotations

import asyncio

from rota.agents.command.agent import CommandAgent, ScriptAgent
from rota.flow.attempt.runner import AttemptRunner
from rota.flow.claim import make_assignments
from rota.model.attempts import ExitReason, ExitRecord, SpoolState
from rota.model.heartbeats import AttemptSample
from rota.model.tasks import NewTask, Policy, TaskKind
from rota.ports.agent import AgentWorkspace
from rota.store.tasks import put_task
from rota.store.views import list_run_output
from tests.tools.plugins import EXECUTORS


class FakeYard:
    """A keeper that has written what a test says."""

    home, host, boot = "here:/home", "here", "boot"

    def __init__(self):
        self.out = b""
        self.err = b""
        self.ending = None
        self.left = None
        self.started = []
        self.cancelled = []
        self.roused = []
        self.beat = 1
        self.looks = 0
        self.pane = None
        self.writes = False
        self.seen_writing = None
        self.swept = []
        self.forgotten = []
        self.starting = asyncio.Event()
        self.starting.set()
        self.bell = asyncio.Event()

    def acquire(self):
        return True

    def boot_time(self):
        return 0.0

    def extend_lease(self, until):
        self.promised = until

    async def delete_old(self, known):
        self.known = known

    async def find_uncleaned(self, known):
        return ()

    async def delete(self, kept):
        self.forgotten.append(kept.run_id)

    def make_workspace(self, assignment, site, offered, ids):
        told = {"offered": offered, "ids": ids, "writes": self.writes}
        return AgentWorkspace(folder="/room", cwd="/work", home="/home", **told)

    def make_mailbox(self, kept):
        return f"/mailbox/{kept.nonce}"

    async def start(self, kept, room, site, role, prepared, bounds):
        await self.starting.wait()
        self.started.append(prepared.command)
        self.bounds = bounds

    def read_result(self, assignment):
        return self.left

    def other_launches(self, kept):
        return ()

    def has_written(self, kept):
        return self.seen_writing

    def exit_record(self, kept):
        self.looks += 1
        return self.ending

    def read_output(self, kept, stream, offset, most):
        return getattr(self, stream.value)[offset : offset + most]

    async def clean_up(self, kept):
        self.swept.append(kept.run_id)

    def cancel(self, kept, grace_seconds, why):
        self.cancelled.append(why)
        self.ending = ExitRecord(reason=ExitReason.CANCELLED, proven=True)
        self.bell.set()

    async def wait_for_change(self, kept, seconds):
        await self.bell.wait()
        self.bell.clear()

    async def take_sample(self, kept):
        facts = {"pid": 7, "beat": self.beat, "pane": self.pane}
        return AttemptSample(run_id=kept.run_id, epoch=kept.epoch, **facts)

    def wake(self, kept, *, for_good):
        self.roused.append(for_good)
        if for_good:
            self.end(reason=ExitReason.LOST_KEEPER_DIED, code=None)
        return True

    def end(self, out=b"", **facts):
        self.out += out
        told = {"reason": ExitReason.EXITED, "code": 0, "proven": True, **facts}
        sizes = {"out": SpoolState(size=len(self.out)), "err": SpoolState(size=len(self.err))}
        self.ending = ExitRecord(**told, **sizes)
        self.bell.set()


async def assignment(
    desk, command=("count",), kind=TaskKind.SCRIPT, policy=None, space="main", **spec
):
    await desk.worker("w1")
    owner = await desk.space(space)
    task = await desk.store.write(
        put_task, NewTask(
            space_id=owner.id, name="job", title="", kind=kind, route=kind.value,
            spec={"command": list(command), **spec}, policy=policy or Policy(), origin="api",
        ),
        None, None,
    )  # fmt: skip
    desk.routes = [kind.value]
    await desk.queue(task)
    claimed = await desk.claimed(1, routes=[kind.value])
    return make_assignments(claimed, desk.store.database.incarnation)[0]


def work_on(store, yard, chance, holder="w1", **more):
    agents = {"command": CommandAgent(), "script": ScriptAgent()}
    return AttemptRunner(
        store,
        yard,
        agents,
        lambda: holder,
        chance,
        executors=EXECUTORS,
        usual_agent="command",
        offered={},
        **more,
    )


async def texts(desk, run_id):
    events = await desk.store.read(list_run_output, run_id, 1_000)
    return "\n".join(event.data["text"] for event in events).splitlines()


async def leave(work, given, running):
    """Let an attempt go and wait until nobody here works on it any more."""
    work.detach(given.lease.run_id)
    running.cancel()
    await asyncio.wait([running])


async def a_few_turns():
    """Let everybody else do what can be done at once."""
    for _ in range(20):
        await asyncio.sleep(0)


class ManyYard(FakeYard):
    """Each start is the next of the programs that a test says; None goes on until it is ended."""

    def __init__(self, *programs):
        super().__init__()
        self.programs = list(programs)
        self.outs = {}
        self.endings = {}
        self.going = asyncio.Event()
        self.left_beside = []

    async def start(self, kept, room, site, role, prepared, bounds):
        await super().start(kept, room, site, role, prepared, bounds)
        program = self.programs.pop(0)
        self.outs[kept.nonce] = b"" if program is None else program.get("out", b"")
        if program is None or program.get("goes_on"):
            self.going.set()
            return
        told = {"reason": ExitReason.EXITED, "code": 0, "proven": True}
        told |= {name: fact for name, fact in program.items() if name != "out"}
        self._end(kept, **told)

    def _end(self, kept, **told):
        out = SpoolState(size=len(self.outs.get(kept.nonce, b"")))
        self.endings[kept.nonce] = ExitRecord(**told, out=out)
        self.bell.set()

    def finish(self, kept):
        """Let something that goes on end well."""
        self._end(kept, reason=ExitReason.EXITED, code=0, proven=True)

    def other_launches(self, kept):
        return [each for each in self.left_beside if each.nonce != kept.nonce]

    def exit_record(self, kept):
        if kept.nonce not in self.outs:
            return ExitRecord(reason=ExitReason.LOST_NEVER_STARTED, proven=True)
        return self.endings.get(kept.nonce)

    def read_output(self, kept, stream, offset, most):
        data = self.outs.get(kept.nonce, b"") if stream.value == "out" else b""
        return data[offset : offset + most]

    def cancel(self, kept, grace_seconds, why):
        self.cancelled.append(why)
        if kept.nonce in self.outs and kept.nonce not in self.endings:
            self._end(kept, reason=ExitReason.CANCELLED, detail=why, proven=True)


class Counting:
    """Chance whose numbers differ, so that every keeper has a name of its own."""

    def __init__(self):
        self._next = 0

    def random(self):
        self._next += 1
        return self._next / 1_000
