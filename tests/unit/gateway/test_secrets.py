"""Secrets that are kept: sealed, whole after a crash, and told of when they cannot be opened."""

from __future__ import annotations

import asyncio
import json
import multiprocessing

import pytest

from rota.app.secrets import LocalSecretStore
from rota.app.settings import load_settings
from rota.errors import Invalid, NotFound, Unavailable
from rota.gateway.secrets import SealedSecrets

REAL = "sk-ant-the-real-one"


def put(folder, names):
    sealed = SealedSecrets(folder)
    for name in names:
        sealed.put(name, f"{REAL}-{name}", at="2026-11-16T00:00:00+00:00", by="ann")


def test_what_was_put_is_there_for_the_next_process_and_in_no_file(tmp_path):
    put(tmp_path / "s", ["a", "b"])
    put(tmp_path / "s", ["a"])
    found = SealedSecrets(tmp_path / "s").read_all()
    assert [(each.name, each.value, each.set_by) for each in found] == [
        ("a", f"{REAL}-a", "ann"),
        ("b", f"{REAL}-b", "ann"),
    ]
    for path in (tmp_path / "s").iterdir():
        assert REAL.encode() not in path.read_bytes()
        assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700


def test_a_secret_that_was_removed_is_gone(tmp_path):
    put(tmp_path, ["a", "b"])
    sealed = SealedSecrets(tmp_path)
    before = sealed.version
    sealed.remove("a")
    assert [each.name for each in sealed.read_all()] == ["b"]
    assert sealed.version != before
    with pytest.raises(NotFound):
        sealed.remove("a")


def test_two_processes_lose_nothing_of_each_other(tmp_path):
    names = [[f"{letter}{n}" for n in range(10)] for letter in "ab"]
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=put, args=(tmp_path, each)) for each in names]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
    assert len(SealedSecrets(tmp_path).read_all()) == 20


def swapped(folder):
    path = folder / "sealed.json"
    found = json.loads(path.read_text())
    found["a"], found["b"] = found["b"], found["a"]
    path.write_text(json.dumps(found))


BROKEN = {
    "another key": lambda folder: (folder / "key").write_bytes(b"x" * 43 + b"="),
    "no key": lambda folder: (folder / "key").unlink(),
    "damaged": lambda folder: (folder / "sealed.json").write_text("{"),
    "swapped": swapped,
    "cut": lambda folder: (folder / "key").write_bytes(b"short"),
    "open to others": lambda folder: (folder / "key").chmod(0o640),
}


@pytest.mark.parametrize("how", list(BROKEN))
def test_what_does_not_open_is_told_in_a_sentence(tmp_path, how):
    put(tmp_path, ["a", "b"])
    BROKEN[how](tmp_path)
    with pytest.raises(Unavailable):
        SealedSecrets(tmp_path).read_all()


def test_whoever_reads_a_key_that_is_open_to_others_refuses_and_changes_nothing(tmp_path):
    put(tmp_path, ["a"])
    key = tmp_path / "key"
    key.chmod(0o644)
    for look in (SealedSecrets(tmp_path).read_all, lambda: put(tmp_path, ["b"])):
        with pytest.raises(Unavailable, match=f"others may read {key}: chmod 600 {key}, or rota"):
            look()
    assert key.stat().st_mode & 0o777 == 0o644
    key.chmod(0o600)
    assert [each.name for each in SealedSecrets(tmp_path).read_all()] == ["a"]


@pytest.fixture
def local(tmp_path, monkeypatch):
    monkeypatch.setenv("TEAM_KEY", "sk-of-the-environment")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (tmp_path / "key").write_text(" sk-of-a-file\n")
    (tmp_path / "key").chmod(0o600)
    plan = f'[secrets]\nteam = "env:TEAM_KEY"\nfiled = "file:{tmp_path}/key"\nlost = "env:NOBODY"\n'
    (home / "gateway.toml").write_text(plan)
    return LocalSecretStore(load_settings(str(home)))


def test_secrets_come_from_three_places_and_what_is_kept_wins(local, tmp_path):
    assert local.values() == {"team": "sk-of-the-environment", "filed": "sk-of-a-file"}
    heard = []
    stop = local.subscribe(lambda: heard.append("changed"))
    view = asyncio.run(local.put("team", REAL, "ann"))
    assert (view.source, view.set_by) == ("kept", "ann")
    assert local.values()["team"] == REAL
    assert local.redactor.redact_text(f"{REAL} sk-of-a-file") == "[secret team] [secret filed]"
    (tmp_path / "key").write_text("sk-of-the-same-file\n")
    assert local.values()["filed"] == "sk-of-the-same-file"
    stop()
    asyncio.run(local.remove("team"))
    assert local.values()["team"] == "sk-of-the-environment"
    assert heard == ["changed", "changed"]


def test_a_secret_that_is_not_there_is_listed_with_the_reason(local, tmp_path):
    (tmp_path / "key").chmod(0o640)
    listed = {view.name: view for view in asyncio.run(local.list_secrets())}
    assert "0600" in listed["filed"].problem
    assert "8 characters" in listed["lost"].problem
    assert listed["team"].problem is None
    assert REAL not in str(listed)


@pytest.mark.parametrize(
    ("name", "value"), [("Team", REAL), ("a/b", REAL), ("team", "short"), ("", REAL)]
)
def test_what_cannot_be_kept_is_refused(local, name, value):
    with pytest.raises(Invalid):
        asyncio.run(local.put(name, value, "ann"))
    assert local.values()["team"] == "sk-of-the-environment"


def test_a_home_whose_key_is_gone_goes_on_without_what_was_kept(local, tmp_path):
    asyncio.run(local.put("team", REAL, "ann"))
    (tmp_path / "home" / "secrets" / "key").unlink()
    again = LocalSecretStore(local._settings)
    assert again.values()["team"] == "sk-of-the-environment"


def test_a_key_that_was_open_to_others_counts_again_as_soon_as_it_is_not(local, tmp_path):
    asyncio.run(local.put("team", REAL, "ann"))
    key = tmp_path / "home" / "secrets" / "key"
    key.chmod(0o644)
    assert local.values()["team"] == "sk-of-the-environment"
    assert "rota doctor --fix" in local.trouble
    key.chmod(0o600)
    assert (local.values()["team"], local.trouble) == (REAL, None)
