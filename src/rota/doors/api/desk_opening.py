"""Opening the desk: where programs find it, with walls around them and without.

Programs are told its address when they start and may outlive the daemon, so that it stays the same
wherever it can: a port that was there before is tried first, and the socket lies in a folder of its
own, which is what walls show of it.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from rota.doors.api.asgi import App
from rota.doors.api.server import Place, address_of, is_loopback, opened_socket, serving
from rota.wiring.passes import FOLDER, PATH, HomePasses, desk_socket

log = logging.getLogger(__name__)

PORT = "desk.port"
INNER_PORT = "desk.inner-port"
PRIVATE_FOLDER = 0o700
PRIVATE = 0o600


@asynccontextmanager
async def open_desk(
    home: Path, app: App, place: Place, url: str, passes: HomePasses
) -> AsyncIterator[None]:
    """Let programs reach the desk until the block is left; `url` is where the door is.

    A door that others can reach, or that speaks TLS, is not theirs: they have one on loopback.
    """
    (home / FOLDER).mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    _note_port(home / PORT, url)
    async with AsyncExitStack() as stack:
        socks: list[socket.socket] = []
        walled = _opened(home)
        if walled is not None:
            socks.append(walled)
            stack.callback(_close, walled, walled.getsockname())
        near = url
        if place.scheme != "http" or not is_loopback(place.host):
            inner = Place(before=_noted(home / INNER_PORT), port=None)
            sock = opened_socket(inner)
            stack.callback(sock.close)
            near = address_of(sock, inner)
            _note_port(home / INNER_PORT, near)
            socks.append(sock)
        if socks:
            await stack.enter_async_context(serving(app, socks[0], Place(), *socks[1:]))
        passes.url, passes.socket_open = f"{near}{PATH}", walled is not None
        try:
            yield
        finally:
            passes.url, passes.socket_open = None, False


def last_port(home: Path) -> int | None:
    """Return the port that the door of a home had before."""
    return _noted(home / PORT)


def _opened(home: Path) -> socket.socket | None:
    """Return the desk's socket, unless another daemon answers there or its path is too long."""
    place = desk_socket(home)
    if place is None:
        log.warning("desk.path_too_long", extra={"home": str(home)})
        return None
    if _answers(place.socket):
        log.warning("desk.taken", extra={"socket": place.socket})
        return None
    with suppress(FileNotFoundError):
        os.unlink(place.socket)  # noqa: PTH108
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(place.socket)
    os.chmod(place.socket, PRIVATE)  # noqa: PTH101
    made.setblocking(False)
    return made


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trying:
        try:
            trying.connect(path)
        except OSError:
            return False
        return True


def _close(made: socket.socket, path: str) -> None:
    with suppress(OSError):
        os.unlink(path)  # noqa: PTH108
    made.close()


def _note_port(path: Path, url: str) -> None:
    with suppress(OSError):
        held = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE)
        with os.fdopen(held, "w") as file:
            file.write(f"{urlsplit(url).port}\n")


def _noted(path: Path) -> int | None:
    try:
        port = int(path.read_text())
    except (OSError, ValueError):
        return None
    return port if PORTS[0] <= port <= PORTS[1] else None


PORTS: Sequence[int] = (1024, 65_535)
