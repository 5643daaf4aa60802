"""Done: everything a task's record says about when its work counts, and whether it begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.model.tasks import TaskKind
from rota.rules.checks import FIELD as CHECKS
from rota.rules.checks import check_checks
from rota.rules.gates import GATE, check_gate
from rota.rules.next_checks import FIELD as NEXT_CHECK
from rota.rules.next_checks import check_next

DONE = (CHECKS, GATE, NEXT_CHECK)
"""What a record may say of this."""


def check_done(spec: Mapping[str, Any], kind: TaskKind) -> None:
    """Raise Invalid for the first thing that is wrong, or that a task of its kind cannot have."""
    check_checks(spec, kind)
    check_gate(spec, kind)
    check_next(spec, kind)
