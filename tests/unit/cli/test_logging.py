from __future__ import annotations

import io
import json
import logging
import re

import pytest

from rota.app.logging import configure_logging


class Screen(io.StringIO):
    def isatty(self):
        return True


def say(form, stream, *, level="info"):
    """Configure, log what a worker would, and return the lines."""
    name_traces = configure_logging(level, form, stream=stream)
    name_traces("0123456789abcdef")
    log = logging.getLogger("rota.runtime.worker")
    facts = {"task": "hello", "outcome": "succeeded", "run_id": 12, "attempt": 1, "ms": 3.2}
    log.info("run.settled", extra=facts)
    failed = {**facts, "outcome": "failed", "attempt": 2, "ms": 1500.0, "error": "ValueError: no"}
    log.info("run.settled", extra=failed)
    log.warning("poller.stuck", extra={"poller": "planner", "why": "two words"})
    log.debug("not.shown")
    return stream.getvalue().splitlines()


def test_machines_get_one_json_object_a_line():
    first, second, third = map(json.loads, say("auto", io.StringIO()))
    assert (first["event"], first["task"], first["level"]) == ("run.settled", "hello", "info")
    assert first["trace_id"] == second["trace_id"] == "01234567-12"
    assert first["timestamp"].endswith("Z")
    assert (third["poller"], third["level"]) == ("planner", "warning")
    assert "trace_id" not in third


def test_people_get_short_lines():
    first, second, third = say("text", io.StringIO())
    assert re.fullmatch(r"\d\d:\d\d:\d\d  hello          succeeded  run 12        3 ms", first)
    assert second.endswith("failed     run 12       1.5 s attempt 2 ValueError: no")
    assert third.endswith("poller.stuck  poller=planner why='two words'")


def test_a_terminal_gets_colour_and_a_pipe_does_not():
    assert "\x1b[32m" in say("auto", Screen())[0]
    assert "\x1b" not in "".join(say("text", io.StringIO()))


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_exception_is_told_with_its_trace(form):
    stream = io.StringIO()
    configure_logging("info", form, stream=stream)
    try:
        int("broken")
    except ValueError:
        logging.getLogger("rota.x").exception("it.broke", extra={"run_id": 3})
    text = stream.getvalue()
    assert "it.broke" in text
    assert "ValueError: invalid literal" in text
    assert "Traceback" in text


def test_the_level_is_obeyed():
    stream = io.StringIO()
    assert len(say("json", stream, level="warning")) == 1


@pytest.mark.parametrize("form", ["json", "text"])
def test_what_others_wrote_is_visible_in_the_log(form):
    stream = Screen()
    configure_logging("info", form, stream=stream)
    log = logging.getLogger("rota.channels.log")
    hostile = "a\x9b2J\x1b[8mb\u202ec\u200bd\x7f"
    log.info("message.sent", extra={"body": hostile, "target": hostile})
    log.info("run.settled", extra={"task": "x", "outcome": "failed", "run_id": 1, "error": hostile})
    log.info("step.taken", extra={"why": [hostile], "said": hostile})
    log.error("step.failed", exc_info=ValueError(hostile))
    told = stream.getvalue()
    assert told.count("\\u202e") >= 5
    assert not {"\x9b", "\u202e", "\u200b", "\x7f"} & set(told)
    assert "\x1b[8m" not in told
