"""Who may do what."""

from __future__ import annotations

import pytest

from rota.errors import NotFound
from rota.model.spaces import SpaceRole
from rota.rules.permissions import LOCAL, Caller, check_space


@pytest.mark.parametrize("space", ["main", "ann", "nowhere"])
def test_main_may_act_for_every_space(space):
    check_space(LOCAL, space)
    check_space(Caller(space="other", role=SpaceRole.MAIN), space)


def test_a_member_may_act_for_its_own_space():
    check_space(Caller(space="ann", role=SpaceRole.MEMBER), "ann")


@pytest.mark.parametrize("space", ["main", "bob", ""])
def test_to_a_member_other_spaces_do_not_exist(space):
    with pytest.raises(NotFound) as refusal:
        check_space(Caller(space="ann", role=SpaceRole.MEMBER), space)
    assert refusal.value.code == "not_found"
