"""How checks look: at hostile files, at hostile addresses, for hostile patterns."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from rota.app import probes
from rota.app import probes as probes_module
from rota.app.probes import LocalProbes
from rota.ports.host import FileStat
from rota.rules.checks import MAX_PATTERN
from rota.rules.json_schema import check_schema


@contextmanager
def serving(answer, *, count=8):
    """Answer on loopback with what a function writes to the connection."""
    listening = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve():
        for _ in range(count):
            try:
                line, _ = listening.accept()
            except OSError:
                return
            with line:
                line.settimeout(5)
                try:
                    line.recv(65_536)
                    answer(line, ended)
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        ended.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5)


def page(body=b"all good", status=b"200 OK", more=b""):
    def answer(line, _ended):
        line.sendall(b"HTTP/1.1 " + status + b"\r\n" + more + b"Connection: close\r\n\r\n" + body)

    return answer


def test_a_file_of_the_folder_is_seen_with_when_it_was_written(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.csv").write_text("1,2")
    seen = probes.look(tmp_path / "notes", tmp_path, "out", "report.csv")
    assert isinstance(seen, FileStat)
    assert (seen.size, seen.changed) == (3, None)
    assert abs(seen.written / 1e6 - time.time()) < 5


def noted(tmp_path, anew=True):
    """Note how the report is, as at the begin of an attempt."""
    probes.note(tmp_path / "notes.json", tmp_path, None, ["report"], anew=anew)


def changed(tmp_path):
    return probes.look(tmp_path / "notes.json", tmp_path, None, "report").changed


@pytest.mark.parametrize("hours", [-2, 0, 2])
def test_a_file_is_new_if_it_was_written_since_whatever_the_clocks_say(tmp_path, hours):
    """The clock is stepped by hours between the last write and the begin, or the other way."""
    report = tmp_path / "report"
    report.write_text("old")
    stepped = time.time() + hours * 3600
    os.utime(report, (stepped, stepped))
    noted(tmp_path)
    assert changed(tmp_path) is False
    report.write_text("new")
    assert changed(tmp_path) is True


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_file_is_new_if_it_was_written_after_a_step_of_the_clock(tmp_path, hours):
    report = tmp_path / "report"
    noted(tmp_path)
    report.write_text("new")
    stepped = time.time() + hours * 3600
    os.utime(report, (stepped, stepped))
    assert changed(tmp_path) is True


def test_a_write_in_the_tick_of_the_begin_is_seen(tmp_path):
    for n in range(20):
        (tmp_path / "report").write_text(str(n % 10))
        noted(tmp_path)
        (tmp_path / "report").write_text(str(n % 10))
        assert changed(tmp_path) is True


def test_a_file_of_the_same_words_that_takes_the_place_of_another_is_new(tmp_path):
    (tmp_path / "report").write_text("x")
    noted(tmp_path)
    (tmp_path / "report.new").write_text("x")
    (tmp_path / "report.new").replace(tmp_path / "report")
    assert changed(tmp_path) is True


def test_who_carries_an_attempt_on_leaves_what_was_noted(tmp_path):
    noted(tmp_path)
    (tmp_path / "report").write_text("x")
    noted(tmp_path, anew=False)
    assert changed(tmp_path) is True
    noted(tmp_path, anew=True)
    assert changed(tmp_path) is False


def test_what_was_noted_and_cannot_be_read_is_not_known(tmp_path):
    (tmp_path / "report").write_text("x")
    assert changed(tmp_path) is None
    (tmp_path / "notes.json").write_text("")
    assert changed(tmp_path) is None


def test_a_date_in_the_future_counts_for_nothing(tmp_path):
    (tmp_path / "old").write_text("x")
    os.utime(tmp_path / "old", (2e9, 2e9))
    seen = probes.look(tmp_path / "notes", tmp_path, None, "old")
    assert seen.written / 1e6 < time.time() + 5


def test_links_pipes_folders_and_nothing_are_no_files(tmp_path):
    (tmp_path / "away").symlink_to("/etc")
    (tmp_path / "passwd").symlink_to("/etc/passwd")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for folder, path in [
        (None, "passwd"), (None, "away/passwd"), ("away", "passwd"), (None, "folder"),
        (None, "pipe"), (None, "nothing"), ("nothing", "x"),
    ]:  # fmt: skip
        assert isinstance(probes.look(tmp_path / "notes", tmp_path, folder, path), str), path
    seen = probes.look(tmp_path / "notes", tmp_path, None, "nothing")
    assert seen == "there is no file with this path"


def test_an_address_answers_and_contains():
    with serving(page()) as url:
        good = probes.ask(url, "all good", 5, inside=True)
        assert good.passed
        bad = probes.ask(url, "all bad", 5, inside=True)
        assert not bad.passed
        assert 'without "all bad"' in bad.evidence
    with serving(page(status=b"503 No")) as url:
        assert probes.ask(url, None, 5, inside=True).evidence == "it answered 503"


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/", "http://localhost:1/", "http://0.0.0.0:1/", "http://[::1]:1/",
     "http://10.0.0.1/", "http://169.254.169.254/latest", "http://[::ffff:10.0.0.1]/",
     "http://[64:ff9b::a00:1]/", "http://2130706433/", "http://0x7f.1/"],
)  # fmt: skip
def test_nothing_inside_is_asked_unless_a_setting_says_so(url):
    seen = probes.ask(url, None, 5, inside=False)
    assert not seen.passed
    assert "inside of this network" in seen.evidence


def test_a_redirect_is_judged_like_any_address(monkeypatch):
    asked = []

    def outside(address):
        asked.append(address)
        return len(asked) == 1

    monkeypatch.setattr(probes, "is_outside", outside)
    with serving(page(b"", b"302 Found", b"Location: http://127.0.0.1:1/x\r\n")) as url:
        seen = probes.ask(url, None, 5, inside=False)
    assert "inside of this network" in seen.evidence
    assert asked == ["127.0.0.1", "127.0.0.1"]


def test_an_endless_round_ends():
    with serving(page(b"", b"302 Found", b"Location: /again\r\n")) as url:
        assert "redirects more than 3" in probes.ask(url, None, 5, inside=True).evidence


def test_a_redirect_to_another_kind_of_address_is_refused():
    with serving(page(b"", b"302 Found", b"Location: file:///etc/passwd\r\n")) as url:
        assert "is not allowed in a check" in probes.ask(url, None, 5, inside=True).evidence


def test_a_server_that_drips_is_cut_at_the_deadline():
    def drip(line, ended):
        line.sendall(b"HTTP/1.1 200 OK\r\n")
        while not ended.wait(0.02):
            line.sendall(b"X-More: drip\r\n")

    with serving(drip) as url:
        began = time.monotonic()
        seen = probes.ask(url, None, 0.3, inside=True)
        assert time.monotonic() - began < 3
    assert not seen.passed


def test_a_page_without_end_is_read_so_far_and_no_further():
    def flood(line, ended):
        line.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not ended.is_set():
            line.sendall(b"y" * 65_536)

    with serving(flood) as url:
        seen = probes.ask(url, "z", 5, inside=True)
    assert f"first {probes.MAX_BYTES} bytes" in seen.evidence


async def test_a_pattern_that_never_ends_is_ended(tmp_path):
    probes = LocalProbes(tmp_path)
    assert await probes.search("main", r"(a+)+$", "a" * 40 + "b") is None
    assert await probes.search("main", r"err(or)?\b", "an error here") is True
    assert await probes.search("main", r"err(or)?\b", "fine") is False


async def test_patterns_are_compiled_where_they_can_be_ended(tmp_path):
    probes = LocalProbes(tmp_path)
    classes = "".join(f"[{chr(n)}-\\uffff]" for n in range(33, 130))
    slow = [f"(?i){classes}{n}" for n in range(20)]
    assert all(len(pattern) <= MAX_PATTERN for pattern in slow)
    assert await probes.check_patterns("main", slow) == (None, probes_module.TOO_LONG)
    assert await probes.check_patterns("main", ["a+", "b|c"]) is None
    n, why = await probes.check_patterns("main", ["a", "("])
    assert (n, why.partition(":")[0]) == (1, "invalid regular expression")


@pytest.mark.parametrize(
    ("result", "fits"),
    [
        ({"n": 1}, True),
        ('{"n": 1}', True),
        ('```json\n{"n": 1}\n```', True),
        ({"m": 1}, False),
        ("no JSON at all", False),
        ("[" * 100_000, False),
        (None, False),
    ],
)
async def test_a_result_is_held_against_a_schema(tmp_path, result, fits):
    told = None if result is None else json.dumps(result)
    schema = {"type": "object", "required": ["n"]}
    assert (await LocalProbes(tmp_path).check_result("main", schema, told) == []) is fits


async def test_a_schema_that_takes_too_long_is_ended(tmp_path):
    schema = {"items": {"enum": [[n] for n in range(480)]}}
    check_schema(schema)
    result = json.dumps([[479]] * 40_000)
    assert await LocalProbes(tmp_path).check_result("main", schema, result) is None


async def test_a_space_evaluates_one_thing_at_a_time(tmp_path):
    """A member that asks for a hundred evaluations leaves the other seat to others."""
    probes = LocalProbes(tmp_path)
    many = [asyncio.ensure_future(probes.search("one", r"(a+)+$", "a" * 40)) for _ in range(20)]
    await asyncio.sleep(0)
    assert await probes.search("two", "a", "a") is True
    assert not all(one.done() for one in many)
    for one in many:
        one.cancel()
    await asyncio.gather(*many, return_exceptions=True)


async def test_a_home_looks_below_the_work_of_a_space(tmp_path):
    work = tmp_path / "spaces" / "main" / "work"
    work.mkdir(parents=True)
    (tmp_path / "keepers" / "rooms" / "7-1").mkdir(parents=True)
    probes = LocalProbes(tmp_path)
    await probes.note_files((7, 1), "main", None, ["x"], anew=True)
    (work / "x").write_text("")
    assert (await probes.stat_file((7, 1), "main", None, "x")).changed is True
    assert (await probes.stat_file((7, 2), "main", None, "x")).changed is None
    assert isinstance(await probes.stat_file((7, 1), "other", None, "x"), str)
    assert not (await probes.check_url("http://127.0.0.1:1/", None, 1)).passed
