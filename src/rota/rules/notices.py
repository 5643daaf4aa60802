"""Notices: from which priority up people are told, and in which words."""

from __future__ import annotations

import shlex

from rota.model.instants import from_micros
from rota.model.notices import Level, Notice
from rota.model.runs import OpenRun
from rota.model.settlements import NewQuestion
from rota.model.states import RunState

FLOORS = {Level.NORMAL: -2_000_000_000, Level.HIGH: 10, Level.URGENT: 100}
"""The least priority of each level; whatever is not more is normal."""
LONGEST_CONTEXT = 4_000


def level_of(priority: int) -> Level:
    """Return how much a priority matters."""
    return max((level for level in Level if FLOORS[level] <= priority), key=FLOORS.__getitem__)


def of_end(run: OpenRun, state: RunState, sentence: str) -> Notice | None:
    """Return what is told of a run that has ended: only what came to nothing is worth a notice."""
    if state not in {RunState.FAILED, RunState.EXPIRED}:
        return None
    return Notice(text=f"run {run.run_id} {sentence}")


def of_question(run: OpenRun, question: NewQuestion, to: str | None) -> Notice:
    """Return a question with everything that is needed to answer it from anywhere.

    Each line that the run wrote is marked, so that none passes for one of Rota's own.
    """
    number = run.run_id
    lines = [f"run {number} asks:", *_quoted(question.question)]
    lines += _quoted(question.context[:LONGEST_CONTEXT])
    bound = ""
    if question.action is not None:
        lines += ["To approve or deny is exactly this:", question.action]
        bound = f" --hash {question.digest}"
    lines.append(f"Answer until {from_micros(question.expires_at):%Y-%m-%d %H:%M} UTC:")
    choices = [shlex.quote(option) for option in question.options] or ["TEXT"]
    lines += [f"  rota answer {number} {choice}{bound}" for choice in choices]
    if question.default is not None:
        lines += ["Without an answer this counts:", *_quoted(question.default)]
    return Notice(text="\n".join(lines), to=to, asking=True)


def _quoted(text: str) -> list[str]:
    return [f"> {line}" for line in text.splitlines()]
