"""Whether what attempts have said can be true: what they deferred, and what people decided."""

from __future__ import annotations

from collections.abc import Iterator

from rota.model.records import History, QuestionRecord, RunRecord
from rota.model.states import RunState
from rota.model.verification import Invariant
from rota.rules.approvals import APPROVAL, APPROVE, DECISIONS, action_digest
from rota.rules.control import is_control

Fault = tuple[Invariant, str]


def judge_talk(run: RunRecord, history: History) -> Iterator[Fault]:
    """Yield what does not hold of a run's deferred operations and decisions."""
    if run.deferred and run.finished_at is not None:
        what = f"is {run.state}, and {run.deferred} deferred operations are left"
        yield Invariant.FOLLOW_UP, what
    if run.applied and run.state != RunState.SUCCEEDED:
        what = f"is {run.state}, but {run.applied} effects that wait for a success were done"
        yield Invariant.FOLLOW_UP, what
    if run.strays:
        what = f"has {run.strays} deferred operations of an attempt that cannot have asked for them"
        yield Invariant.FENCED, what
    for question in history.questions:
        if question.kind == APPROVAL and not _is_bound(question):
            yield Invariant.DECISIONS, f"the approval of its attempt {question.epoch} is not bound"
        elif _is_undone(question):
            what = f"what its attempt {question.epoch} had approved, nobody knows the outcome of"
            yield Invariant.DECISIONS, what


def _is_bound(question: QuestionRecord) -> bool:
    """Whether an approval still shows what was hashed, and was decided as approvals are."""
    if question.action is None or question.digest != action_digest(question.action):
        return False
    return question.answered_at is None or question.answer in DECISIONS


def _is_undone(question: QuestionRecord) -> bool:
    """Whether Rota was to do something itself, and has not written down what came of it."""
    approved = question.answered_at is not None and question.answer == APPROVE
    return approved and question.outcome is None and is_control(question.action)
