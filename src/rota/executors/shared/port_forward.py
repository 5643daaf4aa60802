"""Process: forwards a port inside an isolated program to a socket of the host.

A file of its own, run with nothing but the standard library. It listens, leaves a process behind
that carries the bytes, for each way, and becomes the program; or it stays until nobody holds a FIFO
open for writing any more, whose opening tells the other side that every port answers. It runs
before every program that has a way out: each import costs each of them, and `socket` alone would
cost as much as all of Python's start.

Words: [PORT SOCKET]... -- PROGRAM WORD... | [PORT SOCKET]... --while FIFO
"""

from __future__ import annotations

import _socket
import os
import select
import sys

NOT_STARTED = 126
CANNOT_START = "cannot start "
CONNECTIONS = 64
CHUNK = 64 * 1024
SHORT_SECONDS = 0.1
ACCEPT = "_accept"
"""What `socket` builds upon, which is not loaded here."""


def main(words: list[str]) -> int:
    """Open the ways and become the program; return when it could not be started, or at the end."""
    end = next(at for at, word in enumerate(words) if word in {"--", "--while"})
    for at in range(0, end, 2):
        forward(int(words[at]), words[at + 1])
    program = words[end + 1 :]
    if words[end] == "--while":
        os.read(os.open(program[0], os.O_RDONLY), 1)
        return 0
    try:
        os.execvp(program[0], program)  # noqa: S606 - becoming the program is the point
    except OSError as error:
        print(f"{CANNOT_START}{program[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
    return NOT_STARTED


def forward(port: int, path: str) -> None:
    """Listen on a port of 127.0.0.1 and leave a process behind that carries it to a socket.

    When it returns the port answers. The process is nobody's child here, so that the program never
    waits for it by accident.
    """
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(CONNECTIONS)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        listener.close()
        return
    if os.fork():
        os._exit(0)
    stay()
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    try:
        carry(listener, path)
    finally:
        os._exit(1)


def stay() -> None:
    """Take no notice when everybody is asked to end: the program may still call."""
    import signal  # noqa: PLC0415 - behind the program's back, where its time costs nobody

    signal.signal(signal.SIGTERM, signal.SIG_IGN)


class ForwardDirection:
    """One direction of a connection: at most one chunk is held, so a slow reader slows a writer."""

    def __init__(self, source: _socket.socket, sink: _socket.socket) -> None:
        self.source = source
        self.sink = sink
        self.held = memoryview(b"")
        self.ended = False

    def move(self) -> None:
        """Pass on what can be passed on without waiting."""
        try:
            if not self.held and not self.ended:
                self.held = memoryview(self.source.recv(CHUNK))
                if not self.held:
                    self.ended = True
                    self.sink.shutdown(_socket.SHUT_WR)
            if self.held:
                self.give()
        except BlockingIOError:
            return

    def give(self) -> None:
        """Send what is held; whoever takes no more may still say why, in the other direction."""
        try:
            self.held = self.held[self.sink.send(self.held) :]
        except (BrokenPipeError, ConnectionResetError):
            self.held = memoryview(b"")
            self.ended = True


class ForwardedConnection:
    """A caller inside and its connection outside."""

    def __init__(self, inside: _socket.socket, outside: _socket.socket) -> None:
        self.ends = (inside, outside)
        self.halves = (ForwardDirection(inside, outside), ForwardDirection(outside, inside))

    def wishes(self, end: _socket.socket) -> int:
        """Return what to wait for at one end."""
        wish = 0
        for half in self.halves:
            if half.source is end and not half.held and not half.ended:
                wish |= select.EPOLLIN
            if half.sink is end and half.held:
                wish |= select.EPOLLOUT
        return wish

    def done(self) -> bool:
        """Say whether both directions have ended."""
        return all(half.ended and not half.held for half in self.halves)

    def close(self) -> None:
        """Let go of both ends."""
        for end in self.ends:
            end.close()


class PortForwarder:
    """Carries every connection of a port to one socket, in one thread and bounded memory."""

    def __init__(self, listener: _socket.socket, path: str) -> None:
        self.listener = listener
        self.path = path
        self.waiting = select.epoll()
        self.watched: dict[int, ForwardedConnection] = {}
        self.pairs: set[ForwardedConnection] = set()
        self.short = False
        """Whether the system had nothing left for another caller, when one was there."""
        listener.setblocking(False)
        self.waiting.register(listener.fileno(), 0)

    def step(self) -> None:
        """Wait for something to do, and do it; callers for whom there is no room wait outside."""
        room = len(self.pairs) < CONNECTIONS and not self.short
        self.waiting.modify(self.listener.fileno(), select.EPOLLIN if room else 0)
        found = self.waiting.poll(SHORT_SECONDS if self.short else None)
        self.short = False
        for number, _ in found:
            if number == self.listener.fileno():
                self.accept()
            elif number in self.watched:
                self.serve(self.watched[number])

    def accept(self) -> None:
        """Take a caller in, if the other side answers."""
        try:
            outside = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        except OSError:
            self.short = True
            return
        try:
            number, _ = getattr(self.listener, ACCEPT)()
        except OSError:
            self.short = True
            outside.close()
            return
        pair = ForwardedConnection(_socket.socket(fileno=number), outside)
        self.pairs.add(pair)
        try:
            for end in pair.ends:
                end.setblocking(False)
            outside.connect(self.path)
            self.watch(pair)
        except OSError:
            self.drop(pair)

    def serve(self, pair: ForwardedConnection) -> None:
        """Move bytes in both directions."""
        try:
            for half in pair.halves:
                half.move()
            self.watch(pair)
        except OSError:
            self.drop(pair)
            return
        if pair.done():
            self.drop(pair)

    def watch(self, pair: ForwardedConnection) -> None:
        """Wait at each end for what is wanted there now."""
        for end in pair.ends:
            wish, number = pair.wishes(end), end.fileno()
            known = number in self.watched
            if wish and known:
                self.waiting.modify(number, wish)
            elif wish:
                self.waiting.register(number, wish)
                self.watched[number] = pair
            elif known:
                self.forget(number)

    def drop(self, pair: ForwardedConnection) -> None:
        """Forget a connection."""
        for end in pair.ends:
            if end.fileno() in self.watched:
                self.forget(end.fileno())
        pair.close()
        self.pairs.discard(pair)

    def forget(self, number: int) -> None:
        """Wait at one end for nothing."""
        self.waiting.unregister(number)
        del self.watched[number]


def carry(listener: _socket.socket, path: str) -> None:
    """Carry connections until the namespace ends."""
    carrier = PortForwarder(listener, path)
    while True:
        carrier.step()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
