"""What executors offer: isolation, images, terminals, and the spaces they are the default of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rota.errors import Invalid
from rota.model.spaces import SpaceRole


class Isolation(StrEnum):
    """Whether programs are isolated from the host: never, if a task asks for it, or always."""

    NEVER = "never"
    OPTIONAL = "optional"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorCapabilities:
    """What an executor offers, and what a task must say to use it."""

    isolation: Isolation = Isolation.NEVER
    image: bool = False
    """Whether programs run in an image, which every task must name."""
    own_network: bool = False
    """Whether 127.0.0.1 is never the host's, also where the network is open."""
    terminal: bool = False
    """Whether people can attach to the terminal of a running program."""
    default_for: frozenset[SpaceRole] = frozenset()
    """The spaces whose tasks run here unless they name an executor."""


@dataclass(frozen=True, slots=True)
class ExecutorRegistry:
    """The installed executors by name; `failed` has those that could not be loaded, and why."""

    known: Mapping[str, ExecutorCapabilities]
    failed: Mapping[str, str] = field(default_factory=dict)

    def named(self, name: str) -> ExecutorCapabilities:
        """Return what an executor offers; Invalid if there is none of that name."""
        found = self.known.get(name)
        if found is None:
            raise Invalid("executor", name, not_installed(name, self.known, self.failed))
        return found

    def default(self, role: SpaceRole) -> str:
        """Return the executor of tasks that name none."""
        for name, offered in self.known.items():
            if role in offered.default_for:
                return name
        advice = f"no executor is the default of {role} spaces: name one"
        raise Invalid("executor", "", advice)

    def isolating(self) -> str:
        """Return the names of the executors that isolate programs, for a sentence."""
        return one_of(n for n, each in self.known.items() if each.isolation is not Isolation.NEVER)


NO_EXECUTORS = ExecutorRegistry({})


def not_installed(name: str, known: Iterable[str], failed: Mapping[str, str]) -> str:
    """Return what to do about a plug-in that is named and not there."""
    choice = f"choose {one_of(known)}" if known else "none is installed"
    reason = failed.get(name)
    return choice if reason is None else f"it could not be loaded ({reason}); {choice}"


def one_of(names: Iterable[str]) -> str:
    """Return names for a sentence: `a, b or c`."""
    *rest, last = [*sorted(names)] or ["none"]
    return f"{', '.join(rest)} or {last}" if rest else last
