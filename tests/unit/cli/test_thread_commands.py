"""`rota thread`, and what `rota say` tells where a word asks for an answer."""

from __future__ import annotations

import pytest

DESK = ("task", "create", "desk", "--instructions", "Talk.", "--answers", "--agent", "command")


@pytest.fixture
def family(rota):
    rota.ok(*DESK, "--command", "cat")
    rota.ok(
        "thread", "register", "web:7", "--title", "Family", "--task", "desk", "--trigger", "@me"
    )
    return "web:7"


def test_a_thread_is_registered_shown_and_listed(rota, family):
    shown = rota.ok("thread", "show", family).out
    assert [line.split(maxsplit=1)[-1] for line in shown.splitlines()] == [
        "web:7", "Family", "main", "by  desk", "@me",
    ]  # fmt: skip
    (found, *_) = rota.json("thread", "list")["threads"]
    assert (found["thread"], found["task"], found["trigger"]) == (family, "desk", "@me")
    assert "Family" in rota.ok("thread", "list").out
    assert "--before" in rota("thread", "list", "--limit", "1").err
    changed = rota.json("thread", "register", family, "--task", "none", "--trigger", "none")
    assert (changed["title"], changed["task"], changed["trigger"]) == ("Family", None, None)


def test_what_asks_for_nobody_says_so(rota, family):
    assert "It needs no answer" in rota.ok("say", family, "Shall we eat?").out
    assert rota.json("runs")["runs"] == []
    assert "Run 1 reads it." in rota.ok("say", family, "Well, @me?", "--follow-up").out
    assert "unread       2\n" in rota.ok("thread", "show", family).out
    assert "(1)" in rota.ok("messages", family).out
    assert rota.json("runs")["runs"][0]["pool"] == "foreground"


def test_a_conversation_is_cancelled(rota, family):
    rota.ok("say", family, "@me?")
    rota.ok("thread", "cancel", family, "--dry-run")
    assert rota.ok("thread", "cancel", family).out == "Cancelled 1 run of web:7.\n"
    assert rota.json("thread", "cancel", family) == {
        "thread": family,
        "cancelled": 0,
        "stopping": 0,
    }


@pytest.mark.parametrize("verb", ["show", "cancel"])
def test_a_thread_that_is_not_there_is_not_found(rota, family, verb):
    assert "rota thread list" in rota.refused("thread", verb, "web:8", code=3)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("web:8", "--trigger", "two words"), "trigger"),
        (("web", "--title", "x"), "thread"),
        (("web:8", "--title", "x" * 201), "title"),
    ],
)
def test_what_is_wrong_with_a_thread_is_said(rota, family, words, named):
    assert named in rota.refused("thread", "register", *words)
