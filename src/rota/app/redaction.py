"""Redaction of what programs write, before it reaches the database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from rota.model.settlement import PLAIN, PLAIN_SUCCESS, Settlement
from rota.rules.redaction import Redactor
from rota.store.attempts import record_launch, record_output, schedule_relaunch
from rota.store.audit import AttemptOperation, AuditedOperation
from rota.store.heartbeats import record_heartbeats, record_missed_heartbeats
from rota.store.outbox import record_delivery
from rota.store.settlement import settle
from rota.store.store import HookedStore, Store

PROGRAM_OUTPUT = frozenset(
    {
        record_launch,
        record_output,
        record_heartbeats,
        schedule_relaunch,
        record_delivery,
        record_missed_heartbeats,
    }
)
"""The operations that record what programs wrote, or what was written about them."""
WORDLESS = frozenset({int, float, bool, type(None)})
ATTEMPT = "attempt:"
"""Prefix of the id of a caller that is an attempt."""


def with_redaction(store: Store, redactor: Redactor) -> Store:
    """Return a store that no secret reaches from programs; what people write is left as it is."""

    async def redact(
        write: Callable[..., Awaitable[Any]],
        operation: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:  # noqa: ANN401 - the result of whatever operation
        if redactor.active:
            if operation is settle:
                args = (_redact_settlements(args[0], redactor),)
            elif operation in PROGRAM_OUTPUT or _is_by_attempt(operation):
                args = tuple(cleaned(value, redactor) for value in args)
                kwargs = cleaned(kwargs, redactor)
        return await write(operation, *args, **kwargs)

    return HookedStore(store, redact)


def _is_by_attempt(operation: Callable[..., Any]) -> bool:
    if isinstance(operation, AuditedOperation):
        return operation.entry.caller.startswith(ATTEMPT)
    return isinstance(operation, AttemptOperation)


def _redact_settlements(
    settlements: Sequence[Settlement], redactor: Redactor
) -> Sequence[Settlement]:
    """Redact what carries text; most runs end with none."""
    return [
        each
        if each.extras is PLAIN or each.extras is PLAIN_SUCCESS
        else each._replace(extras=cleaned(each.extras, redactor))
        for each in settlements
    ]


def cleaned(value: Any, redactor: Redactor) -> Any:  # noqa: ANN401 - whatever a store is told
    """Return a value in whose texts no secret stands; one without any is itself."""
    kind = type(value)
    if kind is str:
        return redactor.redact_text(value)
    if kind in WORDLESS or isinstance(value, Enum):
        return value
    if kind in {list, tuple}:
        return kind(cleaned(inner, redactor) for inner in value)
    if isinstance(value, tuple):
        return kind(*(cleaned(inner, redactor) for inner in value))
    if isinstance(value, Mapping):
        return {cleaned(k, redactor): cleaned(inner, redactor) for k, inner in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        found = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
        changed = {name: cleaned(inner, redactor) for name, inner in found.items()}
        same = all(changed[name] == inner for name, inner in found.items())
        return value if same else replace(value, **changed)
    return value
