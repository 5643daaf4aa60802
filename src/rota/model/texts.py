"""Text that anybody may have written, made safe to show and to store."""

from __future__ import annotations

import re

SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours, cursor moves
    r"|[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links, clipboards
    r"|[ -/]*[0-~])?"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
UNSEEN = dict.fromkeys(
    [*range(0x20), 0x7F, *range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
)
del UNSEEN[ord("\n")], UNSEEN[ord("\t")]
SURROGATE = re.compile("[\ud800-\udfff]")


MORE = "… there is more; the end of it follows once it has ended"
"""What stands in the place of output that is too much for the record as it comes."""
COLOUR = re.compile(r"\x1b\[[0-9;:]{0,32}m")
PLAIN_AGAIN = "\x1b[0m"


def coloured(text: str) -> str | None:
    """Return clean text with its colours, for a terminal; None if it has none.

    Nothing else a terminal obeys is left, and the colours end with the text.
    """
    marks = COLOUR.findall(text)
    if not marks:
        return None
    parts = [clean(part) for part in COLOUR.split(text)]
    shown = "".join(f"{part}{mark}" for part, mark in zip(parts, [*marks, ""], strict=True))
    return f"{shown}{PLAIN_AGAIN}"


def clean(text: str) -> str:
    """Return text without terminal sequences, control characters and half characters."""
    text = SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
    text = SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return text.translate(UNSEEN)
