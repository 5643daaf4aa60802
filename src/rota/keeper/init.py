"""The process between keeper and program: first of a PID namespace, or guard of a tree.

It is a fork of the keeper. It starts the program only when the keeper says so, which is after its
own end has been bound to the keeper's and after the keeper has written down who it is. Until then
it holds the lock of the attempt too, because nothing else says that it is there. It waits for the
program and for every orphan, and ends when none is left.

    to the keeper    R           ready
                     A           the program has begun
                     X WHAT NR   it could not begin: what failed, and why
                     S STATUS    it has ended
                     P COUNT     there are more processes than there may be
    from the keeper  G           go
                     T, M        ask everyone, or only the program, to end
                     K           end everyone
                     nothing     the keeper is dead: end everyone
"""

from __future__ import annotations

import os
import resource
import select

from rota.keeper.linux import (
    ask_to_end,
    call_myself,
    descendants,
    die_with_parent,
    end_descendants,
    gather_orphans,
    see_own_processes,
)
from rota.keeper.protocol import LOCK_FD, KeeperOrders

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import NoReturn
else:
    import _signal

COUNT_MILLISECONDS = 200
OF_THE_KEEPER = 2
MORE_LIKELY_TO_BE_KILLED = b"500"
LESS_URGENT = 5
LAST_FD = 1 << 20
EXEC_FAILED = 127
ENOENT = 2
EINVAL = 22
DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"


class InitPipes:
    """The five pipes between keeper, inner process and program: (read end, write end)."""

    def __init__(self) -> None:
        self.command = os.pipe()
        self.status = os.pipe()
        self.stdin = os.pipe()
        self.stdout = os.pipe()
        self.stderr = os.pipe()

    def keeper_ends(self) -> tuple[int, ...]:
        """Return the ends that the keeper uses."""
        return (self.command[1], self.stdin[1], *self.read_ends())

    def read_ends(self) -> tuple[int, int, int]:
        """Return the ends that the keeper reads."""
        return self.status[0], self.stdout[0], self.stderr[0]

    def program_ends(self) -> tuple[int, int, int]:
        """Return the ends that become the program's standard input, output and error."""
        return self.stdin[0], self.stdout[1], self.stderr[1]

    def inner_ends(self) -> tuple[int, ...]:
        """Return the ends that the keeper must not hold."""
        return (self.command[0], self.status[1], *self.program_ends())


class InitProcess:
    """The inner process, from the fork to its end."""

    def __init__(
        self, orders: KeeperOrders, pipes: InitPipes, *, namespace: bool, own_users: bool
    ) -> None:
        self.orders = orders
        self.pipes = pipes
        self.namespace = namespace
        self.own_users = own_users
        self.program = 0

    def live(self) -> NoReturn:
        """Do everything; the process ends here."""
        for end in self.pipes.keeper_ends():
            os.close(end)
        _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)
        if self.namespace:
            call_myself(b"rota-init")
            die_with_parent()
        else:
            call_myself(b"rota-guard")
            gather_orphans()
        self._tell("R")
        if os.read(self.pipes.command[0], 1) == b"G":
            os.close(LOCK_FD)  # or a dead keeper would look alive
            self._start()
            self._watch()
        self._proven()
        os._exit(0)

    def _tell(self, line: str) -> None:
        try:
            os.write(self.pipes.status[1], line.encode() + b"\n")
        except BrokenPipeError:
            return  # the keeper is dead; the command pipe says so too

    def _start(self) -> None:
        if self.namespace:
            try:
                see_own_processes()
            except OSError as error:
                self._tell(f"X namespace {error.errno}")
                os._exit(0)
        heard, said = os.pipe()
        me = os.getpid()
        self.program = os.fork()
        if self.program == 0:
            self._become_program(said, me)
        os.close(said)
        for end in self.pipes.program_ends():
            os.close(end)
        failed = os.read(heard, 100).decode()  # nothing at all once the program has begun
        os.close(heard)
        self._tell(f"X {failed}" if failed else "A")

    def _watch(self) -> None:
        woken, waker = os.pipe()
        for end in (woken, waker):
            os.set_blocking(end, False)
        _signal.signal(_signal.SIGCHLD, lambda _number, _frame: None)
        _signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        poll.register(self.pipes.command[0], select.POLLIN)
        rest = COUNT_MILLISECONDS if self.orders.processes else None
        while self._reap():
            ready = {end for end, _ in poll.poll(rest)}
            if woken in ready:
                os.read(woken, 4096)
            if self.pipes.command[0] in ready:
                self._obey(os.read(self.pipes.command[0], 64))
            if rest:
                self._count()

    def _reap(self) -> bool:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self._reaped(pid, status)

    def _reaped(self, pid: int, status: int) -> None:
        if pid == self.program:
            self.program = -1
            self._tell(f"S {status}")

    def _obey(self, commands: bytes) -> None:
        if not commands or b"K" in commands:
            end_descendants(self._reaped)
        elif b"T" in commands:
            ask_to_end(os.getpid())
        elif b"M" in commands and self.program > 0:
            ask_to_end(os.getpid(), only=self.program)

    def _count(self) -> None:
        count = len(descendants(os.getpid()))
        if count > self.orders.processes:
            self._tell(f"P {count}")

    def _proven(self) -> None:
        if not self.namespace:
            try:
                os.unlink("unproven")
            except OSError:
                return  # then it stays unproven

    def _become_program(self, said: int, inner: int) -> NoReturn:
        step = "start"
        try:
            os.setsid()
            for number, end in enumerate((*self.pipes.program_ends(), said)):
                os.dup2(end, number, inheritable=number < LOCK_FD)
            os.closerange(LOCK_FD + 1, LAST_FD)
            said = LOCK_FD
            _default_signals()
            if not self.namespace:
                die_with_parent()
                if os.getppid() != inner:
                    os._exit(EXEC_FAILED)
            step = "limits"
            _limit(self.orders, own_users=self.own_users)
            step = "folder"
            os.chdir(self.orders.cwd)
            step = "program"
            _execute(self.orders)
        except BaseException as error:  # noqa: BLE001 - a fork never returns into its parent's code
            os.write(said, f"{step} {getattr(error, 'errno', None) or EINVAL}".encode())
        finally:
            os._exit(EXEC_FAILED)


def _execute(orders: KeeperOrders) -> None:
    program = orders.argv[0]
    missing: OSError = FileNotFoundError(ENOENT, "not in PATH")
    if b"/" in program:
        os.execve(program, orders.argv, orders.env)
    for folder in orders.env.get(b"PATH", DEFAULT_PATH).split(b":"):
        try:
            os.execve(os.path.join(folder or b".", program), orders.argv, orders.env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            missing = error
    raise missing


def _default_signals() -> None:
    for number in range(1, _signal.NSIG):
        try:
            _signal.signal(number, _signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # SIGKILL, SIGSTOP, and those the C library keeps
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def _limit(orders: KeeperOrders, *, own_users: bool) -> None:
    wanted = {
        resource.RLIMIT_AS: orders.memory,
        resource.RLIMIT_NOFILE: orders.open_files,
        resource.RLIMIT_FSIZE: orders.file_bytes,
        # counted for the whole user elsewhere, so that other work of theirs would count
        resource.RLIMIT_NPROC: orders.processes and own_users and orders.processes + OF_THE_KEEPER,
    }
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if orders.usual_files:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (orders.usual_files, hard))
    for name, most in wanted.items():
        if most:
            hard = resource.getrlimit(name)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)  # noqa: PLW2901
            resource.setrlimit(name, (most, most))
    _note("/proc/self/oom_score_adj", MORE_LIKELY_TO_BE_KILLED)
    _be_less_urgent()


def _be_less_urgent() -> None:
    os.nice(LESS_URGENT)
    try:
        _note("/proc/self/autogroup", b"%d" % LESS_URGENT)
    except OSError:
        return  # sessions are not scheduled as groups, or too many changed a moment ago


def _note(path: str, value: bytes) -> None:
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, value)
    finally:
        os.close(file)
