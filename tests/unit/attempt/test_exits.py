"""What the spools of a program tell of its end."""

from __future__ import annotations

import pytest

from tests.unit.attempt.keeper_home_fake import FakeYard, assignment, work_on

UNSTARTED = b"cannot start count: No such file or directory\n"


async def outcome_of(desk, chance, out=b"", err=b"", **facts):
    given = await assignment(desk)
    yard = FakeYard()
    yard.err = err
    yard.end(out, **facts)
    return (await work_on(desk.store, yard, chance).run(given)).outcome


@pytest.mark.parametrize("code", [126, 127])
@pytest.mark.parametrize(
    ("out", "err"),
    [
        (b"built\n", b"sh: 3: upload: not found\n"),
        (b"built\n" + UNSTARTED, b""),
        (b"built\n", UNSTARTED),
        (b"", b"built\n" + UNSTARTED),
        (b"", b""),
    ],
)
async def test_a_script_that_called_what_is_missing_is_tried_again(desk, chance, code, out, err):
    outcome = await outcome_of(desk, chance, out, err, code=code)
    assert (outcome.code, outcome.retryable) == ("other", True)
    assert f"exit code {code} (" in outcome.message


@pytest.mark.parametrize("stream", ["out", "err"])
async def test_a_script_that_its_executor_cannot_start_is_not_tried_again(desk, chance, stream):
    outcome = await outcome_of(desk, chance, **{stream: UNSTARTED}, code=126)
    assert (outcome.code, outcome.retryable) == ("script_unavailable", False)
    assert "It cannot be started: count: No such file or directory;" in outcome.message
