"""Every error raised on purpose, grouped by who must act.

RotaError
|- Refused             the caller must change something
|  |- Invalid           a value is wrong: names the field, the value and what to do
|  |- NotFound          there is no such thing
|  |- Conflict          it exists already, and differs
|  |  `- OverLimit       a space has as many of these as it may
|  |- IllegalMove       the run's state does not allow it
|  |- NotPermitted      this caller may not do it
|  |- Fenced            the attempt that asks is over
|  |- SqlRefused        a query asks for what is not to be had, or is wrong
|  |- SqlTimeout        a query took too long
|  |- SqlFailed         a query went wrong underway
|  `- Unknown           nobody knows who this caller is
|- Unavailable         the caller may try again later
|  |- Busy              another process holds what is needed
|  |  `- Stale          what was decided about has changed meanwhile
|  |- Exhausted         this machine has run out of room, memory or files
|  `- SchemaMismatch    the database and this version do not fit
|- LeaseLost           stop work at once; somebody else owns the run
|- RunCancelled        raised inside a run that somebody cancelled
`- Rehearsed           it would have been done; nothing was changed
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

LONGEST_SHOWN_VALUE = 80


def shown(value: object) -> str:
    """Return a value as it may stand in a sentence: quoted, printable and short."""
    text = value if isinstance(value, str) else _words_of(value)
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:200])
    if len(text) > LONGEST_SHOWN_VALUE:
        text = text[: LONGEST_SHOWN_VALUE - 1] + "…"
    return f'"{text}"'


def _words_of(value: object) -> str:
    return f"{value.total_seconds():g} s" if isinstance(value, timedelta) else repr(value)


class RotaError(Exception):
    """Base of every error raised on purpose; `code` is stable and documented."""

    code = "error"


class Refused(RotaError):
    """The request cannot be honoured as it stands."""

    code = "refused"


class Invalid(Refused):
    """A value is wrong; the sentence names the field, the value and what to do."""

    code = "invalid"

    def __init__(self, field: str, value: object, advice: str) -> None:
        super().__init__(f"{field} {shown(value)}: {advice}")
        self.field = field
        self.value = value
        self.advice = advice


class NotFound(Refused):
    """There is no such thing, or not for this caller."""

    code = "not_found"

    def __init__(self, noun: str, name: object, advice: str = "") -> None:
        super().__init__(f"no {noun} {shown(name)}{': ' + advice if advice else ''}")
        self.noun = noun
        self.name = name


class Conflict(Refused):
    """The same name or key stands for something else already."""

    code = "conflict"


class OverLimit(Conflict):
    """The space has as many of these as it may."""

    code = "over_limit"


class IllegalMove(Refused):
    """A run was asked to do something its state does not allow."""

    code = "illegal_move"

    def __init__(self, state: str, move: str) -> None:
        super().__init__(f"a {state} run cannot {move}")
        self.state = state
        self.move = move


class NotPermitted(Refused):
    """This caller may not do that."""

    code = "not_permitted"


class InDoubt(Conflict):
    """A request under this key was begun, and its answer is not known: look, then ask anew."""

    code = "in_doubt"


class Fenced(Refused):
    """The attempt on whose behalf this was asked is over, so nothing was done."""

    code = "fenced"

    def __init__(self, run_id: int, epoch: int) -> None:
        super().__init__(f"attempt {epoch} of run {run_id} is over: nothing was done")


class Unknown(Refused):
    """Nobody knows who this caller is."""

    code = "unauthorized"


class SqlRefused(Refused):
    """A query asks for something that is not to be had, or is no query."""

    code = "sql_refused"


class SqlTimeout(Refused):
    """A query took longer than it may."""

    code = "sql_timeout"


class SqlFailed(Refused):
    """A query went wrong while it was answered; the sentence says nothing of what it read."""

    code = "sql_failed"


class Unavailable(RotaError):
    """It cannot be done now; the same request may succeed later."""

    code = "unavailable"


class Busy(Unavailable):
    """Another process holds what is needed."""

    code = "busy"


class Stale(Busy):
    """What was decided about has changed meanwhile, so nothing was done."""

    code = "stale"


class Exhausted(Unavailable):
    """This machine has run out of something that a program needs to begin."""

    code = "exhausted"


class SchemaMismatch(Unavailable):
    """The database's schema does not fit this version of Rota."""

    code = "schema_mismatch"


class LeaseLost(RotaError):
    """The run belongs to somebody else now; whatever this attempt found is not recorded."""

    code = "lease_lost"


class RunCancelled(RotaError):
    """Somebody cancelled the run this code works for."""

    code = "run_cancelled"


class DryRunRolledBack(RotaError):
    """A change went well and was taken back, because it was only to be tried."""

    code = "rehearsed"


ADVICE: Mapping[str, str] = {
    "string_too_short": "write something",
    "too_short": "give it something",
    "string_too_long": "use at most {max_length} characters",
    "greater_than_equal": "give a number of at least {ge}",
    "greater_than": "give a number above {gt}",
    "less_than_equal": "give a number of at most {le}",
    "less_than": "give a number below {lt}",
    "int_parsing": "give a whole number",
    "int_parsing_size": "give a whole number that is not as long",
    "int_from_float": "give a whole number",
    "int_type": "give a whole number",
    "float_parsing": "give a number",
    "float_type": "give a number",
    "bool_parsing": "write true or false",
    "bool_type": "write true or false",
    "string_type": "write a text",
    "enum": "choose one of {expected}",
    "literal_error": "choose one of {expected}",
}
"""By the type of what is wrong, as who looks at shapes calls it."""


def advice_on(error: Mapping[str, Any]) -> str:
    """Return what to do about one thing that is wrong with a shape."""
    known = ADVICE.get(error["type"])
    if known is not None:
        return known.format(**(error.get("ctx") or {}))
    told = str(error["msg"]).removeprefix("Value error, ")
    return told[:1].lower() + told[1:]
