from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import pytest

from rota.cli.main import main


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, str]:
        return json.loads(self.err.splitlines()[-1])["error"]


class Terminal:
    """Runs commands in this process, in a home of its own."""

    def __init__(self, home, capsys):
        self.home = home
        self._capsys = capsys

    def __call__(self, *words: str) -> Answer:
        self._capsys.readouterr()
        code = main([*words, "--home", str(self.home)])
        out, err = self._capsys.readouterr()
        return Answer(code, out, err)

    def ok(self, *words: str) -> Answer:
        answer = self(*words)
        assert answer.code == 0, answer
        return answer

    def json(self, *words: str) -> Any:
        return self.ok(*words, "--json").json

    def refused(self, *words: str, code: int = 2) -> str:
        """Run what must be refused: one sentence and the exit code; return the sentence."""
        answer = self(*words)
        assert answer.code == code, answer
        assert answer.out == ""
        assert answer.err.startswith("rota: ")
        assert answer.err.count("\n") == 1, answer.err
        return answer.err.removeprefix("rota: ").rstrip("\n")


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    for name in (
        *(name for name in os.environ if name.startswith("ROTA_TEST_")),
        "ROTA_HOME",
        "ROTA_STORE",
        "ROTA_SLOTS",
        "ROTA_LOG_FORMAT",
        "NO_COLOR",
        "ROTA_URL",
        "ROTA_KEY",
        "ROTA_THREAD_KEY",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def rota(tmp_path, capsys) -> Terminal:
    return Terminal(tmp_path / "home", capsys)


@pytest.fixture
def there(rota) -> Terminal:
    """A home that is there already, with nothing in it."""
    rota.ok("space", "create", "nobody", "--dry-run")
    return rota


@pytest.fixture
def hello(rota) -> str:
    rota.ok("task", "create", "hello", "--call", "rota.samples:hello")
    return "hello"
