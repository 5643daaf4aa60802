"""A yard of no machine on which one program follows the other."""

from __future__ import annotations

import asyncio

from rota.model.attempts import ExitReason, ExitRecord, SpoolState
from tests.unit.attempt.keeper_home_fake import FakeYard


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
