"""How a keeper begins and ends: `keeper FOLDER`, orders on standard input, the lock on fd 3.

`keeper --try` only says by its exit code whether this machine can hold a tree in a namespace.
"""

from __future__ import annotations

import os
import resource
import sys
import time

from rota.executors.kit.keeper.kernel import call_myself, gather_orphans, namespaces_work
from rota.executors.kit.keeper.orders import Orders, read_orders
from rota.executors.kit.keeper.program import FULL_RING_SECONDS, Keeper
from rota.executors.kit.keeper.words import LOCK_FD, as_lines, fill

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

HIGHEST_FD = 1 << 20
SIGKILL = 9
LAST_RINGS = 20
TELLING_OF_FAULT = 500


def begin() -> None:
    """Be a keeper: everything from the first instruction to the ending."""
    if sys.argv[1] == "--try":
        os._exit(0 if namespaces_work() else 1)
    os.chdir(sys.argv[1])
    if os.path.exists("exit"):  # somebody has judged already: nothing runs late
        return
    orders = read_orders(0)
    _settle_in()
    keeper = None
    try:
        keeper = Keeper(orders)
        keeper.keep()
    except BaseException as fault:
        if keeper is not None:
            keeper.abandon()
        publish(orders, keeper, fault)
        raise
    publish(orders, keeper, None)
    for _ in range(LAST_RINGS):
        if keeper.ringer.ring():
            break
        time.sleep(FULL_RING_SECONDS)
    os._exit(0)


def _settle_in() -> None:
    os.closerange(LOCK_FD + 1, HIGHEST_FD)
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.umask(0o077)
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGPIPE", "SIGUSR1", "SIGUSR2", "SIGXFSZ"):
        _signal.signal(getattr(_signal, name), _signal.SIG_IGN)
    call_myself(b"rota-keeper")
    gather_orphans()


def publish(orders: Orders, keeper: Keeper | None, fault: BaseException | None) -> None:
    """Write the ending into the room kept for it, and let it appear whole."""
    facts: dict[str, object] = {"name": orders.name.decode(errors="replace"), "nonce": orders.nonce}
    tails = b""
    if keeper is not None:
        keeper.out.settle()
        keeper.err.settle()
        facts |= _account(keeper)
        tails = keeper.out.tail() + keeper.err.tail()
    if fault is not None:
        begun = keeper is not None and keeper.started
        facts["reason"] = "keeper_error" if begun else "spawn_failed"
        facts["detail"] = f"{type(fault).__name__}: {fault}"[:TELLING_OF_FAULT]
    facts |= {"proven": 1, "ended": time.time_ns()}
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = os.open("exit.reserve", flags, 0o600)
    head = as_lines(facts)
    try:
        fill(file, head + tails)
    except OSError:  # a disk that does not keep what it reserved: the ending matters more
        fill(file, as_lines(facts | {"out_tail": 0, "err_tail": 0}))
    os.rename("exit.reserve", "exit")
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    os.fsync(folder)


def _account(keeper: Keeper) -> dict[str, object]:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    facts: dict[str, object] = {
        "reason": keeper.reason,
        "detail": keeper.detail,
        "killed": int(keeper.killed),
        "tree": "pidns" if keeper.namespace else "guard",
        "started": keeper.started,
        "in_offset": keeper.feed.offset,
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
        "rss_bytes": usage.ru_maxrss * 1024,
    }
    if keeper.status is not None and keeper.started:
        code = os.waitstatus_to_exitcode(keeper.status)
        facts["signal" if code < 0 else "code"] = abs(code)
    elif keeper.killed:  # it died with the first process of its namespace, which has no more to say
        facts["signal"] = SIGKILL
    for name, spool in (("out", keeper.out), ("err", keeper.err)):
        facts[f"{name}_size"] = spool.size
        facts[f"{name}_total"] = spool.total
        facts[f"{name}_errno"] = spool.errno
        facts[f"{name}_tail"] = len(spool.tail())
    return facts


if __name__ == "__main__":
    begin()
