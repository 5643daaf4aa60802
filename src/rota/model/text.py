"""Make text from outside safe to store and to show."""

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
CONTROLS = r"\x00-\x1f\x7f-\x9f"
INVISIBLE = (
    r"\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    r"\ufff9-\ufffb"
)
"""Characters that are invisible or change the direction of text, for a character class.

The joiners U+200C and U+200D are not among them: Persian, Hindi and many emoji need them.
"""
OBEYED = re.compile(
    rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{INVISIBLE}\ud800-\udfff\ue000-\uf8ff"
    r"\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e00ff\U000e01f0-\U000e0fff\U000f0000-\U0010ffff]|\r(?!\n)"
)
"""Characters that a terminal interprets or does not show, except line ends and tabs."""

MORE = "… output omitted here; its end follows when the program has ended"
"""Replaces output that is too long to be recorded as it arrives."""
COLOUR = re.compile(r"\x1b\[[0-9;:]{0,32}m")
PLAIN_AGAIN = "\x1b[0m"


def coloured(text: str) -> str | None:
    """Return clean text with its colours, reset at the end; None if it has no colours."""
    marks = COLOUR.findall(text)
    if not marks:
        return None
    parts = [clean(part) for part in COLOUR.split(text)]
    shown = "".join(f"{part}{mark}" for part, mark in zip(parts, [*marks, ""], strict=True))
    return f"{shown}{PLAIN_AGAIN}"


def visible(text: str) -> str:
    """Return text with invisible and control characters as JSON escapes.

    A JSON document stays valid and keeps its meaning.
    """
    return OBEYED.sub(_escaped, text)


def visible_coloured(text: str) -> str:
    """Return visible text with its colours."""
    parts = map(visible, COLOUR.split(text))
    marks = [*COLOUR.findall(text), ""]
    return "".join(f"{part}{mark}" for part, mark in zip(parts, marks, strict=True))


def _escaped(found: re.Match[str]) -> str:
    data = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))


def clean(text: str) -> str:
    """Return text without terminal sequences, control characters and lone surrogates."""
    text = SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
    text = SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return text.translate(UNSEEN)
