"""Redaction of what attempts write, before it reaches the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any, cast

from rota.model.audit import NewAuditEntry
from rota.model.settlement import PLAIN, PLAIN_SUCCESS, Settlement
from rota.ports.store import Behalf, Store
from rota.rules.redaction import Redactor

FROM_PROGRAMS = frozenset(
    {"begin_kept", "hear", "beat", "pause_kept", "mark_delivery", "note_silence"}
)
"""The operations that write down what programs said, or what was said of them."""
WORDLESS = frozenset({int, float, bool, type(None)})
ATTEMPT = "attempt:"
"""How the id of a caller begins that is an attempt."""


def with_redaction(store: Store, redactor: Redactor) -> Store:
    """Return a store to which no secret comes from programs; what people write stays theirs."""
    return cast("Store", _Discreet(store, redactor))


class _Discreet:
    """The same store otherwise."""

    def __init__(self, store: Store, redactor: Redactor) -> None:
        self._store = store
        self._redactor = redactor

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        found = getattr(self._store, name)
        if name in FROM_PROGRAMS and self._redactor.active:
            return _Cleaning(found, self._redactor)
        return found

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Settle; most runs end with nothing to look through."""
        if self._redactor.active:
            settlements = [
                move
                if move.extras is PLAIN or move.extras is PLAIN_SUCCESS
                else move._replace(extras=cleaned(move.extras, self._redactor))
                for move in settlements
            ]
        return await self._store.settle(settlements)

    def behalf(self, request: NewAuditEntry) -> Behalf:
        """Return the store for one request; an attempt's words are a program's."""
        found = self._store.behalf(request)
        if self._redactor.active and request.caller.startswith(ATTEMPT):
            return cast("Behalf", _OfAttempt(found, self._redactor))
        return found


class _OfAttempt:
    """A store for what an attempt asks for, every word of it looked through."""

    def __init__(self, store: Behalf, redactor: Redactor) -> None:
        self._store = store
        self._redactor = redactor

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        found = getattr(self._store, name)
        return _Cleaning(found, self._redactor) if callable(found) else found


class _Cleaning:
    """An operation whose words are looked through first."""

    def __init__(self, operation: Any, redactor: Redactor) -> None:  # noqa: ANN401
        self._operation = operation
        self._redactor = redactor

    def __call__(self, *words: Any, **named: Any) -> Any:  # noqa: ANN401
        said = [cleaned(word, self._redactor) for word in words]
        return self._operation(*said, **cleaned(named, self._redactor))


def cleaned(value: Any, redactor: Redactor) -> Any:  # noqa: ANN401 - whatever a store is told
    """Return a value in whose texts no secret stands; one without any is itself."""
    kind = type(value)
    if kind is str:
        return redactor.text(value)
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
