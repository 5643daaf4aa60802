"""Refusals as somebody at a command line reads them: by the options that were typed."""

from __future__ import annotations

from collections.abc import Sequence

OPTIONS = {"interval": "every", "at": "once-at", "mounts": "mount"}
"""What a field of a request is called on the line, where that is another word."""
WHOLE = 'body "": '
"""How a sentence begins that is about no single field."""
FLAG = ' "True": '


def as_typed_there(sentence: str, field: str, words: Sequence[str]) -> str:
    """Return a sentence about a field as one about the option that was typed for it, if one was."""
    if not sentence.startswith(f'{field} "'):
        return sentence
    typed = {word.partition("=")[0] for word in words if word.startswith("--")}
    option = next((name for name in _names(field) if name in typed), None)
    if option is None:
        return sentence.removeprefix(WHOLE)
    rest = sentence.removeprefix(field)
    return option + (f": {rest.removeprefix(FLAG)}" if rest.startswith(FLAG) else rest)


def _names(field: str) -> list[str]:
    """Return what an option for a field may be called, the most exact first."""
    parts = field.removeprefix("policy.").replace("_", "-").split(".")
    named = ["-".join(parts[:2]), parts[0], OPTIONS.get(field, "")]
    return [f"--{name}" for name in named if name]
