"""The log: formats, levels and the log file.

Every record of a `rota.*` logger is an event name with fields. Both formats use the same records.
The lines of a run have its `run_id` and a `trace_id` that is the same for all attempts.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Any, TextIO, TypeAlias

from rota.errors import Unavailable
from rota.model.ids import trace_id
from rota.model.text import visible

Event: TypeAlias = dict[str, Any]
Renderer: TypeAlias = Callable[[Event], str]

TASK_WIDTH = 14
OUTCOME_WIDTH = 10

_COLORS = {"succeeded": 32, "failed": 31, "cancelled": 33, "expired": 33, "asked": 36}
_LOUD = {"warning": 33, "error": 31, "critical": 31}
_OWN = frozenset({"event", "level", "logger", "timestamp", "trace_id", "exception"})
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Attributes that the logging module sets itself."""


def configure_logging(
    level: str,
    form: str,
    *,
    color: bool = True,
    stream: TextIO | None = None,
    file: Path | None = None,
    redact: Callable[[str], str] | None = None,
) -> Callable[[str], None]:
    """Log to stderr as JSON or text; `auto` means text on a terminal.

    A log file gets every record as JSON. `redact` is applied to each line. Returns a function that
    sets the incarnation of the database for trace ids, once it is open.
    """
    out = stream or sys.stderr
    human = form == "text" or (form == "auto" and out.isatty())
    tracer = _Tracer()
    as_text = TextRenderer(color=color and out.isatty())
    handlers: list[tuple[logging.Handler, Renderer]] = [
        (logging.StreamHandler(out), as_text if human else as_json)
    ]
    if file is not None:
        handlers.append((LogFile(file), as_json))
    root = logging.getLogger()
    for old in tuple(root.handlers):
        root.removeHandler(old)
    for handler, renderer in handlers:
        handler.setFormatter(_Formatter(tracer, renderer, redact))
        root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("rota").setLevel(level.upper())
    return tracer.name


class _Tracer:
    """Computes the trace id of a run."""

    def __init__(self) -> None:
        self._incarnation = ""

    def name(self, incarnation: str) -> None:
        """Use the incarnation of the database in trace ids from now on."""
        self._incarnation = incarnation

    def of(self, run_id: int) -> str:
        """Return the trace id of a run."""
        return trace_id(self._incarnation, run_id)


class _Formatter(logging.Formatter):
    """Adds the common fields to a record and renders it."""

    def __init__(
        self, tracer: _Tracer, renderer: Renderer, redact: Callable[[str], str] | None
    ) -> None:
        super().__init__()
        self._tracer = tracer
        self._renderer = renderer
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = self._renderer(self._event(record))
        return line if self._redact is None else self._redact(line)

    def _event(self, record: logging.LogRecord) -> Event:
        event: Event = {"event": record.getMessage()}
        event.update((key, value) for key, value in vars(record).items() if key not in _STANDARD)
        event["level"] = record.levelname.lower()
        event["logger"] = record.name
        at = datetime.fromtimestamp(record.created, tz=UTC)
        event["timestamp"] = at.isoformat(timespec="microseconds").replace("+00:00", "Z")
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        if event.get("run_id") is not None:
            event["trace_id"] = self._tracer.of(event["run_id"])
        return event


def as_json(event: Event) -> str:
    """Render a record as a line of JSON."""
    return visible(json.dumps(event, default=str))


class TextRenderer:
    """Renders a record as one line: `09:00:01  hello         succeeded   run 12   3 ms`."""

    def __init__(self, *, color: bool) -> None:
        self._color = color

    def __call__(self, event: Event) -> str:
        """Return the line."""
        event = {key: _shown(value) for key, value in event.items()}
        clock = _clock(str(event["timestamp"]))
        match event["event"]:
            case "run.settled":
                line = self._settled(event)
            case "message.sent":
                line = f"{'message':<{TASK_WIDTH}} {event.get('target') or 'log'}: {event['body']}"
            case _:
                line = self._plain(event)
        text = f"{self._paint(clock, 2)}  {line}".rstrip()
        exception = event.get("exception")
        return f"{text}\n{exception}" if exception else text

    def _settled(self, event: Event) -> str:
        outcome = str(event["outcome"])
        color = _COLORS.get(outcome, 0)
        parts = [
            f"{event['task']:<{TASK_WIDTH}}",
            self._paint(f"{outcome:<{OUTCOME_WIDTH}}", color),
            f"run {event['run_id']:<5}",
            f"{_milliseconds(event.get('ms', 0)):>8}",
        ]
        if event.get("attempt", 1) > 1:
            parts.append(f"attempt {event['attempt']}")
        if event.get("error"):
            parts.append(str(event["error"]))
        return " ".join(parts)

    def _plain(self, event: Event) -> str:
        facts = " ".join(
            f"{key}={_value(value)}" for key, value in event.items() if key not in _OWN
        )
        said = self._paint(str(event["event"]), _LOUD.get(str(event["level"]), 0))
        return f"{said}  {facts}"

    def _paint(self, text: str, code: int) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._color and code else text


def _shown(value: Any) -> Any:  # noqa: ANN401 - whatever was logged
    return value if value is None or isinstance(value, (int, float)) else visible(str(value))


def _clock(timestamp: str) -> str:
    return datetime.fromisoformat(timestamp).astimezone().strftime("%H:%M:%S")


def _milliseconds(value: float) -> str:
    if value < 1_000:  # noqa: PLR2004 - a second
        return f"{value:.0f} ms"
    return f"{value / 1_000:.1f} s"


def _value(value: Any) -> str:  # noqa: ANN401 - whatever was logged
    text = str(value)
    return repr(text) if " " in text or not text.isprintable() or not text else text


LONGEST = 10 << 20
OLDER = 5
PRIVATE = 0o600
FOLDER = 0o700


class LogFile(RotatingFileHandler):
    """A rotating log file for its owner only, with five older files."""

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
        """Report once that the disk is full, and continue."""
        if not self._told:
            self._told = True
            stream: IO[str] = sys.stderr
            stream.write(f"rota: cannot write the log {self.baseFilename} any more\n")


def _privately(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, PRIVATE)
