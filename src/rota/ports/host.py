"""Protocols of what the machine offers: sites, tokens, probes, artifacts, secrets, load."""

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
    """Checks which sites are available on this machine."""

    async def admit(self, site: Site, role: SpaceRole) -> None:
        """Raise Unavailable, NotPermitted or Invalid, with a remedy, unless a site is available."""

    async def limit_enforcement(self, site: Site) -> Mapping[str, LimitEnforcement]:
        """Return how limits on memory, processes and CPUs are enforced at a site."""

    async def missing_programs(self, task: Task, role: SpaceRole) -> Sequence[str]:
        """Return sentences about what a task names and this machine lacks."""


class AgentApiAddress(NamedTuple):
    """The URL of the agent API and the token of an attempt.

    With `socket`, the program must be passed a socket to reach it.
    """

    url: str
    token: str
    socket: bool = False


class AttemptTokens(Protocol):
    """Issues attempt tokens."""

    def address_for(self, lease: Lease, site: Site) -> AgentApiAddress | None:
        """Return the address for an attempt at a site; None while the agent API is closed."""


class FileStat(NamedTuple):
    """Modification time (in microseconds) and size of a file.

    `changed` says whether it differs from before the attempt; None if that is unknown.
    """

    written: int
    size: int
    changed: bool | None


class ProbeResult(NamedTuple):
    """Whether a probe passed, with the observation as a sentence."""

    passed: bool
    evidence: str


class Probes(Protocol):
    """Examines files and URLs for checks; its input may be hostile, and each probe is bounded."""

    async def note_files(
        self,
        attempt: tuple[RunId, Epoch],
        space: str,
        folder: str | None,
        paths: Sequence[str],
        *,
        anew: bool,
    ) -> None:
        """Record the state of files in a task's folder before an attempt starts.

        An earlier record is kept unless `anew`: programs of the attempt may have run since.
        """

    async def stat_file(
        self, attempt: tuple[RunId, Epoch], space: str, folder: str | None, path: str
    ) -> FileStat | str:
        """Return size and time of a regular file in a task's folder, or why that is impossible.

        Links are not followed, at any step of the path.
        """

    async def check_url(self, url: str, contains: str | None, seconds: float) -> ProbeResult:
        """Whether a URL responds successfully in time, with a text that contains `contains`.

        Addresses of this machine and its networks are rejected, also after a redirect.
        """

    async def check_patterns(
        self, space: str, patterns: Sequence[str]
    ) -> tuple[int | None, str] | None:
        """Return the index of an invalid regular expression and why; None if all are valid.

        Without an index, compiling them took too long.
        """

    async def search(self, space: str, pattern: str, text: str) -> bool | None:
        """Whether a pattern matches in a text; None if that took too long."""

    async def check_result(
        self, space: str, schema: object, result: str | None
    ) -> Sequence[str] | None:
        """Return the errors of a result against a JSON schema; None if that took too long."""


class OpenArtifact(NamedTuple):
    """An open artifact; the caller closes it."""

    artifact: Artifact
    file: BinaryIO


class ArtifactStore(Protocol):
    """The artifacts of a home, which are untrusted: links in them are never followed.

    Its methods block on files, so they are called in a thread.
    """

    def list_artifacts(self, space: str, run_id: int) -> ArtifactList:
        """Return the artifacts of a run; empty if it ran in another home."""

    def open(self, space: str, run_id: int, name: str) -> OpenArtifact:
        """Open an artifact; raise NotFound if it is no regular file, Refused if it is too large."""

    def list_folders(self) -> Sequence[ArtifactFolder]:
        """Return the artifact folders of all runs."""

    def delete_folder(self, shelf: ArtifactFolder) -> None:
        """Delete a run's folder with everything in it."""


class Artifact(NamedTuple):
    """An artifact; its name is a path below the run's folder."""

    name: str
    size: int
    modified_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactList:
    """The artifacts of a run, by name.

    `left_out` counts links, pipes, files with unprintable names and the like; `more` means that the
    list is not complete.
    """

    files: tuple[Artifact, ...] = ()
    left_out: int = 0
    more: bool = False


class ArtifactFolder(NamedTuple):
    """The artifact folder of a run."""

    space: str
    run_id: int
    modified_at: datetime
    empty: bool


class SecretStore(Protocol):
    """The secrets of this home."""

    def check(self, name: str, value: str) -> None:
        """Raise Invalid unless a secret can be stored; the error never contains the value."""

    async def list_secrets(self) -> Sequence[SecretInfo]:
        """Return all secrets by name."""

    async def put(self, name: str, value: str, by: str) -> SecretInfo:
        """Store or replace a secret; it takes effect at once."""

    async def remove(self, name: str) -> None:
        """Remove a stored secret; raise NotFound if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretInfo:
    """A secret, without its value.

    `source` is where its value comes from: `kept` (stored), `env:NAME` or `file:/path`. `problem`
    says why it has no value at the moment. `upstreams` are those of the gateway that use it.
    """

    name: str
    source: str
    upstreams: tuple[str, ...] = ()
    set_at: datetime | None = None
    set_by: str | None = None
    used_at: datetime | None = None
    problem: str | None = None


Gauge: TypeAlias = Callable[[], MachineLoad]
