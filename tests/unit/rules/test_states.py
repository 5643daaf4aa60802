"""The table of moves."""

from __future__ import annotations

import pytest

from rota.errors import IllegalMove
from rota.model.runs import FINISHED, MOVES, RunState, RunTransition, after


@pytest.mark.parametrize("state", RunState)
@pytest.mark.parametrize("move", RunTransition)
def test_a_move_leads_where_the_table_says_or_is_refused(state, move):
    if (state, move) in MOVES:
        assert after(state, move) is MOVES[state, move]
    else:
        with pytest.raises(IllegalMove, match=f"a {state} run cannot {move}"):
            after(state, move)


def test_no_move_leaves_a_finished_state():
    assert not {state for state, _ in MOVES} & FINISHED


def test_every_state_can_be_reached_and_every_open_one_can_end():
    assert {RunState.QUEUED, *MOVES.values()} == set(RunState)
    for state in set(RunState) - FINISHED:
        assert {to for (source, _), to in MOVES.items() if source is state} & FINISHED
