"""What the machine offers: sites, tokens, probes, artifacts, secrets, load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, NamedTuple, Protocol, TypeAlias

from rota.model.heartbeats import MachineLoad
from rota.model.ids import Epoch, RunId
from rota.model.programs import LimitEnforcement, Site
from rota.model.runs import Lease
from rota.model.spaces import SpaceRole
from rota.model.tasks import Task


class SiteChecker(Protocol):
    """Where programs can run here."""

    async def admit(self, site: Site, role: SpaceRole) -> None:
        """Raise Unavailable, NotPermitted or Invalid, with what to do, unless it can be had."""

    async def holds(self, site: Site) -> Mapping[str, LimitEnforcement]:
        """Return for whom memory, processes and processors can be bounded there."""

    async def lacks(self, task: Task, role: SpaceRole) -> Sequence[str]:
        """Return what a task names and would not be found here, in sentences."""


class AgentApiAddress(NamedTuple):
    """Where the desk is for a program, and the pass it shows there.

    `socket` says that the program must be handed the desk's socket to reach it.
    """

    url: str
    token: str
    socket: bool = False


class AttemptTokens(Protocol):
    """Gives attempts their way to the desk."""

    def way(self, lease: Lease, site: Site) -> AgentApiAddress | None:
        """Return the way of an attempt that runs at a site; None while the desk is closed."""


class FileStat(NamedTuple):
    """A file that is there: when it was last written, in microseconds, and how large it is.

    `changed` says whether it is another than when the attempt began, None where nobody knows.
    """

    written: int
    size: int
    changed: bool | None


class ProbeResult(NamedTuple):
    """Whether something is as it was wanted, and the sentence that tells what was seen."""

    passed: bool
    evidence: str


class Probes(Protocol):
    """Looks for checks. Everything it looks at may be hostile; every look ends in time."""

    async def note_files(
        self,
        attempt: tuple[RunId, Epoch],
        space: str,
        folder: str | None,
        paths: Sequence[str],
        *,
        anew: bool,
    ) -> None:
        """Note how files in a task's folder are before anything of an attempt begins.

        What was noted before stays, unless it begins anew: its programs may have run meanwhile.
        """

    async def file(
        self, attempt: tuple[RunId, Epoch], space: str, folder: str | None, path: str
    ) -> FileStat | str:
        """Return what is known of a plain file in a task's folder, or why it is not one.

        No link is followed, on no step.
        """

    async def answers(self, url: str, contains: str | None, seconds: float) -> ProbeResult:
        """Whether an address answers well in time, and its answer contains a text.

        Addresses of this machine and of its networks are refused, also after a redirect.
        """

    async def check_patterns(
        self, space: str, patterns: Sequence[str]
    ) -> tuple[int | None, str] | None:
        """Return which pattern is no regular expression, and why; None if all are.

        Without a number they take too long to compile.
        """

    async def search(self, space: str, pattern: str, text: str) -> bool | None:
        """Whether a pattern is found in a text; None if that could not be found out in time."""

    async def check_result(
        self, space: str, schema: object, result: str | None
    ) -> Sequence[str] | None:
        """Return in what a result does not fit a schema; None if that took too long."""


class OpenArtifact(NamedTuple):
    """An artifact to be read; whoever opened it closes it."""

    artifact: Artifact
    file: BinaryIO


class ArtifactStore(Protocol):
    """The artifacts of this home. Programs wrote them: nothing in there is followed or trusted.

    Short work on files, to be done beside the loop.
    """

    def of(self, space: str, run_id: int) -> ArtifactList:
        """Return what a run has left; nothing if it ran in another home."""

    def open(self, space: str, run_id: int, name: str) -> OpenArtifact:
        """Open an artifact; NotFound if it is no plain file, Refused if it is too large."""

    def shelves(self) -> Sequence[ArtifactFolder]:
        """Return the folders of all runs."""

    def drop(self, shelf: ArtifactFolder) -> None:
        """Delete a run's folder with everything in it."""


class Artifact(NamedTuple):
    """One file; its name is a path below the run's own folder."""

    name: str
    size: int
    modified_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactList:
    """What a run has left, by name.

    `left_out` counts what is no plain file of its own (links, pipes, names that cannot be shown) or
    may not be looked at; `more` says that there is more than is told.
    """

    files: tuple[Artifact, ...] = ()
    left_out: int = 0
    more: bool = False


class ArtifactFolder(NamedTuple):
    """The folder that a run's artifacts are in."""

    space: str
    run_id: int
    modified_at: datetime
    empty: bool


class SecretStore(Protocol):
    """The secrets of this home."""

    def check(self, name: str, value: str) -> None:
        """Raise Invalid unless a secret can be kept so; the value is in no sentence."""

    async def list_secrets(self) -> Sequence[SecretInfo]:
        """Return every secret that is known, by name."""

    async def put(self, name: str, value: str, by: str) -> SecretInfo:
        """Keep a secret in place of what had its name; it counts at once."""

    async def remove(self, name: str) -> None:
        """Forget a secret that was kept; NotFound if none was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretInfo:
    """One secret that is known here by its name.

    `source` is where its value comes from: `kept`, `env:NAME` or `file:/path`. `problem` says why
    there is none just now. `upstreams` are those of the gateway that show it.
    """

    name: str
    source: str
    upstreams: tuple[str, ...] = ()
    set_at: datetime | None = None
    set_by: str | None = None
    used_at: datetime | None = None
    problem: str | None = None


Gauge: TypeAlias = Callable[[], MachineLoad]
