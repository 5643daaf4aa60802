from __future__ import annotations

import pytest

from rota.cli.task_text import deleted_text

pytestmark = pytest.mark.usefixtures("there")
HELLO = ("--call", "rota.samples:hello")

UNLED = (
    "  ! no channel serves web:home: nothing is sent there, and results stay with the runs; use log"
)
PROGRAM = ("--command", "think")
DELETED = {"deleted": True, "id": 1, "name": "x", "cancelled": [], "stopping": []}


def test_a_task_is_created_with_its_schedule_and_told_in_words(rota):
    answer = rota.ok(
        "task",
        "create",
        "report",
        *HELLO,
        "--cron",
        "0 7 * * mon-fri",
        "--timezone",
        "Europe/Berlin",
    )
    lines = answer.out.splitlines()
    assert lines[0] == "Created report."
    assert lines[1] == "  weekdays at 07:00, Europe/Berlin"
    assert len(lines) == 6
    assert all(line.endswith(("CET", "CEST")) for line in lines[2:5])
    assert lines[5] == "  results: rota logs report"


def test_a_task_without_a_schedule_runs_when_asked(rota, hello):
    assert rota.json("task", "show", hello)["schedules"] == []
    assert "runs on request" in rota.ok("task", "create", "other", *HELLO).out


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--cron", "*/15 * * * *", "every 15 minutes"),
        ("--rrule", "FREQ=DAILY;BYHOUR=9;BYMINUTE=0", "every day at 09:00"),
        ("--every", "10m", "every 10 minutes"),
        ("--once-at", "2099-12-24T09:00", "once on"),
        ("--at-times", "07:00,17:30", "07:00 and 17:30"),
    ],
)
def test_every_kind_of_rule_can_be_given(rota, option, value, words):
    made = rota.json("task", "create", "x", *HELLO, option, value)
    assert words in made["schedules"][0]["words"]
    assert made["fires"]


def test_the_policy_options_reach_the_task(rota):
    rota.ok("task", "create", "first", *HELLO)
    made = rota.json(
        "task", "create", "x", *HELLO, "--title", "An example", "--retry", "3", "--timeout", "10m",
        "--priority", "7", "--pool", "foreground", "--overlap", "skip", "--catch-up", "all",
        "--on-lost", "fail", "--disable-after", "4", "--deadline", "1h", "--group", "mail",
        "--lane", "post", "--after", "first", "--on", "any", "--acknowledge", "--progress", "5",
    )  # fmt: skip
    policy = made["policy"]
    assert (policy["acknowledge"], policy["progress"]) == (True, 5)
    assert "acknowledges messages, up to 5 progress messages" in rota.ok("task", "show", "x").out
    quiet = rota.json("task", "edit", "x", "--no-acknowledge", "--progress", "0")["policy"]
    assert (quiet["acknowledge"], quiet["progress"]) == (False, 0)
    assert "progress" in rota.refused("task", "edit", "x", "--progress", "21")
    assert made["title"] == "An example"
    assert policy["retry"]["attempts"] == 3
    assert (policy["timeout"], policy["deadline"], policy["priority"]) == (600, 3600, 7)
    assert (policy["pool"], policy["overlap"], policy["on_lost"]) == ("foreground", "skip", "fail")
    assert (policy["catch_up"]["mode"], policy["disable_after"]) == ("all", 4)
    assert (policy["group"], policy["lane"], policy["metered"]) == ("mail", "post", False)
    assert made["after"] == {"task": "first", "on": "any"}


def test_the_options_of_a_rule_reach_the_schedule(rota):
    made = rota.json(
        "task", "create", "x", *HELLO, "--at-times", "07:00", "--weekdays", "mon-fri",
        "--timezone", "Europe/Berlin", "--jitter", "5m", "--exclude", "2026-12-24", "--exclude",
        "wed", "--quiet", "22:00-06:00", "--quiet-mode", "skip", "--starts-at", "2026-12-01T00:00",
        "--ends-at", "2027-12-01T00:00", "--gap", "skip", "--fold", "second",
    )  # fmt: skip
    rule = made["schedules"][0]["rule"]
    assert rule["expression"] == "07:00 mon-fri"
    assert rule["timezone"] == "Europe/Berlin"
    assert rule["jitter"] == "PT5M"
    assert rule["excluded"] == ["2026-12-24", "wed"]
    assert (rule["quiet"], rule["quiet_mode"]) == (["22:00-06:00"], "skip")
    assert (rule["gap"], rule["fold"]) == ("skip", "second")
    assert rule["starts_at"] == "2026-11-30T23:00:00Z"


BAD = [
    (("--cron", "61 * * * *"), "minute"),
    (("--cron", "nonsense"), "cron"),
    (("--rrule", "FREQ=NEVER"), "FREQ"),
    (("--rrule", "FREQ=DAILY;INTERVAL=0"), "INTERVAL"),
    (("--every", "soon"), "soon"),
    (("--every", "0s"), "0s"),
    (("--every", "1ms"), "at most once a second"),
    (("--once-at", "yesterday"), "yesterday"),
    (("--once-at", "2001-01-01T00:00"), "past"),
    (("--at-times", "25:00"), "25:00"),
    (("--at-times", "07:00", "--weekdays", "someday"), "someday"),
    (("--cron", "0 7 * * *", "--weekdays", "mon"), "weekdays"),
    (("--cron", "0 7 * * *", "--every", "5m"), "--cron and --every"),
    (("--cron", "0 7 * * *", "--timezone", "Europe/Berlim"), "Europe/Berlin"),
    (("--timezone", "UTC"), "needs a schedule"),
    (("--jitter", "5m"), "needs a schedule"),
    (("--every", "5m", "--jitter", "9d"), "jitter"),
    (("--every", "5m", "--exclude", "2026-13-01"), "2026-13-01"),
    (("--every", "5m", "--quiet", "22-7"), "quiet"),
    (("--every", "5m", "--quiet-mode", "loud"), "loud"),
    (("--every", "5m", "--starts-at", "later"), "--starts-at"),
    (("--every", "5m", "--ends-at", "never"), "--ends-at"),
    (("--every", "5m", "--gap", "leap"), "leap"),
    (("--every", "5m", "--fold", "third"), "third"),
    (("--retry", "0"), "retry"),
    (("--retry", "many"), "many"),
    (("--retry-base", "x"), "--retry-base"),
    (("--timeout", "forever"), "timeout"),
    (("--priority", "high"), "high"),
    (("--pool", "deep"), "deep"),
    (("--overlap", "maybe"), "maybe"),
    (("--catch-up", "some"), "some"),
    (("--on-lost", "cry"), "cry"),
    (("--disable-after", "-1"), "disable-after"),
    (("--deadline", "0"), "deadline"),
    (("--group", ""), "group"),
    (("--lane", ""), "lane"),
    (("--after", "x"), "follow itself"),
    (("--on", "any"), "--after"),
    (("--title", "t" * 300), "title"),
    (("--call", "no.such.module:f"), "no.such.module"),
    (("--call", "rota.samples:missing"), "missing"),
    (("--call", "just_a_word"), "module:function"),
    (("--colour", "red"), "--colour"),
]


@pytest.mark.parametrize(
    ("options", "named"), BAD, ids=lambda v: " ".join(v)[:40] if isinstance(v, tuple) else ""
)
def test_bad_input_is_one_sentence_and_leaves_nothing_behind(rota, options, named):
    call = () if "--call" in options else HELLO
    assert named in rota.refused("task", "create", "x", *call, *options)
    assert rota.json("task", "list")["tasks"] == []


@pytest.mark.parametrize("options", [("--after", "nobody"), ("--space", "nobody")])
def test_what_a_new_task_needs_must_be_there(rota, options):
    assert '"nobody"' in rota.refused("task", "create", "x", *HELLO, *options, code=3)
    assert rota.json("task", "list")["tasks"] == []


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 129, "é"])
def test_a_bad_name_is_refused(rota, name):
    assert rota.refused("task", "create", *HELLO, "--", name)
    assert rota.json("task", "list")["tasks"] == []


def test_a_call_that_cannot_be_imported_is_taken_unchecked(rota):
    made = rota.json("task", "create", "x", "--call", "no.such.module:f", "--unchecked")
    assert made["call"] == "no.such.module:f"


def test_a_call_is_needed(rota):
    assert "--call" in rota.refused("task", "create", "x")


def test_a_name_is_taken_once(rota, hello):
    assert "already" in rota.refused("task", "create", hello, *HELLO, code=5)


def test_errors_in_json_name_the_field(rota):
    answer = rota("task", "create", "x", *HELLO, "--pool", "deep", "--json")
    assert answer.code == 2
    assert answer.error["code"] == "invalid"
    assert answer.error["field"] == "policy.pool"
    assert "deep" in answer.error["message"]


def test_edit_changes_what_is_given_and_leaves_the_rest(rota):
    rota.ok("task", "create", "x", *HELLO, "--every", "5m", "--retry", "3", "--title", "One")
    made = rota.json("task", "edit", "x", "--priority", "5")
    assert made["policy"]["priority"] == 5
    assert made["policy"]["retry"]["attempts"] == 3
    assert made["title"] == "One"
    assert made["schedules"][0]["words"] == "every 5 minutes"


def test_edit_replaces_the_rule_and_adds_and_drops_schedules(rota):
    rota.ok("task", "create", "x", *HELLO, "--every", "5m")
    assert (
        rota.json("task", "edit", "x", "--every", "7m")["schedules"][0]["words"]
        == "every 7 minutes"
    )
    both = rota.json("task", "edit", "x", "--schedule", "nightly", "--cron", "0 2 * * *")
    assert [s["name"] for s in both["schedules"]] == ["default", "nightly"]
    left = rota.json("task", "edit", "x", "--drop-schedule", "default")
    assert [s["name"] for s in left["schedules"]] == ["nightly"]


def test_a_refused_edit_changes_nothing(rota):
    rota.ok("task", "create", "x", *HELLO, "--every", "5m")
    before = rota.json("task", "show", "x")
    rota.refused("task", "edit", "x", "--priority", "5", "--cron", "bad")
    rota.refused("task", "edit", "x", "--priority", "bad", "--cron", "0 7 * * *")
    rota.refused("task", "edit", "x", "--drop-schedule", "nightly", code=3)
    assert rota.json("task", "show", "x") == before


@pytest.mark.parametrize(
    ("cancelled", "stopping", "told"),
    [
        ([], [], "Deleted x."),
        ([], [571], "Deleted x; run 571 is stopping."),
        ([7], [5, 6], "Deleted x; run 7 is cancelled; runs 5, 6 are stopping."),
        (list(range(1, 9)), [], "Deleted x; runs 1, 2, 3, 4, 5 and 3 more are cancelled."),
    ],
)
def test_a_task_is_not_deleted_without_a_word_of_its_runs(cancelled, stopping, told):
    assert deleted_text({**DELETED, "cancelled": cancelled, "stopping": stopping}) == told


def test_deleting_tells_what_was_queued(rota, hello):
    run = rota.json("task", "run", hello)["run"]
    assert rota.ok("task", "delete", hello).out == f"Deleted hello; run {run} is cancelled.\n"


def test_disable_enable_pause_and_delete(rota):
    rota.ok("task", "create", "x", *HELLO, "--every", "5m")
    off = rota.json("task", "disable", "x", "--reason", "too loud")
    assert (off["state"], off["disabled_reason"]) == ("disabled", "too loud")
    assert "too loud" in rota.ok("task", "show", "x").out
    assert rota.json("task", "enable", "x")["state"] == "enabled"
    paused = rota.json("task", "pause", "x", "--until", "2h")
    assert paused["paused_until"] is not None
    assert "Paused x until" in rota.ok("task", "pause", "x", "--until", "tomorrow 9:00").out
    assert rota.json("task", "delete", "x") == DELETED
    assert rota.json("task", "list")["tasks"] == []


@pytest.mark.parametrize("until", ["yesterday 9:00", "2001-01-01T00:00", "whenever", "2h ago"])
def test_a_pause_needs_a_time_to_come(rota, hello, until):
    assert "until" in rota.refused("task", "pause", hello, "--until", until)
    assert rota.json("task", "show", hello)["paused_until"] is None


@pytest.mark.parametrize(
    "words",
    [
        ("show",), ("edit", "--title", "x"), ("run",), ("enable",), ("disable",), ("delete",), ("pause", "--until", "2h"),
    ],
)  # fmt: skip
def test_an_unknown_task_is_named(rota, words):
    verb, *rest = words
    sentence = rota.refused("task", verb, "ghost", *rest, code=3)
    assert sentence == 'no task "ghost": see `rota task list`'


def test_run_queues_a_run_with_its_payload(rota, hello):
    made = rota.json("task", "run", hello, "--payload", '{"day": 1}')
    run = rota.json("run", str(made["run"]))
    assert (run["state"], run["source"], run["payload"]) == ("queued", "manual", {"day": 1})
    assert "payload" in rota.refused("task", "run", hello, "--payload", "{day")


def test_a_task_of_another_space_is_apart(rota):
    rota.ok("space", "create", "alice", "--timezone", "Europe/Berlin")
    rota.ok("task", "create", "x", *HELLO, "--at-times", "07:00", "--space", "alice")
    found = rota.json("task", "show", "x", "--space", "alice")
    assert found["schedules"][0]["rule"]["timezone"] == "Europe/Berlin"
    assert "--space" in rota.refused("task", "show", "x", code=3)
    assert [t["space"] for t in rota.json("task", "list")["tasks"]] == ["alice"]
    assert rota.json("task", "list", "--space", "main")["tasks"] == []


def test_lists_are_aligned_when_piped(rota):
    assert "rota add" in rota.ok("task", "list").out
    rota.ok("task", "create", "a", *HELLO, "--every", "5m")
    rota.ok("task", "create", "much-longer", *HELLO)
    first, *rest = rota.ok("task", "list").out.splitlines()
    assert first.startswith("TASK         STATE")
    assert all(line[13:20] == "enabled" for line in rest)


def test_a_gate_is_taken_away_and_stays_where_nothing_is_said(rota):
    rota.ok("task", "create", "x", "--command", "true", "--gate", "test -e there")
    kept = rota.json("task", "edit", "x", "--title", "Still")
    assert kept["gate"] == {"command": ["test", "-e", "there"]}
    assert rota.json("task", "edit", "x", "--no-gate")["gate"] is None
    said = rota.refused("task", "edit", "x", "--no-gate", "--gate", "true")
    assert "either --gate or --no-gate" in said


def test_a_task_may_choose_no_more_when_it_looks_again(rota):
    bounds = ("--next-check", "10m..1d")
    rota.ok("task", "create", "x", "--instructions", "Look.", "--agent", "command", *PROGRAM)
    assert rota.json("task", "edit", "x", *bounds)["next_check"] == {"min": "10m", "max": "1d"}
    assert rota.json("task", "edit", "x", "--title", "Still")["next_check"] is not None
    assert rota.json("task", "edit", "x", "--no-next-check")["next_check"] is None
    said = rota.refused("task", "edit", "x", "--no-next-check", *bounds)
    assert "either --next-check or --no-next-check" in said


def test_results_go_only_where_something_leads(rota):
    said = rota.refused("task", "create", "x", *HELLO, "--deliver-to", "pigeon:home")
    assert said == "--deliver-to \"pigeon:home\": there is no channel 'pigeon': use log"
    rota.ok("task", "create", "x", *HELLO, "--deliver-to", "log:home")
    assert "use log" in rota.refused("task", "edit", "x", "--deliver-to", "pigeon:home")
    rota.ok("thread", "register", "web:home")
    assert "no channel" not in rota.ok("task", "edit", "x", "--title", "X").out
    told = rota.ok("task", "edit", "x", "--deliver-to", "web:home").out
    assert UNLED in told.splitlines()
    assert UNLED.removeprefix("  ! ") in rota.ok("task", "show", "x").out
    made = rota.ok("add", "every day at 9", "Read", "--in", "telegram:chat:42").out
    assert UNLED.replace("web:home", "telegram:chat:42") in made.splitlines()


def test_results_are_sent_nowhere_any_more(rota):
    rota.ok("notification", "set", "log:home", "--default")
    made = rota.json("task", "create", "x", *HELLO)
    assert made["policy"]["deliver_to"] == "log:home"
    assert rota.json("task", "edit", "x", "--deliver-to", "none")["policy"]["deliver_to"] is None
    bare = rota.json("task", "create", "y", *HELLO, "--deliver-to", "none")
    assert bare["policy"]["deliver_to"] is None


def test_places_are_set_listed_and_removed(rota):
    told = rota.ok("notification", "set", "log:ops", "--min-level", "high").out
    assert told == "Notifications of space main go to log:ops (level high and above).\n"
    (found,) = rota.json("notification", "list")["targets"]
    assert (found["space"], found["to"], found["min_level"]) == ("main", "log:ops", "high")
    assert "use log" in rota.refused("notification", "set", "pigeon:ops")
    rota.ok("notification", "remove", "log:ops", "--yes")
    rota.refused("notification", "remove", "log:ops", "--yes", code=3)
    assert rota.json("notification", "list")["targets"] == []


def test_a_rehearsed_deletion_tells_what_would_go(rota):
    rota.ok("task", "create", "x", *HELLO, "--every", "5m")
    rota.ok("run", "x")
    told = rota.ok("task", "delete", "x", "--dry-run").out
    assert told.startswith("Deleting x removes 1 schedule, cancels 1 waiting run")
    assert told.endswith("Dry run: the request is valid, and nothing was changed.\n")
    assert rota.json("runs")["runs"][0]["state"] == "queued"
    assert rota.json("task", "delete", "x", "--dry-run") == {"dry_run": True}


def test_words_of_a_shell_are_told_to_be_words_like_others(rota):
    said = rota.ok("task", "create", "x", "--command", "ls '|' wc")
    advice = '"|" is passed to the program as text; use --shell to run this in a shell'
    assert f"  ! {advice}\n" in said.out
    said = rota.ok("task", "create", "y", "--shell", "--command", "ls | wc")
    assert "use --shell" not in said.out + said.err
