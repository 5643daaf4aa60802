"""Any program as an agent."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rota.agents.command.reader import CommandReader
from rota.agents.kit import asking
from rota.agents.kit.environment import environment
from rota.agents.kit.lines import count, parse
from rota.errors import Invalid
from rota.model.messages import ThreadMessage
from rota.model.programs import Command
from rota.model.wishes import PromptBy, Wish
from rota.ports.agent import Abilities, Prepared, Room
from rota.rules.prompts import media_of

PLACE = "{instructions}"
LONGEST_WORD = 100 * 1024
"""A single word of a program may have 128 KiB on Linux."""


class CommandAgent:
    """Runs the program a task names.

    Told by argv, the instructions take the place of the word `{instructions}`, or come last. They
    may be a stranger's message, and are never an option. A session it has told comes back in
    `ROTA_SESSION`. Told by lines, it reads one object in JSON a line: its instructions, then every
    message that comes while it works.
    """

    name = "command"
    abilities = Abilities(resume=True, program=True)

    def check(self, wish: Wish) -> None:
        """Refuse what a plain program cannot do."""
        asking.check(self.name, self.abilities, wish)
        if wish.prompt_by is not PromptBy.ARGV:
            return
        if wish.program[0] == PLACE:
            raise Invalid("command", PLACE, "name the program to run")
        if len(wish.instructions.encode()) > LONGEST_WORD:
            raise Invalid("instructions", wish.instructions, "hand over 100 KiB and more by stdin")

    def prepare(self, wish: Wish, room: Room) -> Prepared:
        """Return the program."""
        self.check(wish)
        asking.check_room(self.name, self.abilities, room)
        by_argv = wish.prompt_by is PromptBy.ARGV
        by_lines = wish.prompt_by is PromptBy.LINES
        session = {"ROTA_SESSION": room.session} if room.session else {}
        command = Command(
            argv=_told(wish.program, wish.instructions) if by_argv else wish.program,
            env=environment(room, wish.variables, session),
            cwd=room.cwd,
            stdin=b"" if by_argv else _input(wish),
            keep_stdin_open=by_lines and room.steered,
        )
        return Prepared(command=command)

    def reader(self, wish: Wish, room: Room, /) -> CommandReader:
        """Return a reader of its output."""
        return CommandReader(wish.output, room.redactor, told=self.steers(wish))

    def steers(self, wish: Wish) -> bool:
        """Return whether it reads lines, and so takes messages while it works."""
        return wish.prompt_by is PromptBy.LINES

    def line(self, message: ThreadMessage, files: str | None = None) -> bytes:
        """Return a message as a line of its input."""
        told = {"sender": message.sender, "time": message.at.isoformat(), "thread": message.thread}
        sent = media_of(message, files)
        return _line("message", id=message.id, **told, text=message.body, **sent)

    def message_in(self, line: bytes) -> int | None:
        """Return the id of the message that a line of its input is."""
        record = parse(line) or {}
        return count(record, "id") if record.get("rota") == "message" else None


def _input(wish: Wish) -> bytes:
    if wish.prompt_by is PromptBy.LINES:
        return _line("instructions", text=wish.instructions)
    return wish.instructions.encode("utf-8", "replace")


def _line(kind: str, **told: object) -> bytes:
    return json.dumps({"rota": kind, **told}).encode() + b"\n"


def _told(program: Sequence[str], instructions: str) -> tuple[str, ...]:
    words = program if PLACE in program else (*program, PLACE)
    before = ("", *words)
    return tuple(
        _literal(instructions, after) if word == PLACE else word
        for after, word in zip(before, words, strict=False)
    )


def _literal(instructions: str, after: str) -> str:
    """Return instructions as a word that is no option, behind `--` exactly as they are."""
    return f" {instructions}" if instructions.startswith("-") and after != "--" else instructions
