"""Sending long answers: no longer than somebody reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from rota.doors.api.asgi import Receive

SENDING_SECONDS = 30.0
"""How long a client may leave what was sent to it unread."""


async def while_read(writing: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Write until that has ended, or until the client has hung up."""
    loop = asyncio.get_running_loop()
    tasks = {loop.create_task(writing), loop.create_task(_hung_up(receive))}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
