"""`rota doctor`: it finds what is wrong, says what to do, and changes nothing unless asked."""

import json
import os

import pytest

from rota.app.discovery import announce
from rota.gateway.secrets import SealedSecrets


def codes(answer):
    return [finding["code"] for finding in answer.json["findings"]]


@pytest.fixture
def sound(there, rota):
    """A home with nothing wrong in it."""
    (rota.home / "admin.key").write_text("rota_x\n")
    (rota.home / "admin.key").chmod(0o600)
    return rota


def test_a_sound_home_has_no_findings(sound):
    assert sound.ok("doctor").out.startswith("No problems found.\nExecutors:\n")
    answer = sound.json("doctor")
    assert (answer["ok"], answer["findings"]) == (True, [])


def test_each_executor_is_told_with_what_it_lacks(sound):
    (sound.home / "rota.toml").write_text('[executors.container]\nengine = "/nonexistent/podman"\n')
    told = {each["name"]: each for each in sound.json("doctor")["executors"]}
    assert list(told) == ["container", "process", "sandbox", "tmux"]
    assert told["process"]["available"]
    assert all(isinstance(each["certain_kill"], bool) for each in told.values())
    container = told["container"]
    assert not container["available"]
    (missing,) = container["missing"]
    assert (missing["what"], missing["needed"]) == ("podman", True)
    assert "install docker or podman" in missing["to_do"]
    lines = sound.ok("doctor").out
    assert (
        "  ✗ container  not available on this machine\n      needs podman (/nonexistent/podman)"
        in lines
    )


def test_a_list_of_mounts_that_cannot_be_trusted_is_found(sound):
    (sound.home / "mounts.toml").write_text(f'[[mount]]\nfolder = "{sound.home}"\n')
    answer = sound("doctor", "--json")
    assert (answer.code, codes(answer)) == (1, ["executors"])


def test_a_home_that_does_not_exist_is_found_and_not_made(rota):
    answer = rota("doctor", "--json")
    assert (answer.code, codes(answer)) == (1, ["home"])
    assert not rota.home.exists()


def test_files_that_others_may_read_are_found_and_mended_when_asked(sound):
    sound.home.chmod(0o755)
    (sound.home / "admin.key").chmod(0o644)
    answer = sound("doctor", "--json")
    assert (answer.code, codes(answer)) == (1, ["permissions", "permissions"])
    assert sound.home.stat().st_mode & 0o777 == 0o755
    assert "rota doctor --fix" in sound("doctor").err
    assert sound.ok("doctor", "--fix", "--json").json["ok"] is True
    assert sound.home.stat().st_mode & 0o777 == 0o700
    assert (sound.home / "admin.key").stat().st_mode & 0o777 == 0o600
    sound.ok("doctor")


def test_a_database_that_others_may_read_is_found_and_mended_when_asked(sound):
    for name in ("rota.db", "rota.db.before-0005"):
        (sound.home / name).touch()
        (sound.home / name).chmod(0o644)
    answer = sound("doctor", "--json")
    assert codes(answer) == ["permissions", "permissions"]
    assert (sound.home / "rota.db").stat().st_mode & 0o777 == 0o644
    sound.ok("doctor", "--fix")
    assert (sound.home / "rota.db").stat().st_mode & 0o777 == 0o600


def test_word_of_a_daemon_that_is_gone_is_found_and_removed_when_asked(sound):
    place = sound.home / "api.json"
    place.touch(mode=0o600)
    place.write_text(json.dumps({"url": "http://127.0.0.1:9", "pid": os.getpid()}))
    assert codes(sound("doctor", "--json")) == ["stale_api"]
    assert place.exists()
    sound.ok("doctor", "--fix")
    assert not place.exists()


def test_a_daemon_that_does_not_answer_is_left_alone(sound):
    with announce(sound.home, "http://127.0.0.1:9"):
        answer = sound("doctor", "--fix", "--json")
        assert (answer.code, codes(answer)) == (1, ["no_answer"])
        assert (sound.home / "api.json").exists()


def test_wrong_settings_are_told_together(sound, monkeypatch):
    monkeypatch.setenv("ROTA_SLOTTS", "3")
    (sound.home / "rota.toml").write_text('slots = 0\ntimezone = "Mars/Olympus"\n')
    answer = sound("doctor", "--json")
    assert answer.code == 1
    assert codes(answer) == ["settings"] * 3


def test_a_damaged_database_is_one_sentence(sound):
    for side in ("", "-wal", "-shm"):
        (sound.home / f"rota.db{side}").unlink(missing_ok=True)
    (sound.home / "rota.db").touch(mode=0o600)
    (sound.home / "rota.db").write_bytes(b"not a database at all, " * 100)
    answer = sound("doctor", "--json")
    assert (answer.code, codes(answer)) == (1, ["database"])


def test_runs_that_nobody_works_on_are_found(sound):
    sound.ok("task", "create", "hello", "--call", "rota.samples:hello")
    sound.ok("run", "hello")
    answer = sound("doctor", "--json")
    assert answer.code == 1
    assert codes(answer), answer
    assert all("rota status" in finding["to_do"] for finding in answer.json["findings"])


def test_a_record_that_does_not_hold_is_found(sound):
    import apsw

    sound.ok("task", "create", "hello", "--call", "rota.samples:hello")
    sound.ok("run", "hello")
    connection = apsw.Connection(str(sound.home / "rota.db"))
    connection.execute("update runs set task_id = 4711")
    connection.close()
    assert "record" in codes(sound("doctor", "--json"))


def test_a_clock_that_went_back_is_found(sound):
    file = sound.home / "rota.db"
    ahead = file.stat().st_mtime + 86_400
    os.utime(file, (ahead, ahead))
    assert codes(sound("doctor", "--json")) == ["clock"]


def seal(home, value="sk-ant-canary-5521"):
    SealedSecrets(home / "secrets").put("anthropic", value, at="", by="ann")


def test_a_gateway_that_does_not_run_and_its_secrets_are_told(sound, tmp_path):
    seal(sound.home)
    plan = sound.home / "gateway.toml"
    plan.write_text(f'[secrets]\nbank = "file:{tmp_path}/bank"\n')
    plan.chmod(0o600)
    answer = sound("doctor", "--json")
    assert (answer.code, codes(answer)) == (1, ["secrets"])
    told = answer.json["gateway"]
    assert (told["running"], told["pid"]) == (False, None)
    assert [(each["name"], each["readable"]) for each in told["secrets"]] == [
        ("anthropic", True),
        ("bank", False),
    ]
    (tmp_path / "bank").write_text("a long enough secret")
    (tmp_path / "bank").chmod(0o600)
    lines = sound.ok("doctor").out
    assert "Gateway:\n  not running; it starts when" in lines
    assert "  ✓ anthropic, kept\n" in lines
    assert "canary" not in lines + answer.out


def test_secrets_that_cannot_be_read_are_found_and_nothing_is_touched(sound):
    seal(sound.home)
    key = sound.home / "secrets" / "key"
    key.chmod(0o644)
    assert codes(sound("doctor", "--json")) == ["permissions"]
    assert key.stat().st_mode & 0o777 == 0o644
    sound.ok("doctor", "--fix")
    key.unlink()
    answer = sound("doctor", "--json")
    assert codes(answer) == ["secrets"]
    assert "the key of the secrets is missing" in answer.json["findings"][0]["message"]
    assert not key.exists()


def test_programs_that_tasks_name_and_that_cannot_be_found_are_told(sound, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    own = sound.home / "spaces" / "main" / "work"
    own.mkdir(parents=True)
    (own / "mine.py").write_text("")
    (tmp_path / "codex").write_text("#!/bin/sh\n")
    (tmp_path / "codex").chmod(0o755)
    for name, words in {
        "gone": ("--command", "nosuchprogram --now"),
        "gone-too": ("--command", "nosuchprogram"),
        "agent": ("--instructions", "hi", "--agent", "claude"),
        "there": ("--instructions", "hi", "--agent", "codex"),
        "mine": ("--command", "mine.py"),
        "shell": ("--command", "nosuchprogram | cat", "--shell"),
        "call": ("--command", "module:function"),
        "off": ("--command", "neverthere"),
    }.items():
        sound.ok("task", "create", name, *words)
    sound.ok("task", "disable", "off")
    answer = sound("doctor", "--json")
    assert answer.code == 1
    told = [found["message"] for found in answer.json["findings"] if found["code"] == "programs"]
    end = "is not on the PATH of this terminal, needed by the"
    assert told == [
        f"the program claude {end} task agent",
        f"the program nosuchprogram {end} tasks gone, gone-too",
    ]
    lines = sound("doctor").out
    assert lines.count(str(tmp_path)) == 1
    assert (
        f"No daemon is running; programs were searched on the PATH of this terminal: {tmp_path}\n"
        in lines
    )
