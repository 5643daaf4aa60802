"""`python -m tests.tools.simulation`: what it prints, what it writes down, and that it goes on where it was."""

import json

import pytest

from tests.tools.simulation import main as command
from tests.tools.simulation import record
from tests.tools.simulation.coverage import SOMETIMES
from tests.tools.simulation.history import Violation
from tests.tools.simulation.world import Verdict


def verdict(seed, **changes):
    values = {"digest": "d", "steps": 3, "seconds": 2.0, "violation": None, "lines": ("a step",)}
    return Verdict(seed=seed, **{**values, "counts": {"a worker is fenced": 1}, **changes})


@pytest.fixture
def histories(monkeypatch):
    """Histories that end at once, simulated in this process; seed 30 breaks a promise."""
    lived = []

    class Told:
        def __init__(self, seed, lines=50):
            self.seed = seed

        def run(self):
            lived.append(self.seed)
            broken = Violation("terminal is final", "run 1") if self.seed == 30 else None
            return verdict(self.seed, violation=broken)

    monkeypatch.setattr(record, "World", Told)
    monkeypatch.setattr(record, "this_commit", lambda: "abc")
    monkeypatch.setattr(command, "this_commit", lambda: "abc")
    monkeypatch.setattr(command, "_simulated", lambda todo, jobs: map(record.simulate, todo))
    return lived


def test_a_broken_promise_is_told_with_the_command_that_repeats_it(histories, capsys):
    assert command.main(["--from", "0", "--to", "39"]) == 1
    told = capsys.readouterr().out
    assert "seed 30 broke a promise; its last steps:\na step\nterminal is final: run 1" in told
    assert "python -m tests.tools.simulation --from 30 --to 30 --trace" in told


def test_a_range_without_a_broken_promise_is_well(histories):
    assert command.main(["--from", "0", "--to", "29"]) == 0
    assert histories == list(range(30))


def test_a_rare_path_never_walked_fails_where_that_is_asked_for(histories, capsys):
    assert command.main(["--to", "9", "--all-sometimes"]) == 1
    assert f"1 of {len(SOMETIMES)} rare paths" in capsys.readouterr().out


def test_a_record_is_gone_on_with_and_only_for_the_same_commit(histories, tmp_path, monkeypatch):
    path = tmp_path / "sim.jsonl"
    asked = ["--from", "0", "--to", "59", "--record", str(path)]
    assert command.main(["--from", "0", "--to", "24", "--record", str(path)]) == 0
    path.write_text(path.read_text() + '{"first": 25, "la')  # a process died while it wrote
    assert command.main(asked) == 1
    assert histories == list(range(60))
    assert command.main(asked) == 1
    assert len(histories) == 60
    monkeypatch.setattr(command, "this_commit", lambda: "def")
    command.main(asked)
    assert len(histories) == 120


def test_a_record_says_what_was_run_and_what_broke(histories, tmp_path):
    path = tmp_path / "sim.jsonl"
    command.main(["--from", "25", "--to", "49", "--record", str(path)])
    (line,) = path.read_text().splitlines()
    told = json.loads(line)
    assert (told["first"], told["last"], told["commit"]) == (25, 49, "abc")
    assert [failure["seed"] for failure in told["failures"]] == [30]


def test_a_range_that_ends_before_it_begins_is_refused_in_one_sentence(capsys):
    assert command.main(["--from", "9", "--to", "3"]) == 2
    assert (
        capsys.readouterr().out
        == 'python -m tests.tools.simulation: to "3": must not be smaller than `from`\n'
    )


def test_a_history_is_told_step_by_step(capsys):
    assert command.main(["--from", "1", "--trace"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert len(told) > 100
    assert told[-1].startswith("seed 1: no promise broken, hash ")
