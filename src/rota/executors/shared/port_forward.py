"""Process: forwards ports inside an isolated program to sockets of the host.

A file of its own that only needs the standard library. It listens, leaves a process behind for each
port, and becomes the program. With `--while` it stays until nobody holds a FIFO open for writing;
opening the FIFO tells the other side that all ports answer. It runs before every program with such
a port, so it imports little: `socket` alone would take as long as the start of Python.

Arguments: [PORT SOCKET]... -- PROGRAM ARGUMENT... | [PORT SOCKET]... --while FIFO
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
"""Method on which the module `socket` builds, which is not imported here."""


def main(words: list[str]) -> int:
    """Open the ports and become the program; returns on failure, or at the end with --while."""
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
    """Listen on a port of 127.0.0.1, and leave a process behind that forwards it to a socket.

    When this returns the port answers. The process is not a child of this one, so that the program
    cannot wait for it by accident.
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
    ignore_sigterm()
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    try:
        run_forwarder(listener, path)
    finally:
        os._exit(1)


def ignore_sigterm() -> None:
    """Ignore SIGTERM: the program may still connect while it ends."""
    import signal  # noqa: PLC0415 - here it does not delay the program

    signal.signal(signal.SIGTERM, signal.SIG_IGN)


class ForwardDirection:
    """One direction of a connection; it buffers one chunk, so a slow reader slows the writer."""

    def __init__(self, source: _socket.socket, sink: _socket.socket) -> None:
        self.source = source
        self.sink = sink
        self.held = memoryview(b"")
        self.ended = False

    def move(self) -> None:
        """Forward what can be forwarded without blocking."""
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
        """Send the buffer; after an error the other direction may still have data."""
        try:
            self.held = self.held[self.sink.send(self.held) :]
        except (BrokenPipeError, ConnectionResetError):
            self.held = memoryview(b"")
            self.ended = True


class ForwardedConnection:
    """A connection from inside and its counterpart outside."""

    def __init__(self, inside: _socket.socket, outside: _socket.socket) -> None:
        self.ends = (inside, outside)
        self.halves = (ForwardDirection(inside, outside), ForwardDirection(outside, inside))

    def wishes(self, end: _socket.socket) -> int:
        """Return the events to wait for at one end."""
        wish = 0
        for half in self.halves:
            if half.source is end and not half.held and not half.ended:
                wish |= select.EPOLLIN
            if half.sink is end and half.held:
                wish |= select.EPOLLOUT
        return wish

    def done(self) -> bool:
        """Whether both directions have ended."""
        return all(half.ended and not half.held for half in self.halves)

    def close(self) -> None:
        """Close both ends."""
        for end in self.ends:
            end.close()


class PortForwarder:
    """Forwards all connections of a port to one socket, in one thread and bounded memory."""

    def __init__(self, listener: _socket.socket, path: str) -> None:
        self.listener = listener
        self.path = path
        self.waiting = select.epoll()
        self.watched: dict[int, ForwardedConnection] = {}
        self.pairs: set[ForwardedConnection] = set()
        self.short = False
        """Whether the system had no resources for another connection."""
        listener.setblocking(False)
        self.waiting.register(listener.fileno(), 0)

    def step(self) -> None:
        """Wait for events and handle them; connections above the limit wait in the backlog."""
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
        """Accept a connection, if the other side can be connected."""
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
        """Forward data in both directions."""
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
        """Update the events to wait for at each end."""
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
        """Close a connection."""
        for end in pair.ends:
            if end.fileno() in self.watched:
                self.forget(end.fileno())
        pair.close()
        self.pairs.discard(pair)

    def forget(self, number: int) -> None:
        """Stop waiting for events of one end."""
        self.waiting.unregister(number)
        del self.watched[number]


def run_forwarder(listener: _socket.socket, path: str) -> None:
    """Forward connections until the namespace ends."""
    carrier = PortForwarder(listener, path)
    while True:
        carrier.step()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
