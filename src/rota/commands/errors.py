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
    """HTTP status and exit code of an error class."""

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
SERVER_ERRORS = 500
PROXY_STATUSES = {429: DENIED, 502: UNREACHABLE, 504: UNREACHABLE}
"""Exit codes for statuses that a proxy answers with."""

CODES: dict[type[RotaError], ErrorCode] = {
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
"""By class; other classes are reported like their base class."""


def error_code(error: RotaError) -> ErrorCode:
    """Return the codes of an error."""
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def exit_code_of(status: int, code: str) -> int:
    """Return the exit code for an error response, by its code or its status."""
    for kind, known in CODES.items():
        if kind.code == code and known.status == status:
            return known.exit_code
    statuses = {known.status: known.exit_code for known in CODES.values()} | PROXY_STATUSES
    return statuses.get(status, USAGE if status < SERVER_ERRORS else FAILED)


def error_record(error: RotaError, hint: str | None = None) -> dict[str, Any]:
    """Return an error as the body of a response."""
    record: dict[str, Any] = {"code": error.code, "message": str(error)}
    if isinstance(error, Invalid):
        record["field"] = error.field
    if hint is not None:
        record["hint"] = hint
    return {"error": record}
