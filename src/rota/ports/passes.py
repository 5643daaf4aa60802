"""The way to the desk, as it is handed to a program."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from rota.model.runs import Lease
from rota.model.sites import Site


class Way(NamedTuple):
    """Where the desk is for a program, and the pass it shows there.

    `socket` says that the program must be handed the desk's socket to reach it.
    """

    url: str
    token: str
    socket: bool = False


class Passes(Protocol):
    """Gives attempts their way to the desk."""

    def way(self, lease: Lease, site: Site) -> Way | None:
        """Return the way of an attempt that runs at a site; None while the desk is closed."""
