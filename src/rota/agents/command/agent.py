"""Any program as an agent."""

from __future__ import annotations

from collections.abc import Sequence

from rota.agents.command.reader import CommandReader
from rota.agents.kit import asking
from rota.agents.kit.environment import environment
from rota.errors import Invalid
from rota.model.programs import Command
from rota.model.wishes import PromptBy, Wish
from rota.ports.agent import Abilities, Prepared, Room

PLACE = "{instructions}"
LONGEST_WORD = 100 * 1024
"""A single word of a program may have 128 KiB on Linux."""


class CommandAgent:
    """Runs the program a task names.

    Told by argv, the instructions take the place of the word `{instructions}`, or come last. A
    session it has told comes back in `ROTA_SESSION`.
    """

    name = "command"
    abilities = Abilities(resume=True, program=True)

    def check(self, wish: Wish) -> None:
        """Refuse what a plain program cannot do."""
        asking.check(self.name, self.abilities, wish)
        if wish.prompt_by is PromptBy.ARGV and len(wish.instructions.encode()) > LONGEST_WORD:
            raise Invalid("instructions", wish.instructions, "hand over 100 KiB and more by stdin")

    def prepare(self, wish: Wish, room: Room) -> Prepared:
        """Return the program."""
        self.check(wish)
        asking.check_room(self.name, self.abilities, room)
        by_argv = wish.prompt_by is PromptBy.ARGV
        session = {"ROTA_SESSION": room.session} if room.session else {}
        command = Command(
            argv=_told(wish.program, wish.instructions) if by_argv else wish.program,
            env=environment(room, wish.variables, session),
            cwd=room.cwd,
            stdin=b"" if by_argv else wish.instructions.encode("utf-8", "replace"),
        )
        return Prepared(command=command)

    def reader(self, wish: Wish, _room: Room, /) -> CommandReader:
        """Return a reader of its output."""
        return CommandReader(wish.output)


def _told(program: Sequence[str], instructions: str) -> tuple[str, ...]:
    if PLACE not in program:
        return (*program, instructions)
    return tuple(instructions if word == PLACE else word for word in program)
