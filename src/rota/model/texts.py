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


def clean(text: str) -> str:
    """Return text without terminal sequences, control characters and half characters."""
    text = SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
    text = SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return text.translate(UNSEEN)
