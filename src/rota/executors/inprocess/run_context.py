"""The context that a callable gets, and how callables are found."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from rota.errors import Invalid, RotaError
from rota.model.attempts import MAX_RESULT_BYTES, Assignment, OutgoingMessage, WaitingForAnswer
from rota.model.json import encode
from rota.model.runs import Lease

MAX_MESSAGE = 64 * 1024
MAX_QUESTION = 4 * 1024


class WaitForAnswer(BaseException):
    """Raised by `ask` to end the attempt with a question."""

    def __init__(self, asked: WaitingForAnswer) -> None:
        super().__init__(asked.question)
        self.asked = asked


class RunContext:
    """The run that a callable executes.

    `payload` is the payload of the run; `attempt` counts from 1; `slot_at` is the planned instant
    of a scheduled run.
    """

    __slots__ = ("_answers", "_asked", "_assignment", "_messages", "_payload")

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._answers = assignment.answers
        self._asked = 0
        self._messages: list[OutgoingMessage] = []
        self._payload: object = _UNREAD

    @property
    def lease(self) -> Lease:
        """The lease of this run."""
        return self._assignment.lease

    @property
    def id(self) -> int:
        """The run's id."""
        return self.lease.run_id

    @property
    def trace_id(self) -> str:
        """The name of the run in logs, for your own logs."""
        return self._assignment.trace_id

    @property
    def task(self) -> str:
        """The name of the task."""
        return self._assignment.task.name

    @property
    def payload(self) -> object:
        """The payload of the run."""
        if self._payload is _UNREAD:
            self._payload = json.loads(self.lease.payload)
        return self._payload

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1."""
        return self.lease.epoch

    @property
    def key(self) -> str | None:
        """The key with which the run was queued."""
        return self.lease.key

    @property
    def slot_at(self) -> datetime | None:
        """The planned instant of a scheduled run; None for other runs."""
        return self.lease.slot_at

    async def ask(
        self,
        question: str,
        *,
        context: str = "",
        options: tuple[str, ...] = (),
        expires_in: timedelta = timedelta(hours=24),
        default: str | None = None,
    ) -> str:
        """Return a person's answer; until then the run waits without occupying a worker.

        If nobody answers in time, `default` is the answer; without a default the run expires.

        The first call ends this attempt. After the answer the callable runs again from the start,
        and the call returns the answer: do what must happen once after asking. Questions are
        matched in the order in which they are asked.
        """
        if not question or len(question) > MAX_QUESTION:
            raise Invalid("question", question, f"needs 1 to {MAX_QUESTION} characters")
        number = self._asked
        self._asked += 1
        if number < len(self._answers):
            return self._answers[number]
        raise WaitForAnswer(
            WaitingForAnswer(
                question=question,
                context=context,
                options=tuple(options),
                expires_in=expires_in,
                default=default,
            )
        )

    def send(self, body: str, *, to: str = "log:") -> None:
        """Send a message after the run has succeeded; `to` is `channel:target`.

        It is written to the outbox in the transaction that records the success, so a failed attempt
        sends nothing, and a repeated one sends it once.
        """
        if not body or len(body.encode()) > MAX_MESSAGE:
            raise Invalid("body", body, "needs 1 byte to 64 KiB")
        channel, _, target = to.partition(":")
        client_id = f"message:{len(self._messages)}"
        self._messages.append(
            OutgoingMessage(client_id=client_id, channel=channel, target=target, body=body)
        )

    @property
    def messages(self) -> tuple[OutgoingMessage, ...]:
        """The messages to send on success."""
        return tuple(self._messages)


_UNREAD = object()

Function: TypeAlias = Callable[[RunContext], Any]


class InvalidResult(RotaError):
    """A callable returned something that cannot be stored."""

    code = "bad_result"


def encode_result(result: object) -> str | None:
    """Return a result as JSON text; None stays None."""
    if result is None:
        return None
    try:
        text = encode(result)
    except (TypeError, ValueError) as error:
        message = f"it returned something that is not JSON ({error}): return plain values"
        raise InvalidResult(message) from None
    if len(text.encode()) > MAX_RESULT_BYTES:
        message = f"it returned {len(text)} characters of JSON: at most 256 KiB are kept"
        raise InvalidResult(message)
    return text


def resolve(path: str) -> Function:
    """Return the callable of a `module:function` path."""
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise Invalid("call", path, "write it as module:function")
    try:
        found: object = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise Invalid("call", path, f"the module cannot be imported ({error})") from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise Invalid("call", path, f"{module_name} has no callable {name}")
    function: Function = found
    return function
