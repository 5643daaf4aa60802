"""Done: everything a task's record says about when its work counts, and whether it begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.errors import Invalid
from rota.model.checks import CheckKind
from rota.model.sites import Network, Site
from rota.model.spaces import Role
from rota.model.tasks import TaskKind
from rota.rules.checks import FIELD as CHECKS
from rota.rules.checks import check_checks, checks_in
from rota.rules.gates import GATE, check_gate
from rota.rules.next_checks import FIELD as NEXT_CHECK
from rota.rules.next_checks import check_next
from rota.rules.sites import site_of

DONE = (CHECKS, GATE, NEXT_CHECK)
"""What a record may say of this."""


NO_WAY_OUT = "its programs reach no open network, and so do its checks: leave it out"


def check_done(spec: Mapping[str, Any], kind: TaskKind, role: Role = Role.MAIN) -> None:
    """Raise Invalid for the first thing that is wrong, or that such a task cannot have."""
    check_checks(spec, kind)
    check_gate(spec, kind)
    check_next(spec, kind)
    asks = any(check.kind is CheckKind.URL for check in checks_in(spec))
    if asks and not reaches_out(site_of(spec, role)):
        raise Invalid(CHECKS, CheckKind.URL.value, NO_WAY_OUT)


def reaches_out(site: Site) -> bool:
    """Whether a task's checks may ask addresses: where its own programs could.

    Else what is behind walls could have words carried out by a check.
    """
    return not site.isolated or site.network is Network.OPEN
