"""Ends: the last words of a program, wherever it left them."""

from __future__ import annotations

from dataclasses import replace

from rota.flow.execute.scripts import result_line
from rota.model.keeping import CANNOT_START, UNBEGUN, Ending, Kept, Reason, Stream
from rota.model.tasks import TaskKind
from rota.ports.agent import Reader
from rota.ports.runner import Assignment
from rota.ports.yard import Yard

LAST_WORDS = 4 * 1024


def with_last_words(yard: Yard, kept: Kept, ending: Ending) -> Ending:
    """Return an ending whose standard error ends with what is in the spool, too."""
    err = ending.err
    words = yard.read(kept, Stream.ERR, max(0, err.size - LAST_WORDS), LAST_WORDS)
    return replace(ending, err=replace(err, tail=words + err.tail))


def has_begun(yard: Yard, kept: Kept, ending: Ending) -> bool:
    """Whether a program of an attempt has begun, in this try or in one before.

    An executor that could not start it says so, first and alone, and fails; one that has begun may
    have read what it was given, whatever it came to.
    """
    if kept.tries > 0 or ending.reason in UNBEGUN:
        return kept.tries > 0
    if ending.reason is not Reason.EXITED or not ending.code:
        return True
    return all(yard.read(kept, stream, 0, len(CANNOT_START)) != CANNOT_START for stream in Stream)


def read_result(yard: Yard, assignment: Assignment, reader: Reader) -> None:
    """Let what a script left in its result file count as its last line."""
    if assignment.task.kind is TaskKind.SCRIPT:
        line = result_line(yard.result(assignment) or b"")
        if line is not None:
            reader.feed(line)


def has_written(yard: Yard, kept: Kept) -> bool | None:
    """Return whether an attempt has written to somewhere outside; None if that is not known."""
    seen = yard.wrote(kept)
    return seen if seen is not None or kept.writes else False
