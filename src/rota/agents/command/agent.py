"""Any program as an agent, and scripts."""

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
from rota.model.tasks import TaskKind
from rota.model.threads import ThreadMessage
from rota.ports.agent import (
    AgentCapabilities,
    AgentPlugin,
    AgentWorkspace,
    PreparedProgram,
    WorkspaceFile,
)
from rota.rules.prompts import message_files
from rota.rules.task_spec import is_call

PLACEHOLDER = "{instructions}"
MAX_ARGUMENT = 100 * 1024
"""Linux limits one argument to 128 KiB."""


class CommandAgent:
    """Runs the program of a task.

    With `prompt_by` argv, the instructions replace the argument `{instructions}` or are appended.
    They may come from strangers and are never passed as an option. The session that the program
    reported is passed back in `ROTA_SESSION`. With `prompt_by` lines, it reads one JSON object per
    line: the instructions, then each message that arrives while it works.
    """

    name = "command"
    capabilities = AgentCapabilities(resume=True, program=True)

    def check(self, spec: AgentSpec) -> None:
        """Raise Invalid for what a plain program does not support."""
        capabilities.check(self.name, self.capabilities, spec)
        if spec.prompt_by is not PromptInput.ARGV:
            return
        if spec.program[0] == PLACEHOLDER:
            raise Invalid("command", PLACEHOLDER, "name the program to run")
        if len(spec.instructions.encode()) > MAX_ARGUMENT:
            raise Invalid("instructions", spec.instructions, "pass more than 100 KiB on stdin")

    def prepare(self, spec: AgentSpec, workspace: AgentWorkspace) -> PreparedProgram:
        """Return the program."""
        self.check(spec)
        capabilities.check_workspace(self.name, self.capabilities, workspace)
        by_argv = spec.prompt_by is PromptInput.ARGV
        by_lines = spec.prompt_by is PromptInput.LINES
        session = {"ROTA_SESSION": workspace.session} if workspace.session else {}
        command = Program(
            argv=_argv_with_prompt(spec.program, spec.instructions) if by_argv else spec.program,
            env=environment(workspace, spec.variables, session),
            cwd=workspace.cwd,
            stdin=b"" if by_argv else _input(spec),
            keep_stdin_open=by_lines and workspace.steered,
        )
        return PreparedProgram(command=command)

    def reader(self, spec: AgentSpec, workspace: AgentWorkspace, /) -> CommandReader:
        """Return a reader of its output."""
        return CommandReader(spec.output, workspace.redactor, told=self.accepts_messages(spec))

    def accepts_messages(self, spec: AgentSpec) -> bool:
        """Whether it accepts messages: if it reads lines."""
        return spec.prompt_by is PromptInput.LINES

    def message_line(self, message: ThreadMessage, files: str | None = None) -> bytes:
        """Return a message as a line of its input."""
        told = {"sender": message.sender, "time": message.at.isoformat(), "thread": message.thread}
        sent = message_files(message, files)
        return _line("message", id=message.id, **told, text=message.body, **sent)

    def message_in(self, line: bytes) -> int | None:
        """Return the id of the message in a line of its input."""
        record = parse(line) or {}
        return count(record, "id") if record.get("rota") == "message" else None


def _input(spec: AgentSpec) -> bytes:
    if spec.prompt_by is PromptInput.LINES:
        return _line("instructions", text=spec.instructions)
    return spec.instructions.encode("utf-8", "replace")


def _line(kind: str, **told: object) -> bytes:
    return json.dumps({"rota": kind, **told}).encode() + b"\n"


def _argv_with_prompt(program: Sequence[str], instructions: str) -> tuple[str, ...]:
    words = program if PLACEHOLDER in program else (*program, PLACEHOLDER)
    before = ("", *words)
    return tuple(
        _literal(instructions, after) if word == PLACEHOLDER else word
        for after, word in zip(before, words, strict=False)
    )


def _literal(instructions: str, after: str) -> str:
    """Return instructions so that they are not an option; unchanged after `--`."""
    return f" {instructions}" if instructions.startswith("-") and after != "--" else instructions


PAYLOAD = "payload.json"
CALL_FILE = "call.py"


class ScriptAgent(CommandAgent):
    """Runs a script, with its payload on stdin and in a file.

    A function is called with the workspace's Python. Only common variables are passed on.
    """

    name = "script"
    capabilities = AgentCapabilities(program=True)

    def prepare(self, spec: AgentSpec, workspace: AgentWorkspace) -> PreparedProgram:
        """Return the program with its files and variables."""
        prepared = super().prepare(spec, workspace)
        folder = workspace.folder.rstrip("/")
        files = [WorkspaceFile(name=PAYLOAD, content=prepared.command.stdin)]
        told = {"ROTA_PAYLOAD_FILE": f"{folder}/{PAYLOAD}"}
        if workspace.result is not None:
            told["ROTA_RESULT_FILE"] = workspace.result
        if workspace.config is not None:
            told["ROTA_CONFIG"] = workspace.config
        words = spec.program
        if is_call(words[0]) and workspace.result is not None:
            files.append(WorkspaceFile(name=CALL_FILE, content=_call_source()))
            words = (
                workspace.python,
                f"{folder}/{CALL_FILE}",
                words[0],
                workspace.result,
                *words[1:],
            )
        command = replace(prepared.command, argv=words, env={**prepared.command.env, **told})
        return PreparedProgram(command=command, files=tuple(files))

    def reader(self, spec: AgentSpec, workspace: AgentWorkspace, /) -> CommandReader:
        """Return a reader of its output that does not look for errors of providers."""
        return CommandReader(spec.output, workspace.redactor, has_provider=False)


PLUGIN = AgentPlugin(make=lambda _settings: CommandAgent())
SCRIPTS = AgentPlugin(make=lambda _settings: ScriptAgent(), kind=TaskKind.SCRIPT)


@cache
def _call_source() -> bytes:
    return inspect.getsource(call_function).encode()
