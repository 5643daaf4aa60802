"""Files and records between keeper and daemon.

All files lie in the attempt's folder, which nobody else can enter. A keeper's orders come to it in
memory, never on a disk: they hold the environment of the program, and so perhaps secrets.

    lock          held by the keeper from before its birth until its death, and by its inner process
                  until that is written down; holds the keeper's process number
    keeper        who keeps the attempt; written before the program is started
    out, err      what the program wrote, a clean prefix of each stream
    beat          how far the keeper is, in place, now and then; a ring where the disk refuses it
    in, in.end    what the program is to read, and that there is no more
    cancel        room for the wish to stop, and then the wish: epoch, grace, why
    bell          a FIFO: any byte means "look at in and cancel"
    unproven      there while strays of a guarded tree could be alive
    exit.reserve  room for the ending, so that it can be written on a full disk
    exit          the ending
    keeper.err    what the keeper could only say to nobody
    unswept       the executor, until it has ended what may outlive the tree
"""

from __future__ import annotations

import binascii
import os

MARKER = "ROTA_KEEPER"
TAIL_BYTES = 64 * 1024
RESERVE_BYTES = 2 * TAIL_BYTES + 4096
LOCK_FD = 3
SEALED_BYTES = 128
WISH_BYTES = 512
NOTHING_CAN_BE_OPENED = (12, 23, 24)
"""ENOMEM, ENFILE, EMFILE."""


def pack(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """Return orders as one piece; no key or value has a NUL in it."""
    return b"".join(b"%s=%s\0" % pair for pair in pairs)


def unpack(packed: bytes) -> list[tuple[bytes, bytes]]:
    """Return the pairs that were packed, in their order."""
    split = (item.partition(b"=") for item in packed.split(b"\0")[:-1])
    return [(key, value) for key, _, value in split]


def as_lines(facts: dict[str, object]) -> bytes:
    """Return facts as lines of a key and a value, ended by an empty line."""
    told = ((key, str(value).replace("\n", " ")) for key, value in facts.items())
    return "".join(f"{key} {value}\n" for key, value in told).encode(errors="replace") + b"\n"


def from_lines(data: bytes) -> tuple[dict[str, str], bytes]:
    """Return the facts that lines tell, and the bytes behind their empty line."""
    head, _, rest = data.partition(b"\n\n")
    split = (line.partition(" ") for line in head.decode(errors="replace").split("\n"))
    return {key: value for key, _, value in split if key}, rest


def seal(*words: object, size: int = SEALED_BYTES) -> bytes:
    """Return a record that can be written in place: whoever reads it half written sees that."""
    text = " ".join(str(word) for word in words).encode()
    return (b"%s %08x" % (text, binascii.crc32(text))).ljust(size - 1) + b"\n"


def unseal(data: bytes) -> list[str]:
    """Return the words of a sealed record; none if it is torn, empty or spoilt."""
    text, _, check = data.rstrip().rpartition(b" ")
    if not text or check != b"%08x" % binascii.crc32(text):
        return []
    return text.decode(errors="replace").split(" ")


def read_file(path: str, most: int = 1 << 20) -> bytes:
    """Return what a small file holds; nothing if it is not there, or is no file."""
    return read_if_there(path, most) or b""


def read_if_there(path: str, most: int = 1 << 20, *, surely: bool = False) -> bytes | None:
    """Return what a small file holds, empty if it cannot be read; None if it is not there.

    With `surely` it is an error that this process can open nothing just now.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if surely and error.errno in NOTHING_CAN_BE_OPENED:
            raise
        return b""
    data = b""
    try:
        while len(data) < most and (more := os.read(file, most - len(data))):  # /proc gives pages
            data += more
    except OSError:
        return b""
    finally:
        os.close(file)
    return data


def write_whole(path: str, data: bytes) -> None:
    """Put a small file in its place, whole or not at all."""
    draft = f"{path}.new"
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        if os.write(file, data) != len(data):
            raise OSError(28, "No space left on device")
    finally:
        os.close(file)
    os.rename(draft, path)


def fill(file: int, data: bytes) -> None:
    """Overwrite a file from its beginning, in the room it has, and have it on the disk."""
    written = 0
    while written < len(data):
        written += os.pwrite(file, data[written:], written)
    os.ftruncate(file, len(data))
    os.fsync(file)


def boot_id() -> str:
    """Return the name of the time since this machine was last started."""
    return (read_if_there("/proc/sys/kernel/random/boot_id", surely=True) or b"").decode().strip()


class KeeperOrders:
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


def read_orders(file: int) -> KeeperOrders:
    """Return the orders that a file holds, from its beginning."""
    return KeeperOrders(os.pread(file, os.fstat(file).st_size, 0))
