"""What doors keep in a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rota.model.inside import Held
from rota.model.keys import Key, NewKey
from rota.model.memory import Remembered, Seen
from rota.model.requests import Request
from rota.ports.timed import Timed


class Entrance(Timed, Protocol):
    """What doors keep: who may come in, what was asked for, and what tasks remember."""

    async def add_key(self, key: NewKey) -> Key:
        """Keep a key."""

    async def find_key(self, digest: str) -> Key | None:
        """Return a key by the digest of its secret."""

    async def list_keys(self, space_id: int | None) -> list[Key]:
        """Return keys, oldest first."""

    async def revoke_key(self, key_id: int) -> None:
        """Let a key open nothing any more."""

    async def touch_keys(self, used: Mapping[int, int]) -> None:
        """Note when keys were last used."""

    async def note_request(self) -> None:
        """Write nothing down but the request on whose behalf this is done."""

    async def answer_request(self, request_id: int, status: int, answer: str) -> None:
        """Keep what a request was answered, for when it comes again."""

    async def find_request(self, caller: str, key: str) -> Request | None:
        """Return the request that a caller made under a key."""

    async def requests_alike(self, callers: Sequence[str], digest: str) -> list[Request]:
        """Return the requests of callers that asked for the same, in the order they were made."""

    async def list_requests(self, space: str | None, before: int, most: int) -> list[Request]:
        """Return requests, newest first."""

    async def find_held(self, run_id: int, epoch: int) -> Held | None:
        """Return what is known of an attempt that goes on; None if it is over."""

    async def count_made(self, space_id: int) -> int:
        """Return how many tasks stand in a space that attempts have made."""

    async def put_state(self, task_id: int, key: str, value: str, who: str) -> Remembered:
        """Keep a value under a key of a task, whatever stood there."""

    async def get_state(self, task_id: int, key: str) -> Remembered | None:
        """Return what stands under a key of a task."""

    async def list_state(self, task_id: int, after: str, most: int) -> list[Remembered]:
        """Return what a task keeps, by key."""

    async def count_state(self, task_id: int) -> int:
        """Return how many values a task keeps."""

    async def drop_state(self, task_id: int, key: str) -> bool:
        """Forget what stands under a key of a task; false if nothing does."""

    async def mark_seen(self, task_id: int, items: Sequence[tuple[str, str, str]]) -> list[Seen]:
        """Count items of a task (provider, item, data) as seen once more."""

    async def get_seen(self, task_id: int, provider: str, item: str) -> Seen | None:
        """Return an item as a task has seen it, or None."""
