"""The filter at the terminal: whatever the command line writes can be seen.

Others choose what tasks, results, messages and errors say, and a terminal obeys some characters or
shows nothing for them. Whoever paints writes to the stream beneath, and answers for the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from rota.model.text import visible


class VisibleStream:
    """A stream on which everything that is written can be seen."""

    def __init__(self, beneath: TextIO) -> None:
        self.beneath = beneath

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a stream has
        return getattr(self.beneath, name)

    def write(self, text: str) -> int:
        """Write a text, with escapes for what cannot be seen."""
        return self.beneath.write(visible(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts one after another."""
        for line in lines:
            self.write(line)


def painted(stream: TextIO) -> TextIO:
    """Return the stream beneath, for who has made visible what others say and adds colours."""
    return stream.beneath if isinstance(stream, VisibleStream) else stream


@contextmanager
def visible_output() -> Iterator[None]:
    """Let standard output and standard error show all that is written until this ends."""
    before = sys.stdout, sys.stderr
    sys.stdout = cast("TextIO", VisibleStream(painted(sys.stdout)))
    sys.stderr = cast("TextIO", VisibleStream(painted(sys.stderr)))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
