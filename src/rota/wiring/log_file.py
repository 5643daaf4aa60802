"""The log of a daemon on disk: private, one JSON object a line, and never more than its share."""

from __future__ import annotations

import logging
import os
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Any

from rota.errors import Unavailable

LONGEST = 10 << 20
OLDER = 5
PRIVATE = 0o600
FOLDER = 0o700


class LogFile(RotatingFileHandler):
    """A file that only its owner reads; when it is full, the five before it are kept."""

    def __init__(self, path: Path, longest: int = LONGEST) -> None:
        self._told = False
        try:
            path.parent.mkdir(mode=FOLDER, parents=True, exist_ok=True)
            super().__init__(
                path,
                maxBytes=longest,
                backupCount=OLDER,
                encoding="utf-8",
                errors="backslashreplace",
            )
        except OSError as fault:
            message = f"cannot write the log {path}: {(fault.strerror or str(fault)).lower()}"
            raise Unavailable(message) from fault

    def _open(self) -> Any:  # noqa: ANN401 - as logging declares it
        return open(
            self.baseFilename, "a", encoding=self.encoding, errors=self.errors, opener=_privately
        )

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802, ARG002 - logging's name
        """Say once that the disk does not take any more; work goes on without."""
        if not self._told:
            self._told = True
            stream: IO[str] = sys.stderr
            stream.write(f"rota: cannot write the log {self.baseFilename} any more\n")


def _privately(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, PRIVATE)
