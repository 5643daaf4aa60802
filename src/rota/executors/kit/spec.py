"""What a keeper is told: the program, its bounds, and how its processes are held together."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from rota.model.programs import Bounds, Command


class Tree(StrEnum):
    """How the processes of an attempt are held together.

    `pidns` is a PID namespace: when its first process ends, the kernel ends the rest. `guard` is a
    process that gathers strays; two kills at once can outwit it.
    """

    AUTO = "auto"
    PIDNS = "pidns"
    GUARD = "guard"


class Term(StrEnum):
    """Whom the first, polite signal of a stop goes to."""

    ALL = "all"
    MAIN = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Everything about one attempt that its keeper must know.

    `name` is unlike that of any other attempt; every process of the tree carries it in its
    environment, so that what escaped can be found.
    """

    name: str
    command: Command
    bounds: Bounds = field(default_factory=Bounds)
    tree: Tree = Tree.AUTO
    term: Term = Term.ALL
