"""The log of rejected requests, with a limit of lines a second.

Clients without a key must not be able to fill the disk. Omitted lines are counted, and the next
line or `tell` reports the number.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rota.api.asgi import HttpResponse, Scope

log = logging.getLogger(__name__)

MOST_A_SECOND = 5
LONGEST_PATH = 200
LEFT_OUT = "left_out"
SERVER = "uvicorn.error"
"""The logger of uvicorn for invalid requests and connection limits."""


class RefusalLimit(logging.Filter):
    """Passes a limited number of records a second and counts the others."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, most: int = MOST_A_SECOND
    ) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._most = most
        self._until = float("-inf")
        self._told = 0
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is written; the first of a second has the number omitted."""
        now = self._monotonic()
        if now >= self._until:
            self._until, self._told = now + 1.0, 0
        if self._told == self._most:
            self._left_out += 1
            return False
        self._told += 1
        if self._left_out:
            vars(record)[LEFT_OUT], self._left_out = self._left_out, 0
        return True

    def tell(self) -> None:
        """Log the number of omitted lines since the last line, if any."""
        if self._left_out and self._monotonic() >= self._until:
            log.info("api.refusals_left_out")

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Limit the log of requests within the block."""
        sources = (log, logging.getLogger(SERVER))
        for source in sources:
            source.addFilter(self)
        try:
            yield
        finally:
            for source in sources:
                source.removeFilter(self)


def note_refusal(scope: Scope, status: int, code: str) -> None:
    """Log a rejected request."""
    client = scope.get("client")
    facts = {"status": status, "code": code, "address": str(client[0]) if client else ""}
    log.info("api.refused", extra={**_place(scope), **facts})


def failed(scope: Scope, fault: Exception) -> HttpResponse:
    """Log an unexpected exception and return its response."""
    log.error("api.unexpected", extra=_place(scope), exc_info=fault)
    error = {"code": "unexpected", "message": "internal error; see the log of the daemon"}
    return HttpResponse.record(500, {"error": error})


def _place(scope: Scope) -> dict[str, str]:
    return {"method": scope["method"][:LONGEST_PATH], "path": scope["path"][:LONGEST_PATH]}
