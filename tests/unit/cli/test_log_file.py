from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest

from rota.app.logging import OLDER, LogFile, configure_logging
from rota.errors import Unavailable


@pytest.fixture
def path(tmp_path):
    yield tmp_path / "logs" / "rota.log"
    for handler in tuple(logging.getLogger().handlers):
        if isinstance(handler, LogFile):
            handler.close()
            logging.getLogger().removeHandler(handler)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_file_gets_json_while_people_read_text(path):
    screen = io.StringIO()
    name_traces = configure_logging("info", "text", stream=screen, file=path)
    name_traces("0123456789abcdef")
    log = logging.getLogger("rota.x")
    log.info("run.settled", extra={"task": "a", "outcome": "failed", "run_id": 7, "error": "a\nb"})
    log.info("odd", extra={"text": "\ud800 \u2028", "thing": object()})
    log.debug("not.shown")
    first, second = lines(path)
    assert (first["run_id"], first["trace_id"], first["error"]) == (7, "01234567-7", "a\nb")
    assert second["event"] == "odd"
    assert screen.getvalue().count("run 7") == 1


def test_only_its_owner_reads_it(path):
    configure_logging("info", "text", stream=io.StringIO(), file=path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_it_takes_no_more_than_its_share(path):
    handler = LogFile(path, longest=1_000)
    log = logging.getLogger("rota.much")
    log.addHandler(handler)
    for n in range(500):
        log.error("line %d %s", n, "x" * 50)
    log.removeHandler(handler)
    handler.close()
    kept = sorted(path.parent.iterdir())
    assert len(kept) == OLDER + 1
    assert all(one.stat().st_size <= 1_000 for one in kept)
    assert all(one.stat().st_mode & 0o777 == 0o600 for one in kept)
    assert "line 499" in path.read_text()


def test_a_place_that_cannot_be_written_is_told_in_one_sentence(tmp_path):
    (tmp_path / "logs").write_text("in the way")
    with pytest.raises(Unavailable, match="cannot write the log .*rota.log: "):
        LogFile(tmp_path / "logs" / "rota.log")


def test_a_full_disk_is_told_once_and_work_goes_on(capsys):
    handler = LogFile(Path("/dev/full"))
    log = logging.getLogger("rota.full")
    log.addHandler(handler)
    log.error("one")
    log.error("two")
    log.removeHandler(handler)
    with pytest.raises(OSError, match="No space"):
        handler.close()
    assert capsys.readouterr().err.count("cannot write the log") == 1
