"""Streams of the real agents, recorded: what is read of them stays what it is."""

import json
from types import SimpleNamespace

import pytest

from rota.agents.claude.agent import ClaudeAgent
from rota.agents.codex.agent import CodexAgent
from rota.agents.pi.agent import PiAgent
from rota.model.agents import AgentAnswer, AgentSpec, ProcessExit
from rota.model.attempts import Succeeded
from rota.ports.agent import AgentWorkspace
from tests.unit.agents.golden import FOLDER, described, load_exit

AGENTS = {agent.name: agent for agent in (ClaudeAgent(), CodexAgent(), PiAgent())}
RECORDED = sorted(FOLDER.glob("*.json"))
FAULTS = {
    "401": "authentication",
    "429": "rate_limit",
    "529": "overload",
    "banner": "overload",
    "cut": "network",
    "lost-session": "session_lost",
    "no-model": "unknown_model",
    "progress": None,
    "question": None,
    "quota": "billing",
    "steered": None,
    "text": None,
    "too-long": "context_too_long",
    "todos": None,
    "tool": None,
    "turns": "turns",
}


def reader_of(about):
    room = AgentWorkspace(folder="/", cwd="/", home="/", session=about["session"])
    return AGENTS[about["agent"]].reader(AgentSpec(), room)


def lines_of(path):
    return path.with_suffix(".jsonl").read_bytes().splitlines()


@pytest.fixture(params=RECORDED, ids=lambda path: path.stem)
def path(request):
    return request.param


def test_there_is_a_recording_of_everything_that_can_happen():
    names = {path.stem.partition("-")[2] for path in RECORDED}
    assert names == set(FAULTS)
    assert {path.stem.partition("-")[0] for path in RECORDED} == set(AGENTS)


def test_a_recording_is_read_as_before(path):
    about = json.loads(path.read_text())
    reader = reader_of(about)
    said = [said for line in lines_of(path) for said in reader.feed(line)]
    told = SimpleNamespace(said=said, verdict=reader.end(load_exit(about["exit"])))
    assert json.loads(json.dumps(described(told))) == {
        "said": about["said"],
        "verdict": about["verdict"],
    }


def test_an_error_is_told_apart(path):
    about = json.loads(path.read_text())
    assert about["verdict"]["fault"] == FAULTS[path.stem.partition("-")[2]]


def test_a_line_in_pieces_is_read_as_one(path):
    about = json.loads(path.read_text())
    whole, pieces = reader_of(about), reader_of(about)
    for line in lines_of(path):
        said = [
            one
            for start in range(0, len(line), 100)
            for one in pieces.feed(line[start : start + 100], cut=start + 100 < len(line))
        ]
        assert said == list(whole.feed(line))


def test_a_stream_that_breaks_off_is_never_a_success_without_its_result(path):
    about = json.loads(path.read_text())
    stream = b"\n".join(lines_of(path))
    for length in range(0, len(stream), max(1, len(stream) // 50)):
        reader = reader_of(about)
        said = [said for line in stream[:length].splitlines() for said in reader.feed(line)]
        outcome = reader.end(ProcessExit(code=0)).outcome
        assert not isinstance(outcome, Succeeded) or any(
            isinstance(one, AgentAnswer) for one in said
        )


def test_no_failing_exit_is_a_success(path):
    about = json.loads(path.read_text())
    for end in (
        ProcessExit(code=1),
        ProcessExit(code=137),
        ProcessExit(signal=15),
        ProcessExit(signal=9),
        ProcessExit(),
    ):
        reader = reader_of(about)
        for line in lines_of(path):
            reader.feed(line)
        assert not isinstance(reader.end(end).outcome, Succeeded)
