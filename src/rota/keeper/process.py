"""The keeper process: its event loop, its spools and its entry point.

    starting -> running -> ending -> ended

It runs until its process tree is empty. Everything that ends the tree (the end of the program, a
timeout, a cancellation, an expired lease) first sends SIGTERM and after a grace period SIGKILL. Its
lock is released by its exit: a free lock means that no keeper holds the attempt, and that an
existing exit record is final.

`keeper --try` reports by its exit code whether this machine supports PID namespaces.
"""

from __future__ import annotations

import os
import resource
import select
import sys
import time

from rota.keeper.init import InitPipes, InitProcess
from rota.keeper.linux import (
    become_subreaper,
    enter_pid_namespace,
    kill_descendants,
    namespaces_work,
    set_process_name,
    start_time,
)
from rota.keeper.protocol import (
    LOCK_FD,
    TAIL_BYTES,
    KeeperOrders,
    overwrite,
    read_file,
    read_orders,
    replace_file,
    seal,
    to_lines,
    unseal,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
else:
    import _signal

CHUNK_BYTES = 64 * 1024
SMALL_BYTES = 4096
FREE_BYTES = 16 * 1024 * 1024
"""Free disk space that spools leave to others; on a small disk a tenth of it."""
CHECK_BYTES = 1024 * 1024
ENOSPC = 28


def read_available(end: int, limit: int) -> bytes | None:
    """Return the content of a pipe, empty at its end; None if it has none now."""
    try:
        return os.read(end, limit)
    except BlockingIOError:
        return None


class SpoolFile:
    """One output stream: its beginning in a file, its newest bytes in memory, all bytes counted.

    The file is an exact prefix of the stream. Bytes above the cap, or when the disk is full, are
    only counted and kept as the tail; the program does not notice.
    """

    def __init__(self, name: str, cap: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.file = os.open(name, flags, 0o600)
        self.cap = cap
        self.size = 0
        self.total = 0
        self.errno = 0
        self._checked_size = 0
        self._tail: list[bytes] = []
        self._tail_size = 0

    def append(self, data: bytes) -> None:
        """Store data read from the stream."""
        self.total += len(data)
        if self.size - self._checked_size >= CHECK_BYTES:
            self._check_requests()
        room = 0 if self.errno else self.cap - self.size
        kept = self._write(data if len(data) <= room else data[:room]) if room > 0 else 0
        if kept < len(data):
            self._keep_tail(data[kept:] if kept else data)

    def tail(self) -> bytes:
        """Return the newest bytes that are not in the file."""
        return b"".join(self._tail)[-TAIL_BYTES:]

    def sync(self) -> None:
        """Flush the file to the disk, if possible."""
        try:
            if self.size:
                os.fsync(self.file)
        except OSError as error:
            self.errno = self.errno or error.errno or 5

    def _check_requests(self) -> None:
        """Treat the disk as full while others still have space on it."""
        self._checked_size = self.size
        disk = os.fstatvfs(self.file)
        if disk.f_bavail * disk.f_frsize < min(FREE_BYTES, disk.f_blocks * disk.f_frsize // 10):
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

    def _keep_tail(self, data: bytes) -> None:
        if self._tail and len(self._tail[-1]) + len(data) <= SMALL_BYTES:
            self._tail[-1] += data
        else:
            self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= TAIL_BYTES:
            self._tail_size -= len(self._tail.pop(0))


class InputFile:
    """The program's input: copies the file `in`, which the daemon writes, into a pipe."""

    def __init__(self, pipe: int, offset: int = 0) -> None:
        self.pipe = pipe
        self.offset = offset
        self.open = True
        self._file = os.open("in", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._pending = b""
        os.set_blocking(pipe, False)

    def push(self) -> bool:
        """Write available input; true if the pipe is full and more is waiting."""
        while self.open:
            ended = os.path.exists("in.end")  # checked first, so that all input is read
            self._pending = self._pending or os.pread(self._file, CHUNK_BYTES, self.offset)
            if not self._pending:
                if ended:
                    self.close()
                return False
            try:
                written = os.write(self.pipe, self._pending)
            except BlockingIOError:
                return True
            except OSError:  # the program has closed its input
                self.close()
                return False
            self.offset += written
            self._pending = self._pending[written:]
        return False

    def close(self) -> None:
        """Close the program's input."""
        if self.open:
            self.open = False
            os.close(self.pipe)


class WakeupPipe:
    """Wakes the daemon, if it is running."""

    def __init__(self, path: bytes, name: bytes) -> None:
        self._path = path
        self._line = name + b"\n"
        self._file = -1

    def wake(self) -> bool:
        """Write a wake-up; false if the FIFO is full."""
        for _ in range(2 if self._path else 0):  # the daemon may have recreated the FIFO
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


MAX_REST = 60.0
WAKEUP_SECONDS = 0.005
WAKEUP_RETRY_SECONDS = 0.05
FORCE_SECONDS = 1.0
DRAIN_SECONDS = 2.0
LEASE_CHECK_SECONDS = 0.2


class KeeperProcess:
    """One attempt, from the fork of its init process to its exit record."""

    def __init__(self, orders: KeeperOrders) -> None:
        self.orders = orders
        self.state = "starting"
        self.reason = ""
        self.detail = ""
        self.status: int | None = None
        self.started = 0
        self.killed = False
        self.reaped = False
        self.terminated = False
        self.epoch = orders.epoch
        self.lease_until = orders.lease_until
        self.expired_at = 0.0
        self.last_output = 0.0
        self.last_wakeup = 0.0
        self.timers: dict[Callable[[], None], float] = {}
        self.handlers: dict[int, Callable[[], None]] = {}
        self.poll = select.poll()
        self.pipes = InitPipes()
        self.namespace, own_users = self._namespace()
        self.inner = os.fork()
        if self.inner == 0:
            try:
                InitProcess(orders, self.pipes, namespace=self.namespace, own_users=own_users).run()
            except BaseException:  # noqa: BLE001 - a fork never returns into its parent's code
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(1)
        for end in self.pipes.inner_ends():
            os.close(end)
        for end in self.pipes.read_ends():  # a writer may take data back before it is read
            os.set_blocking(end, False)
        self.status_buffer = b""
        self.out = SpoolFile("out", orders.cap)
        self.err = SpoolFile("err", orders.cap)
        self.input = InputFile(self.pipes.stdin[1])
        self.daemon_wakeup = WakeupPipe(orders.wake, orders.name)
        self.heartbeat_file = os.open("beat", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.wakeup_fifo = os.open("bell", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.signal(_signal.SIGTERM, self._on_sigterm)

    def run(self) -> None:
        """Run until the process tree is empty."""
        self._listen(self.wakeup_fifo, self._check_requests)
        self._listen(self.pipes.status[0], self._read_status)
        self._listen(self.pipes.stdout[0], lambda: self._spool(self.out, self.pipes.stdout[0]))
        self._listen(self.pipes.stderr[0], lambda: self._spool(self.err, self.pipes.stderr[0]))
        watched = os.pidfd_open(self.inner)
        self._listen(watched, lambda: self._set_state("ended"))
        self._beat()
        if self.orders.lease:
            self._check_lease()
        self._check_requests()
        while self.state != "ended":
            self._step()
        self._reap_init()
        self.timers.clear()
        drained = time.monotonic() + DRAIN_SECONDS
        for idle in (watched, self.wakeup_fifo):
            self.handlers.pop(idle)
            self.poll.unregister(idle)
        while self.handlers and time.monotonic() < drained:
            self.timers[self._beat] = drained
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
        self.handlers[end] = answer

    def _stop_listening(self, end: int) -> None:
        self.poll.unregister(end)
        del self.handlers[end]
        os.close(end)

    def _step(self) -> None:
        now = time.monotonic()
        for alarm in [alarm for alarm, at in self.timers.items() if at <= now]:
            if self.timers.pop(alarm, None) is not None:
                alarm()
        now = time.monotonic()
        rest = min((at - now for at in self.timers.values()), default=MAX_REST)
        for end, _ in self.poll.poll(max(0, int(min(rest, MAX_REST) * 1000) + 1)):
            if end in self.handlers:
                self.handlers[end]()

    def _set_state(self, state: str) -> None:
        self.state = state
        self._beat()

    def _beat(self) -> None:
        now = time.monotonic()
        self.timers[self._beat] = now + self.orders.beat
        spools = (self.out.size, self.out.total, self.err.size, self.err.total)
        boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        try:
            os.pwrite(self.heartbeat_file, seal(boot, self.state, self.input.offset, *spools), 0)
        except OSError:
            self._wake_daemon()  # on a full disk a wake-up replaces the heartbeat

    def _command(self, letter: bytes) -> None:
        try:
            os.write(self.pipes.command[1], letter)
        except BrokenPipeError:
            return  # the init process is dead, which its pidfd reports

    def _read_status(self) -> None:
        data = read_available(self.pipes.status[0], 4096)
        if data is None:
            return
        if not data:
            self._stop_listening(self.pipes.status[0])
        *lines, self.status_buffer = (self.status_buffer + data).split(b"\n")
        for line in lines:
            word, _, rest = line.decode().partition(" ")
            self._handle_status(word, rest)

    def _handle_status(self, word: str, rest: str) -> None:
        if word == "R":
            self._record_keeper()
        elif word == "A":
            self.started = time.time_ns()
            if not self.reason:
                self._set_state("running")
            self._feed_input()
        elif word == "X":
            step, _, number = rest.partition(" ")
            reason = "spawn_failed" if step in {"namespace", "start"} else "exec_failed"
            what = os.fsdecode(self.orders.argv[0]) if step == "program" else step
            self.reason, self.detail = reason, f"{what}: {os.strerror(int(number))}"
        elif word == "P":
            self._stop("too_many_processes", 0.0, f"{rest} of {self.orders.processes}")
        elif word == "S":
            self.status = int(rest)
            self._stop(
                "signaled" if os.WIFSIGNALED(self.status) else "exited", self.orders.leftover
            )

    def _record_keeper(self) -> None:
        if self.reason:  # cancelled before the start
            return
        if not self.namespace:
            replace_file("unproven", b"")
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
        replace_file("keeper", to_lines(facts))
        self.last_output = time.monotonic()
        if self.orders.hard is not None:
            self.timers[self._on_hard_timeout] = self.last_output + self.orders.hard
        if self.orders.idle is not None:
            self.timers[self._on_idle_timeout] = self.last_output + self.orders.idle
        self._command(b"G")

    def _spool(self, spool: SpoolFile, end: int) -> None:
        data = read_available(end, CHUNK_BYTES)
        if data is None:
            return
        if not data:
            self._stop_listening(end)
            return
        spool.append(data)
        self.last_output = time.monotonic()
        self.timers.setdefault(self._wake_daemon, self.last_wakeup + WAKEUP_SECONDS)

    def _wake_daemon(self) -> None:
        self.last_wakeup = time.monotonic()
        if not self.daemon_wakeup.wake():
            self.timers[self._wake_daemon] = self.last_wakeup + WAKEUP_RETRY_SECONDS

    def _feed_input(self) -> None:
        pipe, before = self.input.pipe, self.input.offset
        waiting = self.input.push()
        if waiting and pipe not in self.handlers:
            self._listen(pipe, self._feed_input, select.POLLOUT)
        elif not waiting and pipe in self.handlers:
            del self.handlers[pipe]
            self.poll.unregister(pipe)
        if self.input.offset != before:
            self._beat()

    def _on_sigterm(self, _number: int, _frame: object) -> None:
        self.terminated = True
        try:
            os.write(self.wakeup_fifo, b"t")
        except BlockingIOError:
            return  # the pipe is full of wake-ups already

    def _check_requests(self) -> None:
        read_available(self.wakeup_fifo, 4096)
        request = unseal(read_file("cancel"))  # a wake-up follows one that is being written
        if request and int(request[0]) >= self.epoch:
            self.epoch = int(request[0])
            self._stop("cancelled", int(request[1]) / 1000, " ".join(request[2:]))
        if self.terminated:
            self._stop("keeper_sigterm", self.orders.grace)
        if self.started:
            self._feed_input()

    def _on_hard_timeout(self) -> None:
        self._stop("hard_timeout", self.orders.grace)

    def _on_idle_timeout(self) -> None:
        due = self.last_output + (self.orders.idle or 0.0)
        if time.monotonic() >= due and self._waits_for_input():
            self._close_input()
            self.timers[self._on_idle_timeout] = due + self.orders.grace
        elif time.monotonic() >= due:
            self._stop("idle_timeout", self.orders.grace)
        else:
            self.timers[self._on_idle_timeout] = due

    def _check_lease(self) -> None:
        """Stop when the lease has been expired for `slack` seconds of awake time.

        After the machine was suspended every lease looks expired until the daemon has run. The
        daemon relies on the end, so a long grace period is shortened, also if the tree is being
        stopped already.
        """
        fields = unseal(read_file(os.fsdecode(self.orders.lease)))
        if fields and int(fields[1]) >= self.epoch:
            self.lease_until, self.epoch = int(fields[0]), int(fields[1])
        left = (self.lease_until - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) / 1e9
        now = time.monotonic()
        if left > 0:
            self.expired_at = 0.0
            self.timers[self._check_lease] = now + min(left, MAX_REST)
            return
        self.expired_at = self.expired_at or now
        expired_for = now - self.expired_at
        if expired_for >= self.orders.slack:
            self._stop("lease_expired", min(self.orders.grace, self.orders.slack / 2))
        else:
            if expired_for >= self.orders.slack / 2 and self._waits_for_input():
                self._close_input()
            rest = min(self.orders.slack - expired_for, LEASE_CHECK_SECONDS)
            self.timers[self._check_lease] = now + rest

    def _waits_for_input(self) -> bool:
        """Whether the program has read all its input and may be waiting for more."""
        if not self.started:
            return False
        self._feed_input()
        return self.input.open and self.input.pipe not in self.handlers

    def _close_input(self) -> None:
        """Close the program's input."""
        if self.handlers.pop(self.input.pipe, None):
            self.poll.unregister(self.input.pipe)
        self.input.close()

    def _stop(self, reason: str, grace: float, detail: str = "") -> None:
        """Start to stop the tree, or shorten the grace period; the first reason is kept."""
        kill_at = time.monotonic() + grace
        if self.reason:
            if self._kill in self.timers:
                self.timers[self._kill] = min(kill_at, self.timers[self._kill])
            return
        self.reason, self.detail = reason, detail
        for alarm in (self._on_hard_timeout, self._on_idle_timeout):
            self.timers.pop(alarm, None)
        self.timers[self._kill] = kill_at
        everyone = self.status is not None or self.orders.term != "main"
        self._command(b"T" if everyone else b"M")
        self._set_state("ending")

    def _kill(self) -> None:
        self.killed = True
        if self.namespace:
            os.kill(self.inner, _signal.SIGKILL)
        else:
            self._command(b"K")
            self.timers[self._force] = time.monotonic() + FORCE_SECONDS

    def _force(self) -> None:
        os.kill(self.inner, _signal.SIGKILL)

    def _reap_init(self) -> None:
        """Reap the init process; then its namespace is empty, or orphans are children here."""
        os.waitpid(self.inner, 0)
        self.reaped = True
        if not self.namespace:
            kill_descendants()
            if os.path.exists("unproven"):
                os.unlink("unproven")
        if self.pipes.status[0] in self.handlers:
            self._read_status()
        if not self.reason:
            self.reason, self.killed = "init_killed", True
        self._close_input()

    def abandon(self) -> None:
        """Kill the tree at once, after an error of the keeper."""
        if not self.reaped:
            os.kill(self.inner, _signal.SIGKILL)
            os.waitpid(self.inner, 0)
        if not self.namespace:
            kill_descendants()


MAX_FD = 1 << 20
SIGKILL = 9
LAST_WAKEUPS = 20
MAX_ERROR_TEXT = 500


def main() -> None:
    """Run a keeper from its first instruction to its exit record."""
    if sys.argv[1] == "--try":
        os._exit(0 if namespaces_work() else 1)
    os.chdir(sys.argv[1])
    if os.path.exists("exit"):  # a daemon has concluded its end already: do not start late
        return
    orders = read_orders(0)
    _detach()
    process = None
    try:
        process = KeeperProcess(orders)
        process.run()
    except BaseException as error:
        if process is not None:
            process.abandon()
        write_exit(orders, process, error)
        raise
    write_exit(orders, process, None)
    for _ in range(LAST_WAKEUPS):
        if process.daemon_wakeup.wake():
            break
        time.sleep(WAKEUP_RETRY_SECONDS)
    os._exit(0)


def _detach() -> None:
    os.closerange(LOCK_FD + 1, MAX_FD)
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.umask(0o077)
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGPIPE", "SIGUSR1", "SIGUSR2", "SIGXFSZ"):
        _signal.signal(getattr(_signal, name), _signal.SIG_IGN)
    set_process_name(b"rota-keeper")
    become_subreaper()


def write_exit(
    orders: KeeperOrders, keeper: KeeperProcess | None, error: BaseException | None
) -> None:
    """Write the exit record into its reserved space, and rename it into place."""
    facts: dict[str, object] = {"name": orders.name.decode(errors="replace"), "nonce": orders.nonce}
    tails = b""
    if keeper is not None:
        keeper.out.sync()
        keeper.err.sync()
        facts |= _exit_facts(keeper)
        tails = keeper.out.tail() + keeper.err.tail()
    if error is not None:
        started = keeper is not None and keeper.started
        facts["reason"] = "keeper_error" if started else "spawn_failed"
        facts["detail"] = f"{type(error).__name__}: {error}"[:MAX_ERROR_TEXT]
    facts |= {"proven": 1, "ended": time.time_ns()}
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = os.open("exit.reserve", flags, 0o600)
    head = to_lines(facts)
    try:
        overwrite(file, head + tails)
    except OSError:  # the disk does not keep its reservation: drop the output tails
        overwrite(file, to_lines(facts | {"out_tail": 0, "err_tail": 0}))
    os.rename("exit.reserve", "exit")
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    os.fsync(folder)


def _exit_facts(keeper: KeeperProcess) -> dict[str, object]:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    facts: dict[str, object] = {
        "reason": keeper.reason,
        "detail": keeper.detail,
        "killed": int(keeper.killed),
        "tree": "pidns" if keeper.namespace else "guard",
        "started": keeper.started,
        "in_offset": keeper.input.offset,
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
        "rss_bytes": usage.ru_maxrss * 1024,
    }
    if keeper.status is not None and keeper.started:
        code = os.waitstatus_to_exitcode(keeper.status)
        facts["signal" if code < 0 else "code"] = abs(code)
    elif keeper.killed:  # killed with the init process, which could not report its status
        facts["signal"] = SIGKILL
    for name, spool in (("out", keeper.out), ("err", keeper.err)):
        facts[f"{name}_size"] = spool.size
        facts[f"{name}_total"] = spool.total
        facts[f"{name}_errno"] = spool.errno
        facts[f"{name}_tail"] = len(spool.tail())
    return facts


if __name__ == "__main__":
    main()
