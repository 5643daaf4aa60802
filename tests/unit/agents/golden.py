"""The recorded streams of real agents, and how what was read of them is written down."""

from __future__ import annotations

from pathlib import Path

from rota.model.agents import ProcessExit
from rota.model.json import to_json

FOLDER = Path(__file__).parent / "recorded"


def described(told):
    """Return what was said and the verdict as JSON, each with its type."""
    return {"said": [named(said) for said in told.said], "verdict": judged(told.verdict)}


USUAL = {"silent": False, "next_check": None, "own": None, "rest": None, "sentence": None}
"""What recordings leave out while it is as usual."""


def named(value):
    told = to_json(value)
    usual = {name for name, usual in USUAL.items() if told.get(name, ...) == usual}
    return {"is": type(value).__name__, **{k: told[k] for k in told if k not in usual}}


def judged(verdict):
    told = {**to_json(verdict), "outcome": named(verdict.outcome)}
    return told if told.pop("guessed") is False else {**told, "guessed": True}


def load_exit(end):
    stderr = end["stderr"].encode()
    return ProcessExit(code=end["code"], signal=end["signal"], stderr_tail=stderr)
