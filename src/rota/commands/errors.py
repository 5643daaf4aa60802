"""Error codes with their HTTP statuses and exit codes."""

from __future__ import annotations

from typing import Any, NamedTuple

from rota.errors import (
    Conflict,
    Fenced,
    IllegalMove,
    InDoubt,
    Invalid,
    NotFound,
    NotPermitted,
    OverLimit,
    Refused,
    RotaError,
    SqlFailed,
    SqlRefused,
    SqlTimeout,
    Stale,
    Unavailable,
    Unknown,
)


class ErrorCode(NamedTuple):
    """What a kind of fault means to a program."""

    status: int
    exit_code: int


DONE = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
DENIED = 4
CONFLICT = 5
UNREACHABLE = 6
WAITING = 7
TIMEOUT = 8
INTERRUPTED = 130
SERVER_FAULTS = 500
ON_THE_WAY = {429: DENIED, 502: UNREACHABLE, 504: UNREACHABLE}
"""What a guard or a proxy answers before anybody has heard the request."""

TOLD: dict[type[RotaError], ErrorCode] = {
    Invalid: ErrorCode(400, USAGE),
    Unknown: ErrorCode(401, DENIED),
    NotPermitted: ErrorCode(403, DENIED),
    NotFound: ErrorCode(404, NOT_FOUND),
    IllegalMove: ErrorCode(409, CONFLICT),
    Conflict: ErrorCode(409, CONFLICT),
    OverLimit: ErrorCode(409, CONFLICT),
    InDoubt: ErrorCode(409, CONFLICT),
    Fenced: ErrorCode(409, CONFLICT),
    SqlRefused: ErrorCode(400, USAGE),
    SqlTimeout: ErrorCode(400, TIMEOUT),
    SqlFailed: ErrorCode(400, FAILED),
    Refused: ErrorCode(400, USAGE),
    Stale: ErrorCode(412, CONFLICT),
    Unavailable: ErrorCode(503, UNREACHABLE),
    RotaError: ErrorCode(500, FAILED),
}
"""By kind; a kind that is not named is told like the one it is a kind of."""


def error_code(fault: RotaError) -> ErrorCode:
    """Return what a fault means to a program."""
    return next(TOLD[kind] for kind in type(fault).__mro__ if kind in TOLD)


def exit_code_of(status: int, code: str) -> int:
    """Return the exit code for what another process has answered: by its code, or its status."""
    for kind, known in TOLD.items():
        if kind.code == code and known.status == status:
            return known.exit_code
    statuses = {known.status: known.exit_code for known in TOLD.values()} | ON_THE_WAY
    return statuses.get(status, USAGE if status < SERVER_FAULTS else FAILED)


def fault_record(fault: RotaError, hint: str | None = None) -> dict[str, Any]:
    """Return a fault as the body of an answer."""
    error: dict[str, Any] = {"code": fault.code, "message": str(fault)}
    if isinstance(fault, Invalid):
        error["field"] = fault.field
    if hint is not None:
        error["hint"] = hint
    return {"error": error}
