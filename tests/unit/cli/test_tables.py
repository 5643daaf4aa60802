"""Tables on a narrow terminal can be read: words are whole, and what is long stands below."""

from __future__ import annotations

from rota.cli.display import in_lines, rich_table

COLUMNS = ("run", "task", "state", "checked", "start (UTC)", "took", "source", "result")
START = "2026-11-15 12:00:00"
REASON = "it was killed because it had said nothing for longer than ten minutes, and nobody asked"


def lines(*rows, columns=COLUMNS, width=80, **more):
    return rich_table(columns, rows, width, **more).plain.splitlines()


def test_what_is_long_stands_below_in_whole_words():
    row = ("12", "daily-report-of-the-news", "failed", "-", START, "2.5 s", "schedule", REASON)
    head, first, *below = lines(row)
    assert head.split() == ["run", "task", "state", "start", "(UTC)", "took", "source"]
    assert first.split() == [
        "12",
        "daily-report-of-the-news",
        "failed",
        *START.split(),
        "2.5",
        "s",
        "schedule",
    ]
    assert " ".join(line.strip() for line in below) == REASON
    assert max(map(len, (head, first, *below))) <= 80


def test_what_is_long_stays_beside_where_there_is_room():
    head, first, second = lines(("1", REASON), columns=("run", "why"), width=60)
    assert first.startswith("1    it was killed")
    assert second.startswith("     ")
    assert len(head) <= 60


def test_times_are_never_shortened_and_long_names_are():
    name = "a-very-long-name-of-a-task-that-somebody-has-made-for-a-reason"
    row = ("12", name, "failed", "-", START, "2.5 s", "schedule", "")
    (_, told) = lines(row)
    assert START in told
    assert "a-very-long" in told
    assert "…" in told
    assert len(told) <= 80


def test_a_column_that_was_asked_for_is_there_when_it_is_empty():
    assert lines(("1", "-"), columns=("a", "b"))[0].split() == ["a"]
    assert lines(("1", "-"), columns=("a", "b"), every=True)[0].split() == ["a", "b"]


def test_a_sentence_is_not_broken_within_a_word():
    told = in_lines("  to do: install the package and say so in /etc/a-long-path/of-a-file", 4, 30)
    assert told.splitlines()[0] == "  to do: install the package"
    assert told.splitlines()[1] == "    and say so in"
    assert told.splitlines()[2] == "    /etc/a-long-path/of-a-file"
