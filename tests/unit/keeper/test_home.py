"""What can be seen of an attempt from outside."""

from __future__ import annotations

import pytest

from rota.errors import Unavailable
from rota.keeper.home import LocalKeeperHome
from rota.model.attempts import KeptAttempt
from rota.model.ids import Epoch, RunId

KEPT = KeptAttempt(run_id=RunId(1), epoch=Epoch(1), home="h", nonce="n", boot="b", executor="tmux")


class Window:
    """A window through which nothing is seen."""

    def __init__(self, fault):
        self.fault = fault

    def capture(self, state):
        raise self.fault


@pytest.mark.parametrize(
    "fault", [Unavailable("the pane does not answer"), OSError("too many open files")]
)
async def test_an_attempt_whose_pane_does_not_answer_is_seen_without_it(tmp_path, fault):
    sign = await LocalKeeperHome(tmp_path, "here", {"tmux": Window(fault)}).take_sample(KEPT)
    assert (sign.run_id, sign.epoch, sign.pane) == (1, 1, None)
