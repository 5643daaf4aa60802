"""Ways out of walls: a port of 127.0.0.1 inside leads to one socket of the host.

A file of its own, run with nothing but the standard library. It listens, leaves a process behind
that carries the bytes, for each way, and becomes the program; or it stays until nobody holds a FIFO
open for writing any more, whose opening tells the other side that every port answers.

Words: [PORT SOCKET]... -- PROGRAM WORD... | [PORT SOCKET]... --while FIFO
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys

NOT_STARTED = 126
CONNECTIONS = 64
CHUNK = 64 * 1024


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
    except OSError as fault:
        print(f"{program[0]}: {fault.strerror}", file=sys.stderr)  # noqa: T201
    return NOT_STARTED


def forward(port: int, path: str) -> None:
    """Listen on a port of 127.0.0.1 and leave a process behind that carries it to a socket.

    When it returns the port answers. The process is nobody's child here, so that the program never
    waits for it by accident.
    """
    listener = socket.create_server(("127.0.0.1", port), backlog=CONNECTIONS)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        listener.close()
        return
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a program that is asked to end still calls
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    try:
        carry(listener, path)
    finally:
        os._exit(1)


class Half:
    """One direction of a connection: at most one chunk is held, so a slow reader slows a writer."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
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
                    self.sink.shutdown(socket.SHUT_WR)
            if self.held:
                self.held = self.held[self.sink.send(self.held) :]
        except BlockingIOError:
            return


class Pair:
    """A caller inside and its connection outside."""

    def __init__(self, inside: socket.socket, outside: socket.socket) -> None:
        self.ends = (inside, outside)
        self.halves = (Half(inside, outside), Half(outside, inside))

    def wishes(self, end: socket.socket) -> int:
        """Return what to wait for at one end."""
        wish = 0
        for half in self.halves:
            if half.source is end and not half.held and not half.ended:
                wish |= selectors.EVENT_READ
            if half.sink is end and half.held:
                wish |= selectors.EVENT_WRITE
        return wish

    def done(self) -> bool:
        """Say whether both directions have ended."""
        return all(half.ended and not half.held for half in self.halves)

    def close(self) -> None:
        """Let go of both ends."""
        for end in self.ends:
            end.close()


class Carrier:
    """Carries every connection of a port to one socket, in one thread and bounded memory."""

    def __init__(self, listener: socket.socket, path: str) -> None:
        self.listener = listener
        self.path = path
        self.waiting = selectors.DefaultSelector()
        self.pairs: set[Pair] = set()
        self.listening = False
        listener.setblocking(False)

    def step(self) -> None:
        """Wait for something to do, and do it."""
        if self.listening != (len(self.pairs) < CONNECTIONS):
            self.listening = not self.listening
            if self.listening:
                self.waiting.register(self.listener, selectors.EVENT_READ)
            else:
                self.waiting.unregister(self.listener)
        for key, _ in self.waiting.select():
            if key.data is None:
                self.accept()
            elif key.data in self.pairs:
                self.serve(key.data)

    def accept(self) -> None:
        """Take a caller in, if the other side answers."""
        try:
            inside, _ = self.listener.accept()
        except OSError:
            return
        pair = Pair(inside, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        for end in pair.ends:
            end.setblocking(False)
        try:
            pair.ends[1].connect(self.path)
        except OSError:
            pair.close()
            return
        self.pairs.add(pair)
        self.watch(pair)

    def serve(self, pair: Pair) -> None:
        """Move bytes in both directions."""
        try:
            for half in pair.halves:
                half.move()
        except OSError:
            self.drop(pair)
            return
        if pair.done():
            self.drop(pair)
        else:
            self.watch(pair)

    def watch(self, pair: Pair) -> None:
        """Wait at each end for what is wanted there now."""
        for end in pair.ends:
            wish = pair.wishes(end)
            known = end in self.waiting.get_map()
            if wish and known:
                self.waiting.modify(end, wish, pair)
            elif wish:
                self.waiting.register(end, wish, pair)
            elif known:
                self.waiting.unregister(end)

    def drop(self, pair: Pair) -> None:
        """Forget a connection."""
        for end in pair.ends:
            if end in self.waiting.get_map():
                self.waiting.unregister(end)
        pair.close()
        self.pairs.discard(pair)


def carry(listener: socket.socket, path: str) -> None:
    """Carry connections until the namespace ends."""
    carrier = Carrier(listener, path)
    while True:
        carrier.step()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
