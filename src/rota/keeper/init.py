"""The init process between keeper and program: first of a PID namespace, or guard of a tree.

It is forked by the keeper. It starts the program only on the keeper's command, which comes after
its own end has been tied to the keeper's and after the keeper has recorded itself. Until then it
holds the lock of the attempt as well, because nothing else shows that it exists. It reaps the
program and all orphans, and exits when none is left.

    to the keeper    R           ready
                     A           the program was started
                     X WHAT NR   the program could not be started: the step, and the errno
                     S STATUS    the program has ended
                     P COUNT     there are more processes than allowed
    from the keeper  G           start the program
                     T, M        send SIGTERM to all processes, or only to the program
                     K           kill all processes
                     end of file the keeper is dead: kill all processes
"""

from __future__ import annotations

import os
import resource
import select

from rota.keeper.linux import (
    become_subreaper,
    descendants,
    die_with_parent,
    kill_descendants,
    mount_own_proc,
    set_process_name,
    terminate_descendants,
)
from rota.keeper.protocol import LOCK_FD, KeeperOrders

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import NoReturn
else:
    import _signal

COUNT_MILLISECONDS = 200
KEEPER_PROCESSES = 2
OOM_SCORE = b"500"
NICENESS = 5
MAX_PROGRAM_FD = 1 << 20
EXEC_FAILED = 127
ENOENT = 2
EINVAL = 22
DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"


class InitPipes:
    """The five pipes between keeper, init process and program: (read end, write end)."""

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
    """The init process, from its fork to its exit."""

    def __init__(
        self, orders: KeeperOrders, pipes: InitPipes, *, namespace: bool, own_users: bool
    ) -> None:
        self.orders = orders
        self.pipes = pipes
        self.namespace = namespace
        self.own_users = own_users
        self.program = 0

    def run(self) -> NoReturn:
        """Run the init process; never returns."""
        for end in self.pipes.keeper_ends():
            os.close(end)
        _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)
        if self.namespace:
            set_process_name(b"rota-init")
            die_with_parent()
        else:
            set_process_name(b"rota-guard")
            become_subreaper()
        self._send("R")
        if os.read(self.pipes.command[0], 1) == b"G":
            os.close(LOCK_FD)  # otherwise a dead keeper would seem alive
            self._start()
            self._watch()
        self._mark_proven()
        os._exit(0)

    def _send(self, line: str) -> None:
        try:
            os.write(self.pipes.status[1], line.encode() + b"\n")
        except BrokenPipeError:
            return  # the keeper is dead, which the command pipe reports too

    def _start(self) -> None:
        if self.namespace:
            try:
                mount_own_proc()
            except OSError as error:
                self._send(f"X namespace {error.errno}")
                os._exit(0)
        read_end, write_end = os.pipe()
        me = os.getpid()
        self.program = os.fork()
        if self.program == 0:
            self._become_program(write_end, me)
        os.close(write_end)
        for end in self.pipes.program_ends():
            os.close(end)
        failed = os.read(read_end, 100).decode()  # empty once exec has closed the pipe
        os.close(read_end)
        self._send(f"X {failed}" if failed else "A")

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
                self._handle_commands(os.read(self.pipes.command[0], 64))
            if rest:
                self._check_process_count()

    def _reap(self) -> bool:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self._on_reaped(pid, status)

    def _on_reaped(self, pid: int, status: int) -> None:
        if pid == self.program:
            self.program = -1
            self._send(f"S {status}")

    def _handle_commands(self, commands: bytes) -> None:
        if not commands or b"K" in commands:
            kill_descendants(self._on_reaped)
        elif b"T" in commands:
            terminate_descendants(os.getpid())
        elif b"M" in commands and self.program > 0:
            terminate_descendants(os.getpid(), only=self.program)

    def _check_process_count(self) -> None:
        count = len(descendants(os.getpid()))
        if count > self.orders.processes:
            self._send(f"P {count}")

    def _mark_proven(self) -> None:
        if not self.namespace:
            try:
                os.unlink("unproven")
            except OSError:
                return  # the tree stays unproven

    def _become_program(self, error_pipe: int, inner: int) -> NoReturn:
        step = "start"
        try:
            os.setsid()
            for number, end in enumerate((*self.pipes.program_ends(), error_pipe)):
                os.dup2(end, number, inheritable=number < LOCK_FD)
            os.closerange(LOCK_FD + 1, MAX_PROGRAM_FD)
            error_pipe = LOCK_FD
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
            os.write(error_pipe, f"{step} {getattr(error, 'errno', None) or EINVAL}".encode())
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
            continue  # SIGKILL, SIGSTOP, and signals used by the C library
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def _limit(orders: KeeperOrders, *, own_users: bool) -> None:
    limits = {
        resource.RLIMIT_AS: orders.memory,
        resource.RLIMIT_NOFILE: orders.open_files,
        resource.RLIMIT_FSIZE: orders.file_bytes,
        # without a user namespace it counts all processes of the user
        resource.RLIMIT_NPROC: orders.processes
        and own_users
        and orders.processes + KEEPER_PROCESSES,
    }
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if orders.usual_files:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (orders.usual_files, hard))
    for name, limit in limits.items():
        if limit:
            hard = resource.getrlimit(name)[1]
            limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)  # noqa: PLW2901
            resource.setrlimit(name, (limit, limit))
    _write_setting("/proc/self/oom_score_adj", OOM_SCORE)
    _lower_priority()


def _lower_priority() -> None:
    os.nice(NICENESS)
    try:
        _write_setting("/proc/self/autogroup", b"%d" % NICENESS)
    except OSError:
        return  # autogroups are disabled, or changed too often just now


def _write_setting(path: str, value: bytes) -> None:
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, value)
    finally:
        os.close(file)
