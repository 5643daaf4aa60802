from __future__ import annotations

import pytest


def fires(rota, *words):
    answer = rota.json("next", *words)
    assert list(answer) == ["words", "fires"]
    return answer


@pytest.mark.parametrize(
    ("rule", "words", "first"),
    [
        ("0 7 * * 1-5", "weekdays at 07:00, Europe/Berlin", "2026-11-16T07:00:00+01:00"),
        ("every weekday at 7", "weekdays at 07:00, Europe/Berlin", "2026-11-16T07:00:00+01:00"),
        ("every 30 minutes", "every 30 minutes", "2026-11-15T10:30:00+01:00"),
        (
            "tomorrow 9am",
            "once on Mon 16 Nov 2026 at 09:00, Europe/Berlin",
            "2026-11-16T09:00:00+01:00",
        ),
    ],
)
def test_a_rule_is_told_in_words_with_its_next_fires(rota, rule, words, first):
    answer = fires(
        rota, rule, "--timezone", "Europe/Berlin", "--from", "2026-11-15T10:00", "-n", "2"
    )
    assert answer["fires"][0] == first
    assert words.split(",")[0].split(" on ")[0] in answer["words"]


def test_an_rrule_ends(rota):
    answer = fires(
        rota, "FREQ=DAILY;COUNT=3;BYHOUR=9;BYMINUTE=0;BYSECOND=0", "--from", "2026-11-15", "-n", "9"
    )
    assert answer["fires"] == [f"2026-11-{day}T09:00:00+00:00" for day in (15, 16, 17)]


def test_no_home_and_no_database_are_touched(rota):
    rota.ok("next", "every day at 7")
    assert not rota.home.exists()


def test_people_see_lines(rota):
    out = rota.ok(
        "next", "0 7 * * 1-5", "--timezone", "Europe/Berlin", "--from", "2026-11-15", "-n", "1"
    ).out
    assert out == "weekdays at 07:00, Europe/Berlin\n  Mon 2026-11-16 07:00:00 CET\n"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("30m",), "in 30m"),
        (("",), "say when"),
        (("every blue moon",), "blue moon"),
        (("61 * * * *",), "minute"),
        (("0 7 * * *", "--timezone", "Berlin"), "Europe/Berlin"),
        (("0 7 * * *", "--from", "then"), "from"),
        (("0 7 * * *", "-n", "0"), "n "),
        (("0 7 * * *", "-n", "99999"), "1000"),
        (("FREQ=DAILY;INTERVAL=0",), "INTERVAL"),
    ],
)
def test_what_is_not_understood_is_refused(rota, words, named):
    assert named in rota.refused("next", *words)
