"""The keeper itself: its loop, its spools and its entry point.

`keeper --try` only says by its exit code whether this machine can hold a tree in a namespace.

starting -> running -> ending -> ended

It runs until the tree it holds is empty. Whatever wants it to end (the program's own end, a
timeout, a cancellation, a lease nobody renews) first asks the tree politely, then, after a grace,
ends it for certain. Its lock is released last, by its death: a free lock means that nobody keeps
the attempt, and that whatever ending there is will not change.
"""

from __future__ import annotations

import os
import resource
import select
import sys
import time

from rota.keeper.init import InitPipes, InitProcess
from rota.keeper.linux import (
    call_myself,
    end_descendants,
    enter_pid_namespace,
    gather_orphans,
    namespaces_work,
    start_time,
)
from rota.keeper.protocol import (
    LOCK_FD,
    TAIL_BYTES,
    KeeperOrders,
    as_lines,
    fill,
    read_file,
    read_orders,
    seal,
    unseal,
    write_whole,
)

CHUNK_BYTES = 64 * 1024
SMALL_BYTES = 4096
LEFT_BYTES = 16 * 1024 * 1024
"""How much of a disk a spool leaves to others, a tenth of a small one: room is made by writing."""
LOOK_BYTES = 1024 * 1024
ENOSPC = 28


def read_now(end: int, most: int) -> bytes | None:
    """Return what a pipe holds, nothing at its end; None if it holds nothing now."""
    try:
        return os.read(end, most)
    except BlockingIOError:
        return None


class SpoolFile:
    """One stream of the program: its head in a file, its newest bytes in memory, all counted.

    The file is a clean prefix of the stream. What goes past the cap, or finds the disk full, is
    only counted and remembered by its tail; the program never notices.
    """

    def __init__(self, name: str, cap: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.file = os.open(name, flags, 0o600)
        self.cap = cap
        self.size = 0
        self.total = 0
        self.errno = 0
        self._looked = 0
        self._tail: list[bytes] = []
        self._tail_size = 0

    def take(self, data: bytes) -> None:
        """Keep what was read."""
        self.total += len(data)
        if self.size - self._looked >= LOOK_BYTES:
            self._look()
        room = 0 if self.errno else self.cap - self.size
        kept = self._write(data if len(data) <= room else data[:room]) if room > 0 else 0
        if kept < len(data):
            self._remember(data[kept:] if kept else data)

    def tail(self) -> bytes:
        """Return the newest bytes that are not in the file."""
        return b"".join(self._tail)[-TAIL_BYTES:]

    def settle(self) -> None:
        """Have the file on the disk, as far as the disk takes it."""
        try:
            if self.size:
                os.fsync(self.file)
        except OSError as error:
            self.errno = self.errno or error.errno or 5

    def _look(self) -> None:
        """Take a disk for full while others still find room on it."""
        self._looked = self.size
        disk = os.fstatvfs(self.file)
        if disk.f_bavail * disk.f_frsize < min(LEFT_BYTES, disk.f_blocks * disk.f_frsize // 10):
            self.errno = self.errno or ENOSPC

    def _write(self, data: bytes) -> int:
        written = 0
        while written < len(data):
            try:
                written += os.write(self.file, data[written:] if written else data)
            except OSError as error:
                self.errno = error.errno or 5
                break
        self.size += written
        return written

    def _remember(self, data: bytes) -> None:
        if self._tail and len(self._tail[-1]) + len(data) <= SMALL_BYTES:
            self._tail[-1] += data
        else:
            self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= TAIL_BYTES:
            self._tail_size -= len(self._tail.pop(0))


class InputFile:
    """What the program is to read: the file `in`, which the daemon writes, into a pipe."""

    def __init__(self, pipe: int, offset: int = 0) -> None:
        self.pipe = pipe
        self.offset = offset
        self.open = True
        self._file = os.open("in", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._pending = b""
        os.set_blocking(pipe, False)

    def push(self) -> bool:
        """Write what there is; true if the pipe is full and more is waiting."""
        while self.open:
            ended = os.path.exists("in.end")  # looked at first: then what is read is all
            self._pending = self._pending or os.pread(self._file, CHUNK_BYTES, self.offset)
            if not self._pending:
                if ended:
                    self.close()
                return False
            try:
                written = os.write(self.pipe, self._pending)
            except BlockingIOError:
                return True
            except OSError:  # the program does not read any more
                self.close()
                return False
            self.offset += written
            self._pending = self._pending[written:]
        return False

    def close(self) -> None:
        """Tell the program that there is no more."""
        if self.open:
            self.open = False
            os.close(self.pipe)


class WakeupPipe:
    """Tells the daemon that there is something new, if one is there to hear it."""

    def __init__(self, path: bytes, name: bytes) -> None:
        self._path = path
        self._line = name + b"\n"
        self._file = -1

    def ring(self) -> bool:
        """Ring; false if the daemon has not yet taken in what rang before."""
        for _ in range(2 if self._path else 0):  # the FIFO may be another one than it was
            try:
                if self._file < 0:
                    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
                    self._file = os.open(self._path, flags)
                os.write(self._file, self._line)
            except BlockingIOError:
                return False
            except OSError:
                self._forget()
            else:
                break
        return True

    def _forget(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
else:
    import _signal

MAX_REST = 60.0
RING_SECONDS = 0.005
FULL_RING_SECONDS = 0.05
FORCE_SECONDS = 1.0
DRAIN_SECONDS = 2.0
LEASE_LOOK_SECONDS = 0.2


class KeeperProcess:
    """One attempt, from the fork of its inner process to its ending."""

    def __init__(self, orders: KeeperOrders) -> None:
        self.orders = orders
        self.state = "starting"
        self.reason = ""
        self.detail = ""
        self.status: int | None = None
        self.started = 0
        self.killed = False
        self.buried = False
        self.terminated = False
        self.epoch = orders.epoch
        self.lease_until = orders.lease_until
        self.expired_at = 0.0
        self.last_output = 0.0
        self.last_ring = 0.0
        self.alarms: dict[Callable[[], None], float] = {}
        self.answers: dict[int, Callable[[], None]] = {}
        self.poll = select.poll()
        self.pipes = InitPipes()
        self.namespace, own_users = self._namespace()
        self.inner = os.fork()
        if self.inner == 0:
            try:
                InitProcess(
                    orders, self.pipes, namespace=self.namespace, own_users=own_users
                ).live()
            except BaseException:  # noqa: BLE001 - a fork never returns into its parent's code
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(1)
        for end in self.pipes.inner_ends():
            os.close(end)
        for end in self.pipes.read_ends():  # whoever writes may take it back before it is read
            os.set_blocking(end, False)
        self.told = b""
        self.out = SpoolFile("out", orders.cap)
        self.err = SpoolFile("err", orders.cap)
        self.feed = InputFile(self.pipes.stdin[1])
        self.ringer = WakeupPipe(orders.wake, orders.name)
        self.beats = os.open("beat", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.bell = os.open("bell", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.signal(_signal.SIGTERM, self._terminate)

    def keep(self) -> None:
        """Live until the tree is empty."""
        self._listen(self.bell, self._look)
        self._listen(self.pipes.status[0], self._hear)
        self._listen(self.pipes.stdout[0], lambda: self._spool(self.out, self.pipes.stdout[0]))
        self._listen(self.pipes.stderr[0], lambda: self._spool(self.err, self.pipes.stderr[0]))
        watched = os.pidfd_open(self.inner)
        self._listen(watched, lambda: self._set_state("ended"))
        self._beat()
        if self.orders.lease:
            self._mind_lease()
        self._look()
        while self.state != "ended":
            self._step()
        self._bury()
        self.alarms.clear()
        drained = time.monotonic() + DRAIN_SECONDS
        for idle in (watched, self.bell):
            self.answers.pop(idle)
            self.poll.unregister(idle)
        while self.answers and time.monotonic() < drained:
            self.alarms[self._beat] = drained
            self._step()

    def _namespace(self) -> tuple[bool, bool]:
        if self.orders.tree == "guard":
            return False, False
        try:
            return True, enter_pid_namespace()
        except OSError:
            if self.orders.tree == "pidns":
                raise
            return False, False

    def _listen(self, end: int, answer: Callable[[], None], event: int = select.POLLIN) -> None:
        self.poll.register(end, event)
        self.answers[end] = answer

    def _deafen(self, end: int) -> None:
        self.poll.unregister(end)
        del self.answers[end]
        os.close(end)

    def _step(self) -> None:
        now = time.monotonic()
        for alarm in [alarm for alarm, at in self.alarms.items() if at <= now]:
            if self.alarms.pop(alarm, None) is not None:
                alarm()
        now = time.monotonic()
        rest = min((at - now for at in self.alarms.values()), default=MAX_REST)
        for end, _ in self.poll.poll(max(0, int(min(rest, MAX_REST) * 1000) + 1)):
            if end in self.answers:
                self.answers[end]()

    def _set_state(self, state: str) -> None:
        self.state = state
        self._beat()

    def _beat(self) -> None:
        now = time.monotonic()
        self.alarms[self._beat] = now + self.orders.beat
        spools = (self.out.size, self.out.total, self.err.size, self.err.total)
        boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        try:
            os.pwrite(self.beats, seal(boot, self.state, self.feed.offset, *spools), 0)
        except OSError:
            self._ring()  # a disk that is full may refuse even this, and who is silent is ended

    def _command(self, letter: bytes) -> None:
        try:
            os.write(self.pipes.command[1], letter)
        except BrokenPipeError:
            return  # the inner process is dead, and its handle says so

    def _hear(self) -> None:
        heard = read_now(self.pipes.status[0], 4096)
        if heard is None:
            return
        if not heard:
            self._deafen(self.pipes.status[0])
        *lines, self.told = (self.told + heard).split(b"\n")
        for line in lines:
            word, _, rest = line.decode().partition(" ")
            self._heard(word, rest)

    def _heard(self, word: str, rest: str) -> None:
        if word == "R":
            self._introduce()
        elif word == "A":
            self.started = time.time_ns()
            if not self.reason:
                self._set_state("running")
            self._feed()
        elif word == "X":
            step, _, number = rest.partition(" ")
            reason = "spawn_failed" if step in {"namespace", "start"} else "exec_failed"
            what = os.fsdecode(self.orders.argv[0]) if step == "program" else step
            self.reason, self.detail = reason, f"{what}: {os.strerror(int(number))}"
        elif word == "P":
            self._end("too_many_processes", 0.0, f"{rest} of {self.orders.processes}")
        elif word == "S":
            self.status = int(rest)
            self._end("signaled" if os.WIFSIGNALED(self.status) else "exited", self.orders.leftover)

    def _introduce(self) -> None:
        if self.reason:  # cancelled before it began
            return
        if not self.namespace:
            write_whole("unproven", b"")
        facts: dict[str, object] = {
            "name": self.orders.name.decode(errors="replace"),
            "nonce": self.orders.nonce,
            "boot": self.orders.boot,
            "pid": os.getpid(),
            "pid_started": start_time(os.getpid()),
            "inner": self.inner,
            "inner_started": start_time(self.inner),
            "tree": "pidns" if self.namespace else "guard",
        }
        write_whole("keeper", as_lines(facts))
        self.last_output = time.monotonic()
        if self.orders.hard is not None:
            self.alarms[self._hard] = self.last_output + self.orders.hard
        if self.orders.idle is not None:
            self.alarms[self._idle] = self.last_output + self.orders.idle
        self._command(b"G")

    def _spool(self, spool: SpoolFile, end: int) -> None:
        data = read_now(end, CHUNK_BYTES)
        if data is None:
            return
        if not data:
            self._deafen(end)
            return
        spool.take(data)
        self.last_output = time.monotonic()
        self.alarms.setdefault(self._ring, self.last_ring + RING_SECONDS)

    def _ring(self) -> None:
        self.last_ring = time.monotonic()
        if not self.ringer.ring():
            self.alarms[self._ring] = self.last_ring + FULL_RING_SECONDS

    def _feed(self) -> None:
        pipe, before = self.feed.pipe, self.feed.offset
        waiting = self.feed.push()
        if waiting and pipe not in self.answers:
            self._listen(pipe, self._feed, select.POLLOUT)
        elif not waiting and pipe in self.answers:
            del self.answers[pipe]
            self.poll.unregister(pipe)
        if self.feed.offset != before:
            self._beat()

    def _terminate(self, _number: int, _frame: object) -> None:
        self.terminated = True
        try:
            os.write(self.bell, b"t")
        except BlockingIOError:
            return  # it has been rung often enough

    def _look(self) -> None:
        read_now(self.bell, 4096)
        wish = unseal(read_file("cancel"))  # one that is being written is rung for afterwards
        if wish and int(wish[0]) >= self.epoch:
            self.epoch = int(wish[0])
            self._end("cancelled", int(wish[1]) / 1000, " ".join(wish[2:]))
        if self.terminated:
            self._end("keeper_sigterm", self.orders.grace)
        if self.started:
            self._feed()

    def _hard(self) -> None:
        self._end("hard_timeout", self.orders.grace)

    def _idle(self) -> None:
        due = self.last_output + (self.orders.idle or 0.0)
        if time.monotonic() >= due and self._waits_for_more():
            self._hang_up()
            self.alarms[self._idle] = due + self.orders.grace
        elif time.monotonic() >= due:
            self._end("idle_timeout", self.orders.grace)
        else:
            self.alarms[self._idle] = due

    def _mind_lease(self) -> None:
        """End when the lease has expired in boot time and stays so for a slack of awake time.

        After a sleep of the machine every lease looks expired before the daemon has run. Others
        count on the end, so a long grace is cut short, also of what is being ended already.
        """
        words = unseal(read_file(os.fsdecode(self.orders.lease)))
        if words and int(words[1]) >= self.epoch:
            self.lease_until, self.epoch = int(words[0]), int(words[1])
        left = (self.lease_until - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) / 1e9
        now = time.monotonic()
        if left > 0:
            self.expired_at = 0.0
            self.alarms[self._mind_lease] = now + min(left, MAX_REST)
            return
        self.expired_at = self.expired_at or now
        waited = now - self.expired_at
        if waited >= self.orders.slack:
            self._end("lease_expired", min(self.orders.grace, self.orders.slack / 2))
        else:
            if waited >= self.orders.slack / 2 and self._waits_for_more():
                self._hang_up()
            rest = min(self.orders.slack - waited, LEASE_LOOK_SECONDS)
            self.alarms[self._mind_lease] = now + rest

    def _waits_for_more(self) -> bool:
        """Whether a program has read all it was given, and may only wait for more."""
        if not self.started:
            return False
        self._feed()
        return self.feed.open and self.feed.pipe not in self.answers

    def _hang_up(self) -> None:
        """Tell a program that there is no more to read."""
        if self.answers.pop(self.feed.pipe, None):
            self.poll.unregister(self.feed.pipe)
        self.feed.close()

    def _end(self, reason: str, grace: float, detail: str = "") -> None:
        """Begin to end the tree, or hurry what has begun; the first reason stays."""
        kill_at = time.monotonic() + grace
        if self.reason:
            if self._kill in self.alarms:
                self.alarms[self._kill] = min(kill_at, self.alarms[self._kill])
            return
        self.reason, self.detail = reason, detail
        for alarm in (self._hard, self._idle):
            self.alarms.pop(alarm, None)
        self.alarms[self._kill] = kill_at
        everyone = self.status is not None or self.orders.term != "main"
        self._command(b"T" if everyone else b"M")
        self._set_state("ending")

    def _kill(self) -> None:
        self.killed = True
        if self.namespace:
            os.kill(self.inner, _signal.SIGKILL)
        else:
            self._command(b"K")
            self.alarms[self._force] = time.monotonic() + FORCE_SECONDS

    def _force(self) -> None:
        os.kill(self.inner, _signal.SIGKILL)

    def _bury(self) -> None:
        """Wait for the inner process: then its namespace is empty, or what it left is here."""
        os.waitpid(self.inner, 0)
        self.buried = True
        if not self.namespace:
            end_descendants()
            if os.path.exists("unproven"):
                os.unlink("unproven")
        if self.pipes.status[0] in self.answers:
            self._hear()
        if not self.reason:
            self.reason, self.killed = "init_killed", True
        self._hang_up()

    def abandon(self) -> None:
        """End the tree at once, because the keeper cannot go on."""
        if not self.buried:
            os.kill(self.inner, _signal.SIGKILL)
            os.waitpid(self.inner, 0)
        if not self.namespace:
            end_descendants()


if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

MAX_FD = 1 << 20
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
        keeper = KeeperProcess(orders)
        keeper.keep()
    except BaseException as error:
        if keeper is not None:
            keeper.abandon()
        publish(orders, keeper, error)
        raise
    publish(orders, keeper, None)
    for _ in range(LAST_RINGS):
        if keeper.ringer.ring():
            break
        time.sleep(FULL_RING_SECONDS)
    os._exit(0)


def _settle_in() -> None:
    os.closerange(LOCK_FD + 1, MAX_FD)
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.umask(0o077)
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGPIPE", "SIGUSR1", "SIGUSR2", "SIGXFSZ"):
        _signal.signal(getattr(_signal, name), _signal.SIG_IGN)
    call_myself(b"rota-keeper")
    gather_orphans()


def publish(
    orders: KeeperOrders, keeper: KeeperProcess | None, fault: BaseException | None
) -> None:
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


def _account(keeper: KeeperProcess) -> dict[str, object]:
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
