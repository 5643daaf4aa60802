"""Gating: a task's gate runs before its work, as a script of its own, and is on record like one.

Its attempt is written down with an empty gate, so whoever carries it on knows what runs there. What
the gate said is written down with the work, so it is known for as long as the work goes on. A gate
that fails is a failure of the run: nothing is skipped because nobody could tell.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from rota.errors import Invalid, Unavailable
from rota.flow.execute.ends import read_result, with_last_words
from rota.flow.execute.going import Going
from rota.flow.execute.hearing import Hearing
from rota.flow.execute.listening import Listening
from rota.flow.execute.minding import Minding
from rota.flow.execute.patiently import patiently
from rota.flow.execute.readying import Ready
from rota.flow.execute.reporting import away, report_of, told, verdict_of
from rota.model.asides import Aside
from rota.model.checks import Mark
from rota.model.keeping import ASKING, Ending, Reason
from rota.model.outcomes import Failed, Report, Succeeded
from rota.model.tasks import TaskKind
from rota.model.wishes import Output, Wish
from rota.ports.agent import Agent
from rota.ports.store import Store
from rota.rules.gates import GATE, Gate, Said, gate_in, payload_with, recorded, said_in, written

FAILED = "gate_failed"
MOST_OUTPUT = 1024 * 1024

Start = Callable[[Going, Ready], Awaitable[Report | None]]


class Gating:
    """Asks the gates of tasks."""

    def __init__(
        self,
        store: Store,
        minding: Minding,
        listening: Listening,
        script: Agent | None,
        start: Start,
    ) -> None:
        self._store = store
        self._minding = minding
        self._listening = listening
        self._script = script
        self._start = start

    async def passed(self, going: Going, ready: Ready) -> Report | None:
        """Return the report of an attempt that ends at its gate; None if its work is to begin.

        A run that goes on with an answer was let through before.
        """
        assignment = going.assignment
        if assignment.kept is not None and assignment.kept.gate != ASKING:
            going.gate = assignment.kept.gate
            _hand_on(going)
            return None
        gate = gate_in(assignment.task.spec)
        if gate is None and going.kept is not None:
            await self._dropped(going)
        if gate is None or assignment.answers:
            return None
        going.gate = ASKING
        report = await self._asked(going, await self._ready(going, ready, gate))
        if report is not None:
            return report
        _hand_on(going)
        return None

    async def _asked(self, going: Going, ready: Ready) -> Report | None:
        """Run the gate to its end, and take its answer."""
        while True:
            if going.kept is None:
                ended = await self._start(going, ready)
                if ended is not None or going.kept is None:
                    return ended
            kept = going.kept
            begin = partial(_hearing_of, ready)
            ending, hearing = await self._listening.to_the_end(kept, going.holder, begin)
            going.kept = None
            never = ending.reason is Reason.LOST_NEVER_STARTED
            if going.stopped or not never or kept is not going.assignment.kept:
                break
        await read_result(self._minding, kept, going.assignment, hearing.reader)
        words = await with_last_words(self._minding, kept, ending)
        verdict = verdict_of(words, hearing.reader)
        report = report_of(ending, verdict, TaskKind.SCRIPT, ready.bounds)
        if not isinstance(report.outcome, Succeeded):
            return _blamed(report)
        try:
            said = said_in(report.outcome.result)
        except Invalid as fault:
            return replace(report, outcome=Failed(code=FAILED, message=str(fault)))
        going.gate = written(said)
        return None if said.wake else _quiet(said, ending)

    async def _dropped(self, going: Going) -> None:
        """End a gate whose task has none any more."""
        if going.kept is not None:
            await self._minding.end(going.kept, "its task has no gate any more")
            going.kept = None

    async def _ready(self, going: Going, ready: Ready, gate: Gate) -> Ready:
        """Return what a gate needs: as a script of its task, told what it wanted to find again."""
        if self._script is None:
            raise Unavailable("there is nothing here that runs scripts")
        lease = going.assignment.lease
        stands = await patiently(lambda: self._store.get_state(lease.task_id, GATE))
        given: dict[str, Any] = {
            "run": lease.run_id,
            "payload": json.loads(lease.payload),
            "state": None if stands is None else json.loads(stands.value),
        }
        wish = Wish(
            program=gate.words,
            instructions=json.dumps(given, ensure_ascii=False),
            output=Output.LAST_LINE,
        )
        bounds = replace(
            ready.bounds, hard_seconds=gate.seconds, idle_seconds=None, output_bytes=MOST_OUTPUT
        )
        return ready._replace(agent=self._script, wish=wish, bounds=bounds)


def _hearing_of(ready: Ready) -> Hearing:
    """Return a hearing of a gate that has heard nothing yet."""
    return Hearing(ready.agent.reader(ready.wish, ready.room))


def _hand_on(going: Going) -> None:
    """Let the work know what its gate hands on."""
    said = recorded(going.gate)
    if said is not None:
        assignment = going.assignment
        payload = payload_with(assignment.lease.payload, said)
        going.assignment = assignment._replace(lease=assignment.lease._replace(payload=payload))


def _blamed(report: Report) -> Report:
    """Return the report of an attempt whose gate came to nothing."""
    outcome = report.outcome
    if not isinstance(outcome, Failed):
        return report
    message = f"its gate failed: {outcome.message}"
    return replace(report, outcome=replace(outcome, code=FAILED, message=message))


def _quiet(said: Said, ending: Ending) -> Report:
    result = None if said.reason is None else json.dumps(said.reason, ensure_ascii=False)
    aside = Aside(mark=Mark.QUIET, remembered=said.state)
    outcome = Succeeded(result=result)
    return Report(outcome=outcome, ending=told(ending), aside=aside, away=away(ending))
