"""A script: a program of a space's own, or a function of a module there."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import cache

from rota.agents.command import calling
from rota.agents.command.agent import CommandAgent
from rota.agents.command.reader import CommandReader
from rota.model.wishes import Wish
from rota.ports.agent import Abilities, File, Prepared, Room
from rota.rules.programs import is_call

PAYLOAD = "payload.json"
CALLING = "call.py"


class ScriptAgent(CommandAgent):
    """Runs what a script task names, with its payload on the input and in a file.

    A function is called by the room's Python. Its environment holds nothing that was offered but
    what every program gets.
    """

    name = "script"
    abilities = Abilities(program=True)

    def prepare(self, wish: Wish, room: Room) -> Prepared:
        """Return the program with what it is told."""
        made = super().prepare(wish, room)
        folder = room.folder.rstrip("/")
        files = [File(name=PAYLOAD, content=made.command.stdin)]
        told = {"ROTA_PAYLOAD_FILE": f"{folder}/{PAYLOAD}"}
        if room.result is not None:
            told["ROTA_RESULT_FILE"] = room.result
        if room.config is not None:
            told["ROTA_CONFIG"] = room.config
        words = wish.program
        if is_call(words[0]) and room.result is not None:
            files.append(File(name=CALLING, content=_calling()))
            words = (room.python, f"{folder}/{CALLING}", words[0], room.result, *words[1:])
        command = replace(made.command, argv=words, env={**made.command.env, **told})
        return Prepared(command=command, files=tuple(files))

    def reader(self, wish: Wish, room: Room, /) -> CommandReader:
        """Return a reader of its output: no model's provider speaks through it."""
        return CommandReader(wish.output, room.redactor, has_provider=False)


@cache
def _calling() -> bytes:
    return inspect.getsource(calling).encode()
