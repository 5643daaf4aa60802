"""Artifacts over HTTP: bytes as they are, for who may see the run, and nothing else."""

from __future__ import annotations

import os
from http.client import HTTPConnection
from urllib.parse import quote

import pytest

from rota.api import asgi
from rota.keeper.workspace import LocalArtifactStore, artifacts_folder


@pytest.fixture
def home(door, tmp_path):
    return tmp_path / "home"


@pytest.fixture
def artifacts(tmp_path):
    return LocalArtifactStore(tmp_path / "home")


@pytest.fixture
def shelf(door, home, artifacts):
    """The folder of a run of ann's."""
    door.ann.post("/v1/tasks", {"name": "job", "instructions": "Look."})
    run = door.ann.post("/v1/tasks/job/run-now").json["run"]
    made = artifacts_folder(home / "spaces" / "ann", run)
    artifacts.prepare(made, 1, anew=True)
    return made


def path(shelf, name=None):
    end = "" if name is None else f"/{quote(name)}"
    return f"/v1/runs/{shelf.name}/artifacts{end}"


def fetch(client, target):
    connection = HTTPConnection("127.0.0.1", client.port, timeout=30)
    try:
        connection.request("GET", target, None, {"Authorization": f"Bearer {client.token}"})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


@pytest.mark.usefixtures("parser")
def test_files_are_listed_and_handed_out_as_they_are(door, shelf):
    content = bytes(range(256)) * 1_000
    (shelf / "a").mkdir()
    (shelf / "a" / "größe 100%.html").write_bytes(content)
    (shelf / "empty").touch()
    told = door.ann.get(path(shelf)).json
    assert [(one["name"], one["size"]) for one in told["artifacts"]] == [
        ("a/größe 100%.html", len(content)),
        ("empty", 0),
    ]
    assert (told["left_out"], told["more"]) == (0, False)
    status, headers, body = fetch(door.ann, path(shelf, "a/größe 100%.html"))
    assert (status, body) == (200, content)
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"] == (
        "attachment; filename*=UTF-8''gr%C3%B6%C3%9Fe%20100%25.html"
    )
    assert headers["x-content-type-options"] == "nosniff"
    assert fetch(door.ann, path(shelf, "empty"))[0::2] == (200, b"")
    assert fetch(door.main, path(shelf, "empty"))[0] == 200


def test_a_run_of_another_space_is_not_there(door, shelf):
    (shelf / "x").write_text("ann's")
    for client, status in ((door.bob, 404), (door.nobody, 401)):
        assert client.get(path(shelf)).status == status
        assert client.get(path(shelf, "x")).status == status
    blind = door.client("ann", scopes=["run"])
    assert blind.get(path(shelf)).status == 403
    assert blind.get(path(shelf, "x")).status == 403


CLIMBING = ["..", "%2e%2e/secret", "..%2fsecret", "%2e%2e%2f%2e%2e%2f%2e%2e%2fadmin.key", "%2fetc%2fpasswd",
            "a%00", "%ff", "./x", "x/", "//x", "x/..", "%0a"]  # fmt: skip


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("name", CLIMBING)
def test_a_name_leads_nowhere_else(door, home, shelf, name):
    (home / "admin.key").write_text("canary")
    (shelf.parent / "secret").write_text("canary")
    (shelf / "x").write_text("x")
    status, _, body = fetch(door.ann, f"{path(shelf)}/{name}")
    assert status in {400, 404}, body
    assert b"canary" not in body


@pytest.mark.timeout(30)
def test_links_and_pipes_are_not_there(door, home, shelf):
    (home / "admin.key").write_text("canary")
    (shelf / "link").symlink_to(home / "admin.key")
    (shelf / "folder").symlink_to(home)
    (shelf / "second").hardlink_to(home / "admin.key")
    os.mkfifo(shelf / "pipe")
    assert door.ann.get(path(shelf)).json == {"artifacts": [], "left_out": 4, "more": False}
    for name in ("link", "folder/admin.key", "second", "pipe", "nothing"):
        status, _, body = fetch(door.ann, path(shelf, name))
        assert (status, b"canary" in body) == (404, False)


def test_only_so_many_are_handed_out_at_once(door, shelf, monkeypatch):
    monkeypatch.setattr(asgi, "MAX_CONCURRENT", 0)
    (shelf / "x").touch()
    assert door.ann.get(path(shelf, "x")).status == 503


def test_it_can_only_be_looked_at(door, shelf):
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert door.ann.ask(method, path(shelf, "x")).status == 405
    assert door.ann.get("/v1/runs/no-number/artifacts/x").status == 400
    assert door.ann.get("/v1/runs/99999/artifacts").status == 404


@pytest.mark.timeout(60)
def test_a_reader_that_hangs_up_leaves_nothing_open(door, shelf):
    with (shelf / "large").open("wb") as file:
        file.truncate(200 * 1024 * 1024)
    connection = HTTPConnection("127.0.0.1", door.port, timeout=30)
    headers = {"Authorization": f"Bearer {door.ann.token}"}
    connection.request("GET", path(shelf, "large"), None, headers)
    assert connection.getresponse().read(10) == b"\0" * 10
    assert door.downloads.under_way == 1
    connection.close()
    for _ in range(500):
        if not door.downloads.under_way:
            break
        door.ann.get(path(shelf))
    assert door.downloads.under_way == 0
