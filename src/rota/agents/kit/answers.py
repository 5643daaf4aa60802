"""Answers: an agent that is told more while it works may answer more than once."""

from __future__ import annotations

from rota.agents.kit.speaking import spoken
from rota.model.outcomes import LONGEST_RESULT
from rota.model.said import Result


class Answers:
    """What an agent has answered, turn by turn: what was for people stays for people."""

    def __init__(self) -> None:
        self._before = ""
        self._last = ""
        self._own = ""

    def go_on(self) -> None:
        """Note that more was said: what was answered so far is not the last word."""
        if self._last:
            self._before, self._last = self._last, ""

    def result(self, answer: str) -> Result:
        """Return an answer as the result, behind those before it."""
        self._own = answer
        whole = self.all_with(answer)
        return Result(text=whole, own=None if whole == answer else answer)

    def overtaken(self) -> Result | None:
        """Return the answer that more was said after, once; None if there is none."""
        own, self._own = self._own, ""
        return Result(text=own) if own else None

    def all_with(self, answer: str) -> str:
        """Return an answer behind those before it; a silent one adds nothing."""
        if not self._before:
            self._last = answer
        elif not answer or _is_silent(answer):
            self._last = self._before
        elif _is_silent(self._before):
            self._last = answer
        else:
            self._last = f"{self._before}\n\n{answer}"[-LONGEST_RESULT:]
        return self._last


def _is_silent(answer: str) -> bool:
    return spoken(Result(text=answer)).silent
