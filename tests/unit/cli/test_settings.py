from __future__ import annotations

from datetime import timedelta

import pytest

from rota.app.settings import load_settings, read_settings, unknown_variables
from rota.errors import Refused


def write(home, text):
    home.mkdir(exist_ok=True)
    (home / "rota.toml").write_text(text)
    return str(home)


def test_defaults_hold_without_a_file(tmp_path):
    settings = load_settings(str(tmp_path))
    assert settings.store == f"sqlite:///{tmp_path}/rota.db"
    assert (settings.slots, settings.threads) == (1_000, 32)
    assert (settings.drain, settings.retention) == (timedelta(seconds=30), timedelta(days=30))
    assert (settings.limit_foreground, settings.limit_background) == (5, 3)
    assert (settings.limit_space_foreground, settings.limit_space_background) == (2, 1)
    assert (settings.queue_warning, settings.running_warning) == (25, timedelta(minutes=30))
    assert settings.given == frozenset()


def test_a_variable_wins_over_the_file_and_the_command_line_over_both(tmp_path, monkeypatch):
    home = write(tmp_path, 'slots = 7\nthreads = 3\nstore = "sqlite:////file.db"\n')
    monkeypatch.setenv("ROTA_SLOTS", "9")
    monkeypatch.setenv("ROTA_STORE", "sqlite:////variable.db")
    assert load_settings(home).slots == 9
    assert load_settings(home).threads == 3
    assert load_settings(home).store == "sqlite:////variable.db"
    assert load_settings(home, "memory:").store == "memory:"


def test_the_home_comes_from_its_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("ROTA_HOME", str(tmp_path / "there"))
    assert load_settings().home == tmp_path / "there"


def test_everything_that_is_wrong_is_told_together(tmp_path, monkeypatch):
    home = write(tmp_path, 'slots = "many"\ndrain = "a while"\nslot = 3\n')
    monkeypatch.setenv("ROTA_LOG_LEVEL", "loud")
    _, faults = read_settings(home)
    assert len(faults) == 4
    assert any(fault.startswith('slots "many"') for fault in faults)
    assert any(fault.startswith('drain "a while"') for fault in faults)
    assert any('"slot": unknown setting' in fault for fault in faults)
    assert any(fault.startswith('log_level "loud"') for fault in faults)
    with pytest.raises(Refused, match="slots"):
        load_settings(home)


@pytest.mark.parametrize(
    "line",
    [
        "slots = 0", "threads = -1", 'drain = "-5s"', 'retention = "0s"', 'timezone = "Mars"',
        'store = "mysql://x"', "limit_foreground = -1", "queue_warning = 0", 'running_warning = "x"',
        'log_format = "xml"', "slots = [1]",
    ],
)  # fmt: skip
def test_a_bad_value_is_named(tmp_path, line):
    settings, faults = read_settings(write(tmp_path, line))
    assert settings is None
    assert len(faults) == 1
    assert faults[0].startswith(line.split(" ", maxsplit=1)[0])


def test_a_file_that_is_not_toml_is_one_fault(tmp_path):
    assert "is not TOML" in read_settings(write(tmp_path, "slots ="))[1][0]


def test_settings_cannot_be_changed(tmp_path):
    settings = load_settings(str(tmp_path))
    with pytest.raises(AttributeError):
        settings.slots = 1


def test_a_misspelt_variable_is_found(monkeypatch):
    monkeypatch.setenv("ROTA_SLTOS", "9")
    assert "ROTA_SLTOS" in unknown_variables()


def test_check_tells_what_holds_and_starts_nothing(rota):
    assert rota.ok("check").out.startswith("The settings are valid")
    answer = rota.json("check", "--store", "postgresql://me:secret@host/name")
    assert answer["ok"] is True
    assert answer["settings"]["store"] == "postgresql://me:***@host/name"
    assert not rota.home.exists()


def test_check_tells_what_is_wrong(rota):
    write(rota.home, "slots = 0\nthreads = 0\n")
    answer = rota("check")
    assert answer.code == 2
    assert "slots" in answer.out
    assert "threads" in answer.out
    assert rota("check", "--json").json["ok"] is False


def test_every_command_refuses_bad_settings(rota):
    write(rota.home, "slots = 0\n")
    assert "slots" in rota.refused("task", "list")
    assert "slots" in rota.refused("up")
