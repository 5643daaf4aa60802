"""Ends: the last words of a program, wherever it left them."""

from __future__ import annotations

from dataclasses import replace

from rota.flow.execute.minding import Minding
from rota.flow.execute.scripts import result_line
from rota.model.keeping import CANNOT_START, UNBEGUN, Ending, Kept, Reason, Stream
from rota.ports.agent import Reader
from rota.ports.runner import Assignment
from rota.ports.yard import Yard

LAST_WORDS = 16 * 1024
"""As much as the longest trace has that stands behind what a program died of."""


async def with_last_words(minding: Minding, kept: Kept, ending: Ending) -> Ending:
    """Return an ending with what the spools tell: its last words, and whether it has begun."""
    err = ending.err
    words = await minding.read(kept, Stream.ERR, max(0, err.size - LAST_WORDS), LAST_WORDS)
    begun = await _begun_now(minding, kept, ending)
    return replace(ending, err=replace(err, tail=words + err.tail), begun=begun)


async def has_begun(minding: Minding, kept: Kept, ending: Ending) -> bool:
    """Whether a program of an attempt has begun, in this try or in one before.

    One that has begun may have read what it was given, whatever it came to.
    """
    return kept.tries > 0 or await _begun_now(minding, kept, ending)


async def _begun_now(minding: Minding, kept: Kept, ending: Ending) -> bool:
    """An executor that could not start a program says so, first and alone, and fails."""
    if ending.reason in UNBEGUN:
        return False
    if ending.reason is not Reason.EXITED or not ending.code:
        return True
    first = {await minding.read(kept, stream, 0, len(CANNOT_START)) for stream in Stream}
    return first != {CANNOT_START, b""}


async def read_result(minding: Minding, kept: Kept, assignment: Assignment, reader: Reader) -> None:
    """Let what a script left in its result file count as its last line."""
    line = result_line(await minding.result(kept, assignment) or b"")
    if line is not None:
        reader.feed(line)


def has_written(yard: Yard, kept: Kept) -> bool | None:
    """Return whether an attempt has written to somewhere outside; None if that is not known."""
    seen = yard.wrote(kept)
    return seen if seen is not None or kept.writes else False
