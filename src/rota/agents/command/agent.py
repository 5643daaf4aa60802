"""Any command as an agent, and scripts."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from rota.agents.command import call_function
from rota.agents.command.reader import CommandReader
from rota.agents.shared import capabilities
from rota.agents.shared.capabilities import environment
from rota.agents.shared.stream import count, parse
from rota.errors import Invalid
from rota.model.agents import AgentSpec, PromptInput
from rota.model.programs import Program
from rota.model.threads import ThreadMessage
from rota.ports.agent import AgentCapabilities, AgentWorkspace, PreparedProgram, WorkspaceFile
from rota.rules.prompts import message_files
from rota.rules.task_spec import is_call

PLACE = "{instructions}"
MAX_WORD = 100 * 1024
"""A single word of a program may have 128 KiB on Linux."""


class CommandAgent:
    """Runs the program a task names.

    Told by argv, the instructions take the place of the word `{instructions}`, or come last. They
    may be a stranger's message, and are never an option. A session it has told comes back in
    `ROTA_SESSION`. Told by lines, it reads one object in JSON a line: its instructions, then every
    message that comes while it works.
    """

    name = "command"
    abilities = AgentCapabilities(resume=True, program=True)

    def check(self, wish: AgentSpec) -> None:
        """Refuse what a plain program cannot do."""
        capabilities.check(self.name, self.abilities, wish)
        if wish.prompt_by is not PromptInput.ARGV:
            return
        if wish.program[0] == PLACE:
            raise Invalid("command", PLACE, "name the program to run")
        if len(wish.instructions.encode()) > MAX_WORD:
            raise Invalid("instructions", wish.instructions, "hand over 100 KiB and more by stdin")

    def prepare(self, wish: AgentSpec, room: AgentWorkspace) -> PreparedProgram:
        """Return the program."""
        self.check(wish)
        capabilities.check_room(self.name, self.abilities, room)
        by_argv = wish.prompt_by is PromptInput.ARGV
        by_lines = wish.prompt_by is PromptInput.LINES
        session = {"ROTA_SESSION": room.session} if room.session else {}
        command = Program(
            argv=_told(wish.program, wish.instructions) if by_argv else wish.program,
            env=environment(room, wish.variables, session),
            cwd=room.cwd,
            stdin=b"" if by_argv else _input(wish),
            keep_stdin_open=by_lines and room.steered,
        )
        return PreparedProgram(command=command)

    def reader(self, wish: AgentSpec, room: AgentWorkspace, /) -> CommandReader:
        """Return a reader of its output."""
        return CommandReader(wish.output, room.redactor, told=self.steers(wish))

    def steers(self, wish: AgentSpec) -> bool:
        """Return whether it reads lines, and so takes messages while it works."""
        return wish.prompt_by is PromptInput.LINES

    def line(self, message: ThreadMessage, files: str | None = None) -> bytes:
        """Return a message as a line of its input."""
        told = {"sender": message.sender, "time": message.at.isoformat(), "thread": message.thread}
        sent = message_files(message, files)
        return _line("message", id=message.id, **told, text=message.body, **sent)

    def message_in(self, line: bytes) -> int | None:
        """Return the id of the message that a line of its input is."""
        record = parse(line) or {}
        return count(record, "id") if record.get("rota") == "message" else None


def _input(wish: AgentSpec) -> bytes:
    if wish.prompt_by is PromptInput.LINES:
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


PAYLOAD = "payload.json"
CALLING = "call.py"


class ScriptAgent(CommandAgent):
    """Runs what a script task names, with its payload on the input and in a file.

    A function is called by the room's Python. Its environment holds nothing that was offered but
    what every program gets.
    """

    name = "script"
    abilities = AgentCapabilities(program=True)

    def prepare(self, wish: AgentSpec, room: AgentWorkspace) -> PreparedProgram:
        """Return the program with what it is told."""
        made = super().prepare(wish, room)
        folder = room.folder.rstrip("/")
        files = [WorkspaceFile(name=PAYLOAD, content=made.command.stdin)]
        told = {"ROTA_PAYLOAD_FILE": f"{folder}/{PAYLOAD}"}
        if room.result is not None:
            told["ROTA_RESULT_FILE"] = room.result
        if room.config is not None:
            told["ROTA_CONFIG"] = room.config
        words = wish.program
        if is_call(words[0]) and room.result is not None:
            files.append(WorkspaceFile(name=CALLING, content=_calling()))
            words = (room.python, f"{folder}/{CALLING}", words[0], room.result, *words[1:])
        command = replace(made.command, argv=words, env={**made.command.env, **told})
        return PreparedProgram(command=command, files=tuple(files))

    def reader(self, wish: AgentSpec, room: AgentWorkspace, /) -> CommandReader:
        """Return a reader of its output: no model's provider speaks through it."""
        return CommandReader(wish.output, room.redactor, has_provider=False)


@cache
def _calling() -> bytes:
    return inspect.getsource(call_function).encode()
