"""The keeper itself: one thread, one loop over pipes and alarms, one ending at the end.

    starting -> running -> ending -> ended

It runs until the tree it holds is empty. Whatever wants it to end (the program's own end, a
timeout, a cancellation, a lease nobody renews) first asks the tree politely, then, after a grace,
ends it for certain. Its lock is released last, by its death: a free lock means that nobody keeps
the attempt, and that whatever ending there is will not change.
"""

from __future__ import annotations

import os
import select
import sys
import time

from rota.executors.kit.keeper.inner import Inner, Pipes
from rota.executors.kit.keeper.kernel import enter_pid_namespace
from rota.executors.kit.keeper.orders import Orders
from rota.executors.kit.keeper.processes import end_descendants, start_time
from rota.executors.kit.keeper.spool import CHUNK_BYTES, Feed, Ringer, Spool, read_now
from rota.executors.kit.keeper.words import as_lines, read_file, seal, unseal, write_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
else:
    import _signal

LONGEST_REST = 60.0
RING_SECONDS = 0.005
FULL_RING_SECONDS = 0.05
FORCE_SECONDS = 1.0
DRAIN_SECONDS = 2.0
LEASE_LOOK_SECONDS = 0.2


class Keeper:
    """One attempt, from the fork of its inner process to its ending."""

    def __init__(self, orders: Orders) -> None:
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
        self.pipes = Pipes()
        self.namespace, own_users = self._namespace()
        self.inner = os.fork()
        if self.inner == 0:
            try:
                Inner(orders, self.pipes, namespace=self.namespace, own_users=own_users).live()
            except BaseException:  # noqa: BLE001 - a fork never returns into its parent's code
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(1)
        for end in self.pipes.inner_ends():
            os.close(end)
        for end in self.pipes.read_ends():  # whoever writes may take it back before it is read
            os.set_blocking(end, False)
        self.told = b""
        self.out = Spool("out", orders.cap)
        self.err = Spool("err", orders.cap)
        self.feed = Feed(self.pipes.stdin[1])
        self.ringer = Ringer(orders.wake, orders.name)
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
        rest = min((at - now for at in self.alarms.values()), default=LONGEST_REST)
        for end, _ in self.poll.poll(max(0, int(min(rest, LONGEST_REST) * 1000) + 1)):
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

    def _spool(self, spool: Spool, end: int) -> None:
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
            self.alarms[self._mind_lease] = now + min(left, LONGEST_REST)
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
