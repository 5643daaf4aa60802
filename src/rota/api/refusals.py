"""The log of refused requests, at most so many lines a second.

What a stranger can cause without a key must not fill a disk. What was left out is counted, and told
with the next line or by `tell`.
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
"""Where the server itself tells of what is no request, or of too many connections."""


class RefusalLimit(logging.Filter):
    """Lets so many records a second through, and counts the rest."""

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
        """Tell whether a record is written; the first of a second says how many were not."""
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
        """Say how many were left out since the last line, if any were."""
        if self._left_out and self._monotonic() >= self._until:
            log.info("api.refusals_left_out")

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Bound what is told of requests until the block is left."""
        sources = (log, logging.getLogger(SERVER))
        for source in sources:
            source.addFilter(self)
        try:
            yield
        finally:
            for source in sources:
                source.removeFilter(self)


def note_refusal(scope: Scope, status: int, code: str) -> None:
    """Tell that a request went no further than the guard."""
    client = scope.get("client")
    facts = {"status": status, "code": code, "address": str(client[0]) if client else ""}
    log.info("api.refused", extra={**_place(scope), **facts})


def failed(scope: Scope, fault: Exception) -> HttpResponse:
    """Tell of a fault that nobody foresaw, and return what its caller is answered."""
    log.error("api.unexpected", extra=_place(scope), exc_info=fault)
    error = {"code": "unexpected", "message": "something went wrong here; see the log"}
    return HttpResponse.record(500, {"error": error})


def _place(scope: Scope) -> dict[str, str]:
    return {"method": scope["method"][:LONGEST_PATH], "path": scope["path"][:LONGEST_PATH]}
