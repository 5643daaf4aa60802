"""Files and records between keeper and daemon.

The files are in the attempt's folder, which only this user can access. The keeper's orders are
passed in memory, never on disk: they contain the program's environment and so possibly secrets.

    lock          held by the keeper from before its start until its exit, and by its init process
                  until that is recorded; contains the keeper's process id
    keeper        identity of the keeper; written before the program is started
    out, err      spools: an exact prefix of each output stream
    beat          progress of the keeper, rewritten in place; a wake-up replaces it on a full disk
    in, in.end    input of the program, and the mark of its end
    cancel        reserved space for a cancel request, then the request: epoch, grace, reason
    bell          a FIFO: any byte means "read in and cancel"
    unproven      exists while orphans of a guarded tree may be alive
    exit.reserve  reserved space for the exit record, so that it can be written on a full disk
    exit          the exit record
    keeper.err    standard error of the keeper
    unswept       the executor, until it has cleaned up what may outlive the tree
"""

from __future__ import annotations

import binascii
import os

MARKER = "ROTA_KEEPER"
TAIL_BYTES = 64 * 1024
RESERVE_BYTES = 2 * TAIL_BYTES + 4096
LOCK_FD = 3
SEALED_BYTES = 128
CANCEL_BYTES = 512
OUT_OF_FILES = (12, 23, 24)
"""ENOMEM, ENFILE, EMFILE."""


def pack(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """Encode pairs; no key or value may contain a NUL."""
    return b"".join(b"%s=%s\0" % pair for pair in pairs)


def unpack(packed: bytes) -> list[tuple[bytes, bytes]]:
    """Decode packed pairs, in order."""
    split = (item.partition(b"=") for item in packed.split(b"\0")[:-1])
    return [(key, value) for key, _, value in split]


def to_lines(facts: dict[str, object]) -> bytes:
    """Encode facts as lines of key and value, followed by an empty line."""
    pairs = ((key, str(value).replace("\n", " ")) for key, value in facts.items())
    return "".join(f"{key} {value}\n" for key, value in pairs).encode(errors="replace") + b"\n"


def from_lines(data: bytes) -> tuple[dict[str, str], bytes]:
    """Decode lines of facts; return them and the bytes after the empty line."""
    head, _, rest = data.partition(b"\n\n")
    split = (line.partition(" ") for line in head.decode(errors="replace").split("\n"))
    return {key: value for key, _, value in split if key}, rest


def seal(*words: object, size: int = SEALED_BYTES) -> bytes:
    """Return a record with a checksum, so that a half-written one is detected."""
    text = " ".join(str(word) for word in words).encode()
    return (b"%s %08x" % (text, binascii.crc32(text))).ljust(size - 1) + b"\n"


def unseal(data: bytes) -> list[str]:
    """Return the words of a sealed record; empty if it is incomplete or damaged."""
    text, _, check = data.rstrip().rpartition(b" ")
    if not text or check != b"%08x" % binascii.crc32(text):
        return []
    return text.decode(errors="replace").split(" ")


def read_file(path: str, limit: int = 1 << 20) -> bytes:
    """Return the content of a small file; empty if it is missing or no regular file."""
    return read_if_there(path, limit) or b""


def read_if_there(path: str, limit: int = 1 << 20, *, required: bool = False) -> bytes | None:
    """Return the content of a small file, empty if it cannot be read; None if it is missing.

    If it is `required`, lack of descriptors or memory is raised as OSError.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if required and error.errno in OUT_OF_FILES:
            raise
        return b""
    data = b""
    try:
        while len(data) < limit and (more := os.read(file, limit - len(data))):  # /proc gives pages
            data += more
    except OSError:
        return b""
    finally:
        os.close(file)
    return data


def replace_file(path: str, data: bytes) -> None:
    """Replace a small file atomically."""
    draft = f"{path}.new"
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        if os.write(file, data) != len(data):
            raise OSError(28, "No space left on device")
    finally:
        os.close(file)
    os.rename(draft, path)


def overwrite(file: int, data: bytes) -> None:
    """Overwrite a file in place, using its reserved space, and flush it to the disk."""
    written = 0
    while written < len(data):
        written += os.pwrite(file, data[written:], written)
    os.ftruncate(file, len(data))
    os.fsync(file)


def boot_id() -> str:
    """Return the boot id of this machine."""
    return (read_if_there("/proc/sys/kernel/random/boot_id", required=True) or b"").decode().strip()


class KeeperOrders:
    """The orders of a keeper: the program, its limits, and the files of the daemon."""

    def __init__(self, packed: bytes) -> None:
        self.argv: list[bytes] = []
        self.env: dict[bytes, bytes] = {}
        fields: dict[str, bytes] = {}
        for key, value in unpack(packed):
            if key == b"argv":
                self.argv.append(value)
            elif key == b"env":
                name, _, content = value.partition(b"=")
                self.env[name] = content
            else:
                fields[key.decode()] = value
        self.name = fields["name"]
        self.nonce = fields["nonce"].decode()
        self.boot = fields["boot"].decode()
        self.cwd = fields["cwd"]
        self.tree = fields["tree"].decode()
        self.term = fields["term"].decode()
        self.cap = int(fields["output_bytes"])
        self.grace = float(fields["grace_seconds"])
        self.leftover = float(fields["leftover_seconds"])
        self.beat = float(fields["beat_seconds"])
        self.hard = _optional_float(fields.get("hard_seconds"))
        self.idle = _optional_float(fields.get("idle_seconds"))
        self.memory = int(fields.get("memory_bytes", b"0"))
        self.processes = int(fields.get("processes", b"0"))
        self.open_files = int(fields.get("open_files", b"0"))
        self.usual_files = int(fields.get("usual_files", b"0"))
        self.file_bytes = int(fields.get("file_bytes", b"0"))
        self.epoch = int(fields["epoch"])
        self.wake = fields.get("wake", b"")
        self.lease = fields.get("lease", b"")
        self.lease_until = int(fields.get("lease_until", b"0"))
        self.slack = float(fields.get("slack_seconds", b"0"))


def _optional_float(value: bytes | None) -> float | None:
    return None if value is None else float(value)


def read_orders(file: int) -> KeeperOrders:
    """Read orders from a file descriptor."""
    return KeeperOrders(os.pread(file, os.fstat(file).st_size, 0))
