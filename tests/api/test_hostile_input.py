"""Whatever is written in a request: one sentence, never a fault of the server, never a change."""

import json
import time

import pytest

from tests.conftest import KINDS

TASK = {"name": "job", "instructions": "Look."}
PREVIEW = "/v1/schedules/preview"
STRANGE = ["\x00", "a\x00b", "\ud800", "x\udfffy"]
VALUES = {"payload", "metadata", "data", "value"}
"""Values are kept as JSON, in which a NUL is six plain characters."""
PLACES = [
    ("POST", "/v1/tasks", lambda t: {"name": "other", "instructions": t}),
    ("POST", "/v1/tasks", lambda t: {"name": "other", "instructions": "Look.", "title": t}),
    ("POST", "/v1/tasks", lambda t: {"name": "other", "command": ["ls", t]}),
    ("POST", "/v1/tasks", lambda t: {"instructions": "Look.", "thread": f"a:{t}"}),
    ("POST", "/v1/tasks", lambda t: {"instructions": "Look.", "tools": [t]}),
    ("POST", "/v1/tasks", lambda t: {"instructions": "Look.", "policy": {"lane": t}}),
    ("POST", "/v1/tasks", lambda t: {"instructions": "Look.", "policy": {"group": t}}),
    ("POST", "/v1/tasks", lambda t: {"instructions": "Look.", "policy": {"deliver_to": t}}),
    ("POST", "/v1/tasks", lambda t: {"instructions": "Look.", "schedule": {"cron": t}}),
    ("PATCH", "/v1/tasks/job", lambda t: {"title": t}),
    ("POST", "/v1/tasks/job/disable", lambda t: {"reason": t}),
    ("POST", "/v1/tasks/job/disable", lambda t: {"until": t}),
    ("POST", "/v1/tasks/job/run-now", lambda t: {"input": t}),
    ("POST", "/v1/tasks/job/run-now", lambda t: {"payload": {"a": [t]}}),
    ("POST", "/v1/tasks/job/run-now", lambda t: {"payload": {t: 1}}),
    ("POST", "/v1/tasks/job/run-now", lambda t: {"key": t}),
    ("POST", "/v1/runs", lambda t: {"agent": {"instructions": "Go.", "metadata": {"a": t}}}),
    ("POST", "/v1/runs", lambda t: {"agent": {"instructions": t}}),
    ("POST", "/v1/runs", lambda t: {"task": "job", "at": t}),
    ("POST", "/v1/keys", lambda t: {"name": t}),
    ("POST", "/v1/spaces", lambda t: {"name": "new", "timezone": t}),
    ("PUT", "/v1/state/job/a", lambda t: {"value": t}),
    ("POST", "/v1/seen/job", lambda t: {"items": [{"item": t}]}),
    ("POST", "/v1/seen/job", lambda t: {"items": [{"item": "a", "provider": t}]}),
    ("POST", "/v1/seen/job", lambda t: {"items": [{"item": "a", "data": t}]}),
    ("POST", PREVIEW, lambda t: {"schedule": {"words": t}}),
    ("POST", PREVIEW, lambda t: {"schedule": {"cron": "* * * * *", "timezone": t}}),
]


@pytest.mark.parametrize("kind", KINDS)
def test_text_that_cannot_be_kept_is_refused_everywhere(door):
    door.main.post("/v1/tasks", TASK)
    for method, path, body in PLACES:
        for text in STRANGE:
            told = door.main.ask(method, path, body(text))
            if "\x00" in text and any(f'"{name}"' in json.dumps(body(text)) for name in VALUES):
                assert told.status in {200, 201}, (path, body(text), told)
                continue
            assert (told.status, told.code) == (400, "invalid"), (path, body(text), told)
    for query in ("text=%00", "thread=a:%00", "name=%00"):
        assert door.main.get(f"/v1/tasks?{query}").status == 400
    assert door.main.get("/v1/state/job?after=%00").status == 400
    assert door.main.get("/v1/seen/job/a?provider=%00").status == 400
    assert {task["name"] for task in door.main.get("/v1/tasks").json["tasks"]} <= {
        "job",
        "once-agent",
    }
    assert door.main.get("/v1/state/job/a").json["value"] == "a\x00b"
    assert door.main.get("/v1/runs?task=job").status == 200


@pytest.mark.parametrize(
    "value",
    ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "[" * 100_000, *("[" * n + "]" * n for n in (300, 900, 960, 990)),
     '{"a":' * 100_000, '{"a":' * 300 + "1" + "}" * 300, '"' + "a" * 900_000 + '"'],
)  # fmt: skip
def test_values_beyond_reason_are_refused(door, value):
    door.main.post("/v1/tasks", TASK)
    for method, path, field in (
        ("POST", "/v1/tasks/job/run-now", "payload"),
        ("PUT", "/v1/state/job/a", "value"),
        ("POST", "/v1/runs", "payload"),
        ("POST", PREVIEW, "n"),
        ("POST", "/v1/tasks", "title"),
        ("GET", "/v1/tasks", "limit"),
    ):
        headers = {
            "Authorization": f"Bearer {door.main.token}",
            "Content-Type": "application/json",
        }
        body = f'{{"{field}": {value}, "agent": {{"instructions": "Go."}}}}'
        if "state" in path or "run-now" in path:
            body = f'{{"{field}": {value}}}'
        told = door.main.send(method, path, body.encode(), headers)
        assert told.status == (200 if method == "GET" else 400), (path, told)
    assert (
        door.main.get(f"/v1/tasks?limit={value[:4000].strip(chr(34))}").status == 400
        or "[" in value
    )


@pytest.mark.parametrize(
    "instant",
    ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59Z",
     "0001-01-01T00:00:00Z", "1900-01-01T00:00:00Z", "2026-05-05T12:00:00", "2026-05-05", 5, 1e300,
     True, "now", "99999-01-01T00:00:00Z", "2026-05-05T12:00:00+99:00"],
)  # fmt: skip
def test_instants_at_the_end_of_time(door, instant):
    for schedule in (
        {"cron": "0 9 * * *"},
        {"every": "10s"},
        {"rrule": "FREQ=YEARLY"},
        {"at": "2026-05-05 12:00"},
        {"times": "09:00"},
    ):
        began = time.monotonic()
        told = door.main.post(PREVIEW, {"schedule": schedule, "start": instant, "n": 100})
        assert told.status in {200, 400}, told
        assert time.monotonic() - began < 0.5
    told = door.main.post("/v1/keys", {"name": "k", "expires_at": instant})
    assert told.status in {201, 400}, told
    door.main.post("/v1/tasks", TASK)
    assert door.main.post("/v1/runs", {"task": "job", "at": str(instant)}).status in {201, 400}
    assert door.main.post("/v1/tasks/job/disable", {"until": str(instant)}).status in {200, 400}
    assert door.main.get(f"/v1/tasks/job/why?at={instant}").status in {200, 400}


@pytest.mark.parametrize(
    ("path", "body"),
    [(PREVIEW, {"schedule": {"cron": "* * * * *"}, "n": "5"}),
     (PREVIEW, {"schedule": {"cron": "* * * * *"}, "n": True}),
     (PREVIEW, {"schedule": {"cron": "* * * * *"}, "start": 5}),
     (PREVIEW, {"schedule": {"cron": "* * * * *"}, "start": "2026-05-05"}),
     ("/v1/tasks", {"instructions": "Go.", "policy": {"priority": True}}),
     ("/v1/tasks", {"instructions": "Go.", "policy": {"priority": "5"}}),
     ("/v1/tasks", {"instructions": "Go.", "policy": {"retry": {"attempts": "2"}}}),
     ("/v1/tasks", {"instructions": "Go.", "policy": {"retry": {"factor": "2"}}}),
     ("/v1/tasks", {"instructions": "Go.", "policy": {"retry": {"factor": True}}}),
     ("/v1/tasks", {"instructions": "Go.", "policy": {"catch_up": {"cap": "2"}}}),
     ("/v1/runs", {"agent": {"instructions": "Go."}, "priority": "1"}),
     ("/v1/keys", {"name": "k", "scopes": "read"})],
)  # fmt: skip
def test_numbers_are_not_read_from_words(door, path, body):
    assert door.main.post(path, body).status == 400
