"""Who this process is."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A worker's name: unique for every start, readable for people."""

    worker_id: str
    host: str
    pid: int


def this_process() -> Identity:
    """Return a new identity of this process."""
    host, pid = socket.gethostname(), os.getpid()
    return Identity(worker_id=f"{host}-{pid}-{secrets.token_hex(4)}", host=host, pid=pid)
