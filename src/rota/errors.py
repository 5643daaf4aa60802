"""Every error raised on purpose, grouped by who must act.

RotaError
|- Refused             the caller must change the request
|  |- Invalid           a value is invalid: names the field, the value and a correction
|  |- NotFound          it does not exist
|  |- Conflict          it exists and differs
|  |  |- OverLimit       a quota of the space is reached
|  |  `- InDoubt         an earlier request under the same key has no known outcome
|  |- IllegalMove       the state of the run does not allow it
|  |- NotPermitted      the caller lacks a permission
|  |- Fenced            the attempt that sent the request is over
|  |- SqlRefused        a query is invalid or not allowed
|  |- SqlTimeout        a query took too long
|  |- SqlFailed         a query failed
|  `- Unknown           the caller is not authenticated
|- Unavailable         the caller may repeat the request later
|  |- Busy              another process holds a lock
|  |  `- Stale          the data have changed since they were read
|  |- Exhausted         this machine has no disk space, memory or files left
|  `- SchemaMismatch    the database schema does not match this version
|- LeaseLost           stop work at once; another worker owns the run
|- RunCancelled        raised inside a cancelled run
`- DryRunRolledBack    a dry run succeeded; nothing was changed
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

LONGEST_SHOWN_VALUE = 80


def shown(value: object) -> str:
    """Return a value for an error message: quoted, printable and short."""
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
    """The request is invalid in this form."""

    code = "refused"


class Invalid(Refused):
    """A value is invalid; the message names the field, the value and a correction."""

    code = "invalid"

    def __init__(self, field: str, value: object, advice: str) -> None:
        super().__init__(f"{field} {shown(value)}: {advice}")
        self.field = field
        self.value = value
        self.advice = advice


class NotFound(Refused):
    """It does not exist, or is not visible to this caller."""

    code = "not_found"

    def __init__(self, noun: str, name: object, advice: str = "") -> None:
        super().__init__(f"no {noun} {shown(name)}{': ' + advice if advice else ''}")
        self.noun = noun
        self.name = name


class Conflict(Refused):
    """The name or key is already used for something else."""

    code = "conflict"


class OverLimit(Conflict):
    """A quota of the space is reached."""

    code = "over_limit"


class IllegalMove(Refused):
    """The state of the run does not allow this operation."""

    code = "illegal_move"

    def __init__(self, state: str, move: str) -> None:
        super().__init__(f"a {state} run cannot {move}")
        self.state = state
        self.move = move


class NotPermitted(Refused):
    """The caller lacks a permission."""

    code = "not_permitted"


class InDoubt(Conflict):
    """An earlier request under this key has no known outcome; check before you send it again."""

    code = "in_doubt"


class Fenced(Refused):
    """The attempt that sent the request is over, so nothing was done."""

    code = "fenced"

    def __init__(self, run_id: int, epoch: int) -> None:
        super().__init__(f"attempt {epoch} of run {run_id} is over: nothing was done")


class Unknown(Refused):
    """The caller is not authenticated."""

    code = "unauthorized"


class SqlRefused(Refused):
    """A query is invalid or uses something that is not allowed."""

    code = "sql_refused"


class SqlTimeout(Refused):
    """A query exceeded its time limit."""

    code = "sql_timeout"


class SqlFailed(Refused):
    """A query failed during execution; the message contains no data that it read."""

    code = "sql_failed"


class Unavailable(RotaError):
    """A resource is not available now; the same request may succeed later."""

    code = "unavailable"


class Busy(Unavailable):
    """Another process holds a lock."""

    code = "busy"


class Stale(Busy):
    """The data have changed since they were read, so nothing was done."""

    code = "stale"


class Exhausted(Unavailable):
    """This machine lacks a resource that a program needs to start."""

    code = "exhausted"


class SchemaMismatch(Unavailable):
    """The schema of the database does not match this version of Rota."""

    code = "schema_mismatch"


class LeaseLost(RotaError):
    """Another worker owns the run now; nothing of this attempt is recorded."""

    code = "lease_lost"


class RunCancelled(RotaError):
    """The run that this code works for was cancelled."""

    code = "run_cancelled"


class DryRunRolledBack(RotaError):
    """A dry run succeeded and was rolled back."""

    code = "rehearsed"


ADVICE: Mapping[str, str] = {
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "string_too_long": "use at most {max_length} characters",
    "greater_than_equal": "give a number of at least {ge}",
    "greater_than": "give a number above {gt}",
    "less_than_equal": "give a number of at most {le}",
    "less_than": "give a number below {lt}",
    "int_parsing": "give a whole number",
    "int_parsing_size": "give a whole number with fewer digits",
    "int_from_float": "give a whole number",
    "int_type": "give a whole number",
    "float_parsing": "give a number",
    "float_type": "give a number",
    "bool_parsing": "write true or false",
    "bool_type": "write true or false",
    "string_type": "give a text",
    "enum": "choose one of {expected}",
    "literal_error": "choose one of {expected}",
}
"""Corrections by pydantic's type of a validation error."""


def advice_on(error: Mapping[str, Any]) -> str:
    """Return the correction for one of pydantic's validation errors."""
    known = ADVICE.get(error["type"])
    if known is not None:
        return known.format(**(error.get("ctx") or {}))
    told = str(error["msg"]).removeprefix("Value error, ")
    return told[:1].lower() + told[1:]
