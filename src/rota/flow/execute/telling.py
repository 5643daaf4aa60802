"""Telling: what people in the thread of a run hear of it while it goes on.

What is to be told goes on record together with the bytes that say it, so that whoever listens next
tells nothing of it again. See `rules.telling`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from rota.flow.execute.preparing import is_reader
from rota.model.keeping import ASKING, ForPeople, Kept
from rota.model.outcomes import Succeeded
from rota.model.said import Answer, Progress, Said, ToolCall
from rota.model.settlements import NewDelivery
from rota.model.tasks import TaskKind
from rota.model.verdicts import Verdict
from rota.ports.runner import Assignment
from rota.rules.telling import (
    MOST_ANSWERS,
    PROGRESS_GAP,
    Conversation,
    digest_of,
    of_answer,
    of_begin,
    of_progress,
)
from rota.rules.wishes import is_in_conversation


def conversation(assignment: Assignment) -> Conversation | None:
    """Return where people hear of a run while it goes on; None if they do not."""
    lease, task = assignment.lease, assignment.task
    to = task.policy.deliver_to
    talks = task.kind is TaskKind.AGENT and (is_in_conversation(task) or is_reader(assignment))
    if not talks or lease.thread is None or to is None:
        return None
    return Conversation(lease.run_id, lease.space_id, to)


def begun(assignment: Assignment, kept: Kept) -> NewDelivery | None:
    """Return what says that the work for a person's message begins, if its task wants that.

    What is tried again, or goes on with an answer, has begun already; a gate is no work yet.
    """
    lease = assignment.lease
    there = conversation(assignment)
    first = not lease.retries and not lease.asked and not kept.tries and kept.gate != ASKING
    wanted = assignment.task.policy.acknowledge and is_reader(assignment)
    return of_begin(there) if there is not None and first and wanted else None


class Telling:
    """Finds out what is to be told of one try, from all it says."""

    def __init__(self, there: Conversation, kept: Kept, most_progress: int) -> None:
        self._there = there
        self._at = f"{kept.epoch}.{kept.nonce}"
        self._most = most_progress
        self.overflows = False
        """Whether it has given more results than are told on the way."""
        self._said: Counter[str] = Counter()
        self._answers: list[ForPeople] = []
        self._progress: ForPeople | None = None

    @classmethod
    def of(cls, assignment: Assignment, kept: Kept) -> Telling | None:
        """Return what tells of a try; nothing does where nobody listens."""
        there = conversation(assignment)
        return None if there is None else cls(there, kept, assignment.task.policy.progress)

    def note(self, said: Said, at: int) -> None:
        """Take what was said at an offset into account; of a burst, the newest step counts."""
        match said:
            case Answer(result=result):
                self._answer(result)
            case ToolCall(name=name, summary=summary):
                self._step(f"{name}: {summary}" if summary else name, at)
            case Progress(percent=percent, message=message):
                share = "" if percent is None else f"{percent:.0f} %"
                self._step(": ".join(part for part in (share, message) if part), at)

    def news(self) -> tuple[ForPeople, ...]:
        """Return what is new since this was asked last."""
        told = (*self._answers, *(() if self._progress is None else (self._progress,)))
        self._answers, self._progress = [], None
        return told

    def _answer(self, result: str) -> None:
        if self._said.total() == MOST_ANSWERS:
            self.overflows = True
            return
        digest = digest_of(result)
        self._said[digest] += 1
        delivery = of_answer(self._there, result, self._said[digest])
        if delivery is not None:
            self._answers.append(ForPeople(delivery))

    def _step(self, line: str, at: int) -> None:
        if not self._most:
            return
        delivery = of_progress(self._there, line, f"{self._at}.{at}")
        if delivery is not None:
            self._progress = ForPeople(delivery, self._most, PROGRESS_GAP)


def left_of(verdict: Verdict | None, telling: Telling | None) -> Verdict | None:
    """Return a verdict of which all is left to tell, unless all before its last word was told."""
    if verdict is None or not isinstance(verdict.outcome, Succeeded):
        return verdict
    if telling is not None and not telling.overflows:
        return verdict
    return replace(verdict, outcome=replace(verdict.outcome, rest=None))
