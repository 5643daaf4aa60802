"""The real agents read what people sent, with their own tools and with no leave but their task's."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence

import pytest

from tests.agents.test_through_daemon import (  # noqa: F401 - fixtures
    ENDED,
    agent,
    bytecode,
    engine,
    everywhere,
    folder,
    lodging,
    provider,
)
from tests.tools.providers import Text as Says
from tests.tools.providers import Tool

pytestmark = pytest.mark.agents

WORDS = "the heron has landed at 4711"
READING = {
    "claude": lambda path: Tool("Read", {"file_path": path}),
    "codex": lambda path: Tool("exec_command", {"cmd": f"cat '{path}'"}),
    "pi": lambda path: Tool("read", {"path": path}),
}
WISHES = {
    "claude": (),
    "codex": ("--model", "stub-model", "--permission-mode", "danger-full-access"),
    "pi": ("--model", "stub/stub-model", "--tool", "read"),
}


class Reading(Sequence):
    """First a tool that reads the file which the agent was told of, and then an end."""

    def __init__(self, provider, agent):  # noqa: F811
        self._provider, self._agent = provider, agent

    def __len__(self):
        return 2

    def __getitem__(self, at):
        if at == 1:
            return Says("read")
        asked = json.dumps(self._provider.script.asked[-1])
        path = re.search(r'media_path=\\"(.*?)\\"', asked)[1]
        return READING[self._agent](html.unescape(path))


@everywhere
def test_an_agent_reads_the_file_it_was_sent(lodging, provider, tmp_path):  # noqa: F811
    note = tmp_path / "my note.txt"
    note.write_text(WORDS)
    lodging.json(
        "task", "create", "look", "--instructions", "Look.", "--agent", lodging.agent,
        "--space", lodging.space, *lodging.options, "--answers", "--thread",
        f"cli:{lodging.space}:x", *WISHES[lodging.agent],
    )  # fmt: skip
    provider.script.words = Reading(provider, lodging.agent)
    said = lodging.json(
        "say", f"cli:{lodging.space}:x", "See.", "--file", str(note), "--space", lodging.space
    )
    run = lodging.until(said["reader"], lambda run: run["state"] in ENDED, 120.0)
    assert run["state"] == "succeeded", (run["error"], run["logs"])
    assert WORDS in json.dumps(provider.script.asked[-1]), provider.script.asked[-1]
