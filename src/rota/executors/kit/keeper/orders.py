"""What a keeper was told, read from its standard input."""

from __future__ import annotations

import os

from rota.executors.kit.keeper.words import unpack


class Orders:
    """The program, its bounds, and where the daemon is to be found."""

    def __init__(self, packed: bytes) -> None:
        self.argv: list[bytes] = []
        self.env: dict[bytes, bytes] = {}
        told: dict[str, bytes] = {}
        for key, value in unpack(packed):
            if key == b"argv":
                self.argv.append(value)
            elif key == b"env":
                name, _, content = value.partition(b"=")
                self.env[name] = content
            else:
                told[key.decode()] = value
        self.name = told["name"]
        self.nonce = told["nonce"].decode()
        self.boot = told["boot"].decode()
        self.cwd = told["cwd"]
        self.tree = told["tree"].decode()
        self.term = told["term"].decode()
        self.cap = int(told["output_bytes"])
        self.grace = float(told["grace_seconds"])
        self.leftover = float(told["leftover_seconds"])
        self.beat = float(told["beat_seconds"])
        self.hard = _maybe(told.get("hard_seconds"))
        self.idle = _maybe(told.get("idle_seconds"))
        self.memory = int(told.get("memory_bytes", b"0"))
        self.processes = int(told.get("processes", b"0"))
        self.open_files = int(told.get("open_files", b"0"))
        self.usual_files = int(told.get("usual_files", b"0"))
        self.file_bytes = int(told.get("file_bytes", b"0"))
        self.epoch = int(told["epoch"])
        self.wake = told.get("wake", b"")
        self.lease = told.get("lease", b"")
        self.lease_until = int(told.get("lease_until", b"0"))
        self.slack = float(told.get("slack_seconds", b"0"))


def _maybe(value: bytes | None) -> float | None:
    return None if value is None else float(value)


def read_orders(file: int) -> Orders:
    """Return the orders that a file holds, from its beginning."""
    return Orders(os.pread(file, os.fstat(file).st_size, 0))
