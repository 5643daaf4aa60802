"""Checking: what an agent calls done is looked at before it counts.

It happens between the end of the program and the settling, while the attempt still has its row: a
process that dies here is followed by one that hears the program's ending again and looks again. The
looks are counted, so that a check that brings processes down does not bring down each that follows.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from typing import TypeVar

from rota.errors import Invalid, Unavailable
from rota.faultpoints import reach
from rota.flow.execute.beside import Beside
from rota.flow.execute.patiently import patiently
from rota.flow.execute.readying import Ready
from rota.model.asides import NOTHING
from rota.model.checks import Check, Checked, CheckKind, Finding
from rota.model.events import EventName
from rota.model.ids import Epoch, RunId
from rota.model.instants import from_micros
from rota.model.keeping import Ending, Kept, Reason
from rota.model.outcomes import Failed, Report, Succeeded
from rota.model.sites import Site
from rota.model.wishes import Wish
from rota.ports.checking import Probes
from rota.ports.runner import Assignment
from rota.ports.store import Store
from rota.rules.checks import (
    USUAL_SECONDS,
    Outcome,
    checks_in,
    examined,
    failing,
    name_of,
    told,
)
from rota.rules.done import NO_WAY_OUT, reaches_out
from rota.rules.results import text_of

FAILED = "check_failed"
STOPPED = "it was stopped before this was looked at"
TOO_LONG = "evaluating it took too long: write it simpler"
MOST_LOOKS = 2
CUT_OFF = (
    f"Rota was ended {MOST_LOOKS} times while it evaluated the checks of this run: "
    "look at the log, write them simpler, and run it again"
)
SINCE = {
    True: "",
    False: "; nothing has changed it since the attempt began",
    None: "; how it was when the attempt began is not on record",
}
Answer = TypeVar("Answer")


@dataclass
class Halting:
    """How a look is told to end early; `holding` is what runs beside the attempt just now."""

    halted: asyncio.Event = field(default_factory=asyncio.Event)
    holding: Kept | None = None

    def hold(self, kept: Kept | None) -> bool:
        """Note which program runs beside the attempt; tell whether it is to end at once."""
        self.holding = kept
        return self.halted.is_set()

    async def unless(self, looking: Awaitable[Answer]) -> Answer | None:
        """Return what a look finds, None once it is halted."""
        look = asyncio.ensure_future(looking)
        halt = asyncio.ensure_future(self.halted.wait())
        try:
            await asyncio.wait({look, halt}, return_when=asyncio.FIRST_COMPLETED)
            return look.result() if look.done() else None
        finally:
            look.cancel()
            halt.cancel()
            await asyncio.gather(look, halt, return_exceptions=True)


class Checking:
    """Holds the successes of attempts against the checks of their tasks."""

    def __init__(self, store: Store, beside: Beside, probes: Probes | None) -> None:
        self._store = store
        self._beside = beside
        self._probes = probes

    async def checked(
        self,
        report: Report,
        assignment: Assignment,
        ready: Ready,
        kept: Kept,
        tools: Collection[str],
        halting: Halting,
    ) -> Report:
        """Return a report whose success was looked at; any other report as it is."""
        if not isinstance(report.outcome, Succeeded):
            return report
        aside = report.aside or NOTHING
        try:
            checks = checks_in(assignment.task.spec)
        except Invalid as fault:
            return replace(report, outcome=_failed(str(fault), retryable=False))
        if not checks:
            return report
        looks = await patiently(lambda: self._store.begin_checks(kept.run_id, kept.epoch))
        if looks > MOST_LOOKS:
            return replace(report, outcome=_failed(CUT_OFF, retryable=False), messages=())
        reach("check.begin")
        await self._beside.end(kept)
        called = {*tools, *await self._called(checks, kept)}
        outcome = Outcome(report.outcome.result, called)
        findings = []
        for check in checks:
            look = _Look(self, check, outcome, assignment, ready, kept, halting)
            findings.append(await look.found())
            reach("check.looked")
        against = failing(findings)
        verdict = Checked.VERIFIED if against is None else Checked.CONTRADICTED
        aside = replace(aside, checks=told(findings), checked=verdict)
        reach("check.end")
        if against is None:
            return replace(report, aside=aside)
        return replace(report, outcome=_failed(against), messages=(), aside=aside)

    async def _called(self, checks: Collection[Check], kept: Kept) -> set[str]:
        """Return the tools that earlier tries of the attempt have called, from the record."""
        if kept.tries == 0 or all(check.kind is not CheckKind.TOOL_CALLED for check in checks):
            return set()
        began = from_micros(kept.began)
        return {
            str(event.data.get("tool"))
            for event in await self._store.run_events(kept.run_id)
            if event.name is EventName.TOOL and event.at >= began
        }

    async def begin(self, assignment: Assignment, *, anew: bool) -> None:
        """Note how the files are that an attempt is to write, before anything of it begins."""
        checks = checks_in(assignment.task.spec)
        paths = [check.wanted for check in checks if check.kind is CheckKind.FILE_NEWER]
        if self._probes is not None and paths:
            await self._probes.note_files(*_where(assignment), paths, anew=anew)

    async def file(self, check: Check, assignment: Assignment) -> Finding:
        """Look whether a file was written since the attempt began."""
        name = name_of(check)
        if self._probes is None:
            return _unseen(name)
        seen = await self._probes.file(*_where(assignment), check.wanted)
        if isinstance(seen, str):
            return Finding(name, passed=False, evidence=seen)
        at = from_micros(seen.written)
        words = f"it has {seen.size} bytes and was written at {at:%Y-%m-%d %H:%M:%S} UTC"
        return Finding(name, bool(seen.changed), words + SINCE[seen.changed])

    async def url(self, check: Check, site: Site, halting: Halting) -> Finding:
        """Look whether an address answers well."""
        name = name_of(check)
        if not reaches_out(site):
            return Finding(name, passed=False, evidence=NO_WAY_OUT)
        if self._probes is None:
            return _unseen(name)
        seconds = check.seconds or USUAL_SECONDS / 2
        seen = await halting.unless(self._probes.answers(check.wanted, check.contains, seconds))
        return Finding(name, *(seen or (False, STOPPED)))

    async def pattern(self, look: _Look) -> Finding:
        """Look whether a pattern is found in the result."""
        check, space = look.check, look.assignment.task.space
        text = text_of(look.outcome.result)
        found = await self._evaluated(look, lambda on: on.search(space, check.wanted, text))
        if isinstance(found, Finding):
            return found
        told = "the result matches it" if found else "nothing matches it"
        return Finding(name_of(check), not found, told)

    async def schema(self, look: _Look) -> Finding:
        """Look whether the result fits a schema."""
        check, space, result = look.check, look.assignment.task.space, look.outcome.result
        faults = await self._evaluated(
            look, lambda on: on.check_result(space, check.wanted, result)
        )
        if isinstance(faults, Finding):
            return faults
        return Finding(name_of(check), not faults, "; ".join(faults) or "the result fits")

    async def _evaluated(
        self, look: _Look, ask: Callable[[Probes], Awaitable[Answer | None]]
    ) -> Answer | Finding:
        """Return what an evaluation comes to, or that the check does not hold without it."""
        name = name_of(look.check)
        if self._probes is None:
            return _unseen(name)
        try:
            answer = await look.halting.unless(ask(self._probes))
        except Unavailable as fault:
            return Finding(name, passed=False, evidence=str(fault))
        if answer is not None:
            return answer
        halted = look.halting.halted.is_set()
        return Finding(name, passed=False, evidence=STOPPED if halted else TOO_LONG)

    async def command(self, look: _Look) -> Finding:
        """Run a program where the attempt's own ran; it is told the result on its input."""
        check, ready = look.check, look.ready
        given = {"run": look.kept.run_id, "result": json.loads(look.outcome.result or "null")}
        wish = Wish(program=tuple(check.wanted), instructions=json.dumps(given, ensure_ascii=False))
        seconds = check.seconds or USUAL_SECONDS
        bounds = replace(
            ready.bounds, hard_seconds=seconds, idle_seconds=None, output_bytes=1 << 20
        )
        ran = await self._beside.run(look.kept, ready, wish, bounds, look.halting.hold)
        return _ran(name_of(check), ran.ending, ran.words, seconds)


@dataclass(frozen=True, slots=True)
class _Look:
    """One look of one check."""

    eyes: Checking
    check: Check
    outcome: Outcome
    assignment: Assignment
    ready: Ready
    kept: Kept
    halting: Halting

    async def found(self) -> Finding:
        """Return what the check finds."""
        if self.halting.halted.is_set():
            return Finding(name_of(self.check), passed=False, evidence=STOPPED)
        pure = examined(self.check, self.outcome)
        if pure is not None:
            return pure
        match self.check.kind:
            case CheckKind.FILE_NEWER:
                return await self.eyes.file(self.check, self.assignment)
            case CheckKind.URL:
                return await self.eyes.url(self.check, self.ready.site, self.halting)
            case CheckKind.COMMAND:
                return await self.eyes.command(self)
            case CheckKind.JSON_SCHEMA:
                return await self.eyes.schema(self)
            case _:
                return await self.eyes.pattern(self)


def _where(assignment: Assignment) -> tuple[tuple[RunId, Epoch], str, str | None]:
    """Return an attempt, and the space and folder in which its files are."""
    lease, task = assignment.lease, assignment.task
    folder = task.spec.get("folder")
    return (lease.run_id, lease.epoch), task.space, None if folder is None else str(folder)


def _ran(name: str, ending: Ending | None, words: str, seconds: float) -> Finding:
    if ending is None:
        return Finding(name, passed=False, evidence=f"it could not be started: {words}")
    if ending.reason is Reason.EXITED:
        how = f"it ended with {ending.code}"
    elif ending.reason is Reason.HARD_TIMEOUT:
        how = f"it took longer than {seconds:g} s and was ended"
    else:
        how = f"it ended by {ending.signal or ending.reason}"
    passed = ending.reason is Reason.EXITED and ending.code == 0
    return Finding(name, passed, f"{how}\n{words}".strip() if not passed else how)


def _unseen(name: str) -> Finding:
    return Finding(name, passed=False, evidence="nothing here can look at it")


def _failed(message: str, *, retryable: bool = True) -> Failed:
    return Failed(code=FAILED, message=message, retryable=retryable)
