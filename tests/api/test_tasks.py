"""Tasks and schedules over HTTP: made, listed, changed, run and taken away."""

import re
from datetime import timedelta

import pytest

from tests.conftest import KINDS

WORK = {"instructions": "Look at the sky."}
EVERY_DAY = {"cron": "0 9 * * *", "timezone": "Europe/Berlin"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_of_a_thread_says_when_it_runs(door):
    body = {"title": "Sky", "schedule": EVERY_DAY} | WORK
    told = door.main.post("/v1/threads/telegram:42/tasks", body)
    assert told.status == 201
    task = told.json
    assert (task["name"], task["thread"], task["kind"]) == ("sky", "telegram:42", "agent")
    assert task["fires"] == [f"2026-03-0{day}T08:00:00Z" for day in (3, 4, 5)]
    (schedule,) = task["schedules"]
    assert (schedule["kind"], schedule["timezone"]) == ("cron", "Europe/Berlin")
    listed = door.main.get("/v1/tasks?thread=telegram:42").json["tasks"]
    assert [one["id"] for one in listed] == [task["id"]]


@pytest.mark.parametrize(
    ("schedule", "kind"),
    [({"cron": "*/5 * * * *"}, "cron"), ({"rrule": "FREQ=DAILY"}, "rrule"), ({"every": "10m"}, "interval"),
     ({"at": "2026-05-05 12:00"}, "once"), ({"times": "09:00", "weekdays": "mon"}, "calendar"),
     ({"words": "every day at 9"}, "calendar"), ({"kind": "cron", "cron": "0 0 * * *"}, "cron")],
)  # fmt: skip
def test_every_kind_of_rule_is_taken(door, schedule, kind):
    told = door.main.post("/v1/tasks", WORK | {"schedule": schedule})
    assert told.status == 201, told
    assert told.json["schedules"][0]["kind"] in {kind, "cron"}
    shown = door.main.post("/v1/schedules/preview", {"schedule": schedule, "n": 3})
    assert shown.json["fires"][:1] == told.json["fires"][:1]


@pytest.mark.parametrize(
    ("body", "field"),
    [({}, "body"), (WORK | {"command": ["ls"]}, "body"), (WORK | {"unknown": 1}, "unknown"),
     (WORK | {"name": "no good"}, "name"), (WORK | {"title": "x" * 201}, "title"),
     ({"instructions": ""}, "instructions"), (WORK | {"schedule": {}}, "schedule"),
     (WORK | {"schedule": {"cron": "61 * * * *"}}, "cron"),
     (WORK | {"schedule": {"cron": "* * * * *", "timezone": "Mars/Base"}}, "timezone"),
     (WORK | {"schedule": {"cron": "* * * * *", "every": "1m"}}, "schedule"),
     (WORK | {"schedule": {"kind": "cron", "every": "1m"}}, "schedule"),
     (WORK | {"policy": {"timeout": "soon"}}, "timeout"),
     (WORK | {"policy": {"retry": {"attempts": 0}}}, "policy.retry.attempts"),
     (WORK | {"thread": "nothing"}, "thread"), (WORK | {"agent": "command"}, "command"),
     ({"command": []}, "command"),
     ({"call": "tests.api.callables:greet", "policy": {"idle_timeout": "3s"}}, "idle_timeout")],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_sentence_with_its_field(door, body, field):
    told = door.main.post("/v1/tasks", body)
    assert (told.status, told.code, told.field) == (400, "invalid", field), told
    assert "\n" not in told.sentence
    assert len(told.sentence) < 400
    assert not re.search(r"\{'|timedelta|list should", told.sentence), "it is told in words"
    assert door.main.get("/v1/tasks").json["tasks"] == []


def checked(*patterns):
    checks = [{"not_like": pattern, "regex": True} for pattern in patterns]
    return {"command": ["ls"], "checks": checks}


def test_a_pattern_that_is_none_is_refused(door):
    told = door.main.post("/v1/tasks", checked("a", "("))
    assert (told.status, told.field) == (400, "checks[1].not_like")
    assert "invalid regular expression" in told.sentence
    assert door.main.post("/v1/tasks", checked("a") | {"name": "sky"}).status == 201
    for ask in (door.main.patch, door.main.put):
        assert ask("/v1/tasks/sky", checked("(")).field == "checks[0].not_like"


def test_patterns_that_take_too_long_to_compile_are_refused(door):
    """Ten dry runs of one member stopped everybody for nine seconds."""
    classes = "".join(f"[{chr(n)}-\\uffff]" for n in range(33, 130))
    body = checked(*(f"(?i){classes}{n}" for n in range(20)))
    told = door.ann.post("/v1/tasks", body, Rota_Dry_Run="true")
    assert (told.status, told.field) == (400, "checks")
    assert "too long" in told.sentence


def test_the_same_task_twice_is_one_and_another_is_a_conflict(door):
    body = WORK | {"name": "sky"}
    assert door.main.post("/v1/tasks", body).status == 201
    told = door.main.post("/v1/tasks", body | {"instructions": "Look at the sea."})
    assert (told.status, told.code) == (409, "conflict")
    assert door.main.get("/v1/tasks/sky").json["instructions"] == "Look at the sky."


def test_a_name_that_is_a_number_wins_over_an_id(door):
    other = door.main.post("/v1/tasks", WORK | {"name": "sky"}).json["id"]
    assert door.main.get(f"/v1/tasks/{other}").json["name"] == "sky"
    door.run(door.bench.task(str(other)))
    assert door.main.post(f"/v1/tasks/{other}/disable").json["name"] == str(other)
    assert door.main.get("/v1/tasks/sky").json["state"] == "enabled"
    changed = door.main.patch("/v1/tasks/sky", {"title": "Clouds"}).json
    assert (changed["id"], changed["title"]) == (other, "Clouds")


def test_a_callable_must_be_allowed_to_be_named(door):
    allowed = door.main.post("/v1/tasks", {"call": "tests.api.callables:greet"})
    assert (allowed.status, allowed.json["kind"]) == (201, "python")
    refused = door.main.post("/v1/tasks", {"call": "os:system"})
    assert (refused.status, refused.code) == (403, "not_permitted")
    other = door.main.post("/v1/tasks", WORK | {"name": "sky"}).json["id"]
    assert door.main.patch(f"/v1/tasks/{other}", {"call": "os:system"}).status == 400


@pytest.mark.parametrize("kind", KINDS)
def test_lists_go_on_where_they_ended(door):
    for n in range(7):
        door.main.post("/v1/tasks", WORK | {"name": f"t{n}"})
    seen, before = [], ""
    while True:
        page = door.main.get(f"/v1/tasks?limit=3{before}").json
        seen += [task["name"] for task in page["tasks"]]
        if page["next"] is None:
            break
        door.main.post("/v1/tasks", WORK | {"name": f"new-{len(seen)}"})  # nothing shifts
        before = f"&before={page['next']}"
    assert seen == [f"t{n}" for n in reversed(range(7))]
    for query, names in (
        ("text=t3", ["t3"]),
        ("name=t4", ["t4"]),
        ("kind=script", []),
        ("state=disabled", []),
    ):
        assert [t["name"] for t in door.main.get(f"/v1/tasks?{query}").json["tasks"]] == names


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "limit=x", "before=0", "state=odd", "what=1", "limit=1&limit=2"],
)
def test_a_filter_that_is_wrong_is_refused(door, query):
    told = door.main.get(f"/v1/tasks?{query}")
    assert (told.status, told.field) == (400, query.partition("=")[0])


def test_only_what_was_seen_is_changed(door):
    door.main.post("/v1/tasks", WORK | {"name": "sky", "schedule": EVERY_DAY})
    shown = door.main.get("/v1/tasks/sky")
    etag = shown.headers["etag"]
    first = door.main.patch("/v1/tasks/sky", {"title": "One"}, If_Match=etag)
    assert (first.status, first.json["title"]) == (200, "One")
    assert first.headers["etag"] != etag
    for method, body in (("PATCH", {"title": "Two"}), ("DELETE", None)):
        told = door.main.ask(method, "/v1/tasks/sky", body, If_Match=etag)
        assert (told.status, told.code) == (412, "stale")
    assert door.main.patch("/v1/tasks/sky", {"title": "Three"}, If_Match="*").status == 200
    now = door.main.get("/v1/tasks/sky").headers["etag"]
    door.main.put("/v1/tasks/sky/schedules/default", {"schedule": {"every": "1h"}})
    assert door.main.delete("/v1/tasks/sky", If_Match=now).status == 412
    assert door.main.delete("/v1/tasks/sky").json["deleted"] is True
    assert door.main.get("/v1/tasks/sky").status == 404


def test_a_change_leaves_what_it_does_not_name(door):
    policy = {"timeout": "5m", "retry": {"attempts": 3}, "lane": "a"}
    door.main.post("/v1/tasks", WORK | {"name": "sky", "schedule": EVERY_DAY, "policy": policy})
    was = door.main.get("/v1/tasks/sky").json
    now = door.main.patch("/v1/tasks/sky", {"policy": {"priority": 5}}).json
    assert now["policy"] == was["policy"] | {"priority": 5}
    assert (now["instructions"], now["schedules"][0]["rule"]) == (
        was["instructions"],
        was["schedules"][0]["rule"],
    )
    assert door.main.patch("/v1/tasks/sky", {}).status == 400
    assert door.main.patch("/v1/tasks/nothing", {"title": "x"}).status == 404


@pytest.mark.parametrize("kind", KINDS)
def test_a_disabled_task_runs_when_asked_and_its_schedule_stays(door):
    door.main.post("/v1/tasks", WORK | {"name": "sky", "schedule": EVERY_DAY})
    door.main.post("/v1/tasks/sky/disable", {"reason": "rain"})
    was = door.main.get("/v1/tasks/sky").json
    told = door.main.post("/v1/tasks/sky/run-now", {"input": "now"})
    assert told.status == 201
    run = door.main.get(f"/v1/runs/{told.json['run']}").json
    assert (run["state"], run["source"], run["payload"]) == ("queued", "manual", {"input": "now"})
    now = door.main.get("/v1/tasks/sky").json
    assert (now["state"], now["disabled_reason"]) == ("disabled", "rain")
    assert now["schedules"] == was["schedules"]
    assert door.main.post("/v1/tasks/sky/enable").json["state"] == "enabled"
    until = door.main.post(
        "/v1/tasks/sky/disable", {"until": "2026-03-05 12:00", "timezone": "UTC"}
    ).json
    assert (until["state"], until["paused_until"]) == ("paused", "2026-03-05T12:00:00Z")


def test_both_an_input_and_a_payload_are_one_too_many(door):
    door.main.post("/v1/tasks", WORK | {"name": "sky"})
    told = door.main.post("/v1/tasks/sky/run-now", {"input": "a", "payload": 1})
    assert (told.status, told.field) == (400, "input")


def test_schedules_are_put_listed_and_dropped(door):
    door.main.post("/v1/tasks", WORK | {"name": "sky"})
    one = door.main.put("/v1/tasks/sky/schedules/often", {"schedule": {"every": "1h"}})
    again = door.main.put("/v1/tasks/sky/schedules/often", {"schedule": {"every": "1h"}})
    assert (one.status, again.json) == (200, one.json)
    door.main.put("/v1/tasks/sky/schedules/daily", {"schedule": EVERY_DAY})
    listed = door.main.get("/v1/schedules?task=sky").json["schedules"]
    assert [schedule["name"] for schedule in listed] == ["daily", "often"]
    fires = door.main.get("/v1/tasks/sky/next?n=3").json["fires"]
    assert [fire["schedule"] for fire in fires] == ["often"] * 3
    assert door.main.delete("/v1/tasks/sky/schedules/often").json["deleted"] is True
    assert door.main.delete("/v1/tasks/sky/schedules/often").status == 404
    assert door.main.get("/v1/schedules?task=nothing").status == 404


def test_why_says_what_became_of_a_slot(door):
    door.main.post("/v1/tasks", WORK | {"name": "sky", "schedule": {"every": "1h"}})
    door.clock.advance(timedelta(hours=2, minutes=1))
    door.run(door.bench.plan())
    told = door.main.get("/v1/tasks/sky/why").json
    assert told["task"] == "sky"
    assert told["slots"]
    assert door.main.get("/v1/tasks/sky/why?at=nonsense").field == "at"
    assert door.main.get("/v1/tasks/sky/why?timezone=Mars").status == 400


def test_a_preview_tells_of_the_clocks_and_keeps_nothing(door):
    body = {
        "schedule": {"cron": "30 2 * * *", "timezone": "Europe/Berlin"},
        "start": "2026-03-27T00:00:00Z",
        "n": 4,
    }
    told = door.main.post("/v1/schedules/preview", body).json
    assert len(told["fires"]) == len(told["local"]) == 4
    assert "every day" in told["words"].lower()
    assert told["notes"]
    assert door.main.get("/v1/schedules").json["schedules"] == []


def test_a_task_is_found_by_its_id_before_its_name(door):
    first = door.main.post("/v1/tasks", WORK | {"name": "a/b"}).json["id"]
    assert door.main.get(f"/v1/tasks/{first}").json["name"] == "a/b"
    assert door.main.get("/v1/tasks/a%2Fb").status == 404
    assert door.main.get("/v1/tasks/99999999999999999999").status == 404


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_and_its_schedule_are_changed_in_one_step(door):
    door.main.post("/v1/tasks", WORK | {"name": "sky", "schedule": EVERY_DAY})
    change = {"policy": {"timeout": "5m"}, "schedule": {"every": "10m"}}
    told = door.main.patch("/v1/tasks/sky", change)
    assert told.status == 200, told
    assert (told.json["policy"]["timeout"], told.json["schedules"][0]["kind"]) == (300, "interval")


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_is_put_as_it_shall_be(door):
    whole = WORK | {"schedule": EVERY_DAY, "policy": {"timeout": "5m"}}
    changes = [door.main.put("/v1/tasks/sky", body).json["change"] for body in (whole, whole)]
    assert changes == ["created", "unchanged"]
    other = {"instructions": "Look at the sea."}
    told = door.main.put("/v1/tasks/sky", other).json
    assert (told["change"], told["schedules"], told["policy"]["timeout"]) == ("changed", [], None)
    assert told["instructions"] == "Look at the sea."
    assert door.main.put("/v1/tasks/sky", {"command": ["ls"]}).field == "kind"
    assert door.main.put("/v1/tasks/sky", {"schedule": EVERY_DAY}).field == "body"
    assert door.main.get("/v1/tasks/sky").json["instructions"] == "Look at the sea."
