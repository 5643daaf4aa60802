"""Where the files are that runs leave behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO, NamedTuple, Protocol

from rota.model.artifacts import Artifact, Artifacts, Shelf


class Opened(NamedTuple):
    """An artifact to be read; whoever opened it closes it."""

    artifact: Artifact
    file: BinaryIO


class ArtifactKeeping(Protocol):
    """The artifacts of this home. Programs wrote them: nothing in there is followed or trusted.

    Short work on files, to be done beside the loop.
    """

    def of(self, space: str, run_id: int) -> Artifacts:
        """Return what a run has left; nothing if it ran in another home."""

    def open(self, space: str, run_id: int, name: str) -> Opened:
        """Open an artifact; NotFound if it is no plain file, Refused if it is too large."""

    def shelves(self) -> Sequence[Shelf]:
        """Return the folders of all runs."""

    def drop(self, shelf: Shelf) -> None:
        """Delete a run's folder with everything in it."""
