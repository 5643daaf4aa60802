"""What doors keep in a store: keys, requests, and what tasks remember."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.model.inside import Held
from rota.model.keys import Key, NewKey
from rota.model.memory import Remembered, Seen
from rota.model.requests import Request
from rota.stores.kit import keys, memory, requests
from rota.stores.kit.dialect import Dialect


class Entrance(Dialect):
    """The operations of doors, over a dialect's transactions."""

    async def add_key(self, key: NewKey) -> Key:
        """Keep a key."""
        return await self.write(keys.add_key, key, self.now())

    async def find_key(self, digest: str) -> Key | None:
        """Return a key by the digest of its secret."""
        return await self.read(keys.find_key, digest)

    async def list_keys(self, space_id: int | None) -> list[Key]:
        """Return keys, oldest first."""
        return await self.read(keys.list_keys, space_id)

    async def revoke_key(self, key_id: int) -> None:
        """Let a key open nothing any more."""
        await self.write(keys.revoke_key, key_id, self.now())

    async def touch_keys(self, used: Mapping[int, int]) -> None:
        """Note when keys were last used."""
        await self.write(keys.touch_keys, used)

    async def note_request(self) -> None:
        """Write nothing down but the request on whose behalf this is done."""
        await self.write(requests.note_request)

    async def answer_request(self, request_id: int, status: int, answer: str) -> None:
        """Keep what a request was answered, for when it comes again."""
        await self.write(requests.answer_request, request_id, status, answer)

    async def find_request(self, caller: str, key: str) -> Request | None:
        """Return the request that a caller made under a key."""
        return await self.read(requests.find_request, caller, key)

    async def requests_alike(self, callers: Sequence[str], digest: str) -> list[Request]:
        """Return the requests of callers that asked for the same, in the order they were made."""
        return await self.read(requests.requests_alike, list(callers), digest)

    async def list_requests(self, space: str | None, before: int, most: int) -> list[Request]:
        """Return requests, newest first."""
        return await self.read(requests.list_requests, space, before, most)

    async def find_held(self, run_id: int, epoch: int) -> Held | None:
        """Return what is known of an attempt that goes on; None if it is over."""
        return await self.read(requests.find_held, run_id, epoch)

    async def count_made(self, space_id: int) -> int:
        """Return how many tasks stand in a space that attempts have made."""
        return await self.read(requests.count_made, space_id)

    async def put_state(self, task_id: int, key: str, value: str, who: str) -> Remembered:
        """Keep a value under a key of a task, whatever stood there."""
        return await self.write(memory.put_state, task_id, key, value, who, self.now())

    async def get_state(self, task_id: int, key: str) -> Remembered | None:
        """Return what stands under a key of a task."""
        return await self.read(memory.get_state, task_id, key)

    async def list_state(self, task_id: int, after: str, most: int) -> list[Remembered]:
        """Return what a task keeps, by key."""
        return await self.read(memory.list_state, task_id, after, most)

    async def count_state(self, task_id: int) -> int:
        """Return how many values a task keeps."""
        return await self.read(memory.count_state, task_id)

    async def drop_state(self, task_id: int, key: str) -> bool:
        """Forget what stands under a key of a task; false if nothing does."""
        return await self.write(memory.drop_state, task_id, key)

    async def mark_seen(self, task_id: int, items: Sequence[tuple[str, str, str]]) -> list[Seen]:
        """Count items of a task (provider, item, data) as seen once more."""
        return await self.write(memory.mark_seen, task_id, items, self.now())

    async def get_seen(self, task_id: int, provider: str, item: str) -> Seen | None:
        """Return an item as a task has seen it, or None."""
        return await self.read(memory.get_seen, task_id, provider, item)
