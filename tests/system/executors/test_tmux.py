"""Panes of the real tmux."""

import contextlib
import hashlib
import os
import pty
import re
import select
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

from rota.errors import Invalid, NotFound, Unavailable
from rota.executors.process.executor import ProcessExecutor
from rota.executors.sandbox.executor import SandboxExecutor
from rota.executors.shared.resource_limits import find_hierarchy
from rota.executors.tmux.executor import Pane, TmuxExecutor
from rota.keeper.build import Interpreter
from rota.model.programs import Program, ResourceLimits

PYTHON = "/usr/bin/python3"
PATIENCE = 20.0


def a_tmux(ground, **changes):
    python = Interpreter.running()
    plain = ProcessExecutor(python, hierarchy=find_hierarchy(), certain_kill=False)
    walled = SandboxExecutor(python, ground.mounts, hierarchy=find_hierarchy())
    return TmuxExecutor(python, **({"plain": plain, "walled": walled} | changes))


@pytest.fixture
def tmux(ground):
    executor = a_tmux(ground)
    missing = [each for each in executor.check() if each.needed]
    if missing:
        pytest.skip(f"no panes here: {missing[0]}")
    yield executor
    socket = ground.state / "tmux.sock"
    subprocess.run(["tmux", "-N", "-S", socket, "kill-server"], capture_output=True, check=False)


@pytest.fixture
def pane(ground):
    return Pane(str(ground.state))


@contextlib.contextmanager
def begun(executor, ground, *argv, stdin=b"", **changes):
    """A program in a pane, running; ended with the test."""
    command = Program(argv=argv, cwd=str(ground.folder), stdin=stdin)
    spec = executor.wrap(command, ground.room(isolated=False, **changes))
    told = spec.command
    child = subprocess.Popen(
        told.argv,
        env=dict(told.env),
        cwd=told.cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield child
    finally:
        Pane(str(ground.state))._ask("kill-server")
        child.kill()
        child.communicate()
        executor.sweep(spec)


def said(child, text):
    """Read what comes out until a text has come."""
    taken = b""
    while text not in taken:
        ready, _, _ = select.select([child.stdout], [], [], PATIENCE)
        assert ready, taken
        chunk = os.read(child.stdout.fileno(), 65536)
        assert chunk, taken
        taken += chunk
    return taken


@pytest.mark.parametrize("isolated", [False, True], ids=["plain", "walled"])
def test_what_a_program_says_and_its_exit_code_come_through(tmux, ground, isolated, request):
    if isolated:
        request.getfixturevalue("sandbox")
    text = 'test -t 1 && stty size && echo "$1" && echo wrong >&2; exit 4'
    done = ground.run(tmux, "/bin/sh", "-c", text, "sh", "a  $HOME 'b' ; é", isolated=isolated)
    assert done.stdout.decode().splitlines() == ["50 200", "a  $HOME 'b' ; é", "wrong"]
    assert done.returncode == 4
    assert not (ground.state / "pane.words").exists()


def test_a_program_that_died_of_a_signal_is_seen_to(tmux, ground):
    done = ground.run(tmux, "/bin/sh", "-c", "kill -9 $$", isolated=False, bounds=ResourceLimits())
    assert done.returncode == -signal.SIGKILL


def test_long_words_reach_the_program(tmux, ground):
    """tmux itself takes 16 KiB of words."""
    done = ground.run(
        tmux, PYTHON, "-c", "import sys; print(len(sys.argv[1]))", "x" * 100_000, isolated=False
    )
    assert done.stdout.strip() == b"100000"


def test_input_ends_as_it_would_in_a_pipe(tmux, ground):
    words = (PYTHON, "-c", "import sys; print(len(sys.stdin.read()), sys.stdout.isatty())")
    done = ground.run(tmux, *words, stdin=b"y" * 300_000, isolated=False)
    assert done.stdout.strip() == b"300000 True"


def test_a_program_that_cannot_be_started_says_so(tmux, ground):
    done = ground.run(tmux, "/nonexistent", isolated=False)
    assert done.returncode == 126
    assert b"/nonexistent: No such file" in done.stdout


def test_the_last_words_come_through_though_a_stray_holds_the_terminal(tmux, ground):
    os.mkfifo(ground.folder / "stray")
    text = "(trap '' HUP; read x <stray) & seq 1 20000; exit 3"
    done = ground.run(tmux, "/bin/sh", "-c", text, isolated=False)
    assert done.stdout.split()[-1] == b"20000"
    assert done.returncode == 3
    with contextlib.suppress(OSError):  # gone with its control group, where there is one
        held = os.open(ground.folder / "stray", os.O_WRONLY | os.O_NONBLOCK)
        os.write(held, b"end\n")
        os.close(held)


def test_a_living_pane_is_captured_and_typed_into(tmux, ground, pane):
    with begun(
        tmux, ground, "/bin/sh", "-c", "printf 'name? '; read x; echo got:$x; read y"
    ) as child:
        said(child, b"name? ")
        until = time.monotonic() + PATIENCE
        while "name?" not in pane.capture():
            assert time.monotonic() < until
        pane.send("a; $(b)\x1b]52;c;eA==\x07 \x03Ä")
        assert (
            "got:a; $(b)]52;c;eA== Ä"
            in said(child, "Ä\r\n".encode() + b"got:a; $(b)]52;c;eA== \xc3\x84").decode()
        )
    assert pane.capture() == ""
    with pytest.raises(NotFound, match="the program has ended"):
        pane.send("x")


@contextlib.contextmanager
def attached(pane, text, *, typing=False):
    """Somebody in front of a pane who has seen a text, and from then on only types."""
    number, terminal = pty.fork()
    if number == 0:
        os.environ["TERM"] = "xterm"
        argv = pane.attach_argv(typing=typing)
        os.execv(argv[0], argv)  # noqa: S606
    shown = b""
    until = time.monotonic() + PATIENCE
    while text not in shown and time.monotonic() < until:
        shown += os.read(terminal, 65536)
    assert text in shown
    try:
        yield terminal
    finally:
        os.kill(number, signal.SIGTERM)
        with contextlib.suppress(OSError):
            while os.read(terminal, 65536):
                pass
        os.waitpid(number, 0)
        os.close(terminal)


def test_a_pane_can_be_watched_without_touching_it(tmux, ground, pane):
    with begun(tmux, ground, "/bin/sh", "-c", "printf 'seen by all'; read x; echo typed") as child:
        said(child, b"seen by all")
        with attached(pane, b"seen by all") as terminal:
            os.write(terminal, b"keys\n")
            assert b"typed" not in pane.capture().encode()


@pytest.fixture
def go(ground):
    """Let a program go on that waits for it."""
    os.mkfifo(ground.folder / "go")
    return lambda: (ground.folder / "go").write_text("on\n")


def test_what_nobody_reads_does_not_hold_up_the_program_and_is_read_later(tmux, ground, pane, go):
    text = "echo begun; read x <go; seq 1 20000; echo on; head -n 2000 | md5sum"
    with begun(tmux, ground, "/bin/sh", "-c", text) as child:
        said(child, b"begun")
        pasted = "".join(f"line {n} of what somebody pasted\n" for n in range(2000))
        pane.send(pasted, enter=False)
        said(child, b"line 50 of")
        go()
        said(child, b"on\r\n")
        said(child, hashlib.md5(pasted.encode(), usedforsecurity=False).hexdigest().encode())


def test_nobody_in_front_of_a_pane_stops_the_program(tmux, ground, pane, go):
    with begun(
        tmux, ground, "/bin/sh", "-c", "echo begun; read x <go; seq 1 20000; echo over"
    ) as child:
        said(child, b"begun")
        with attached(pane, b"begun", typing=True) as terminal:
            os.write(terminal, b"\x13and reads no more\r")
            said(child, b"and reads no more")
            go()
            said(child, b"over")


def test_a_tmux_that_hangs_does_not_stop_the_program(tmux, ground, pane, go):
    with begun(
        tmux, ground, "/bin/sh", "-c", "echo begun; read x <go; seq 1 20000; echo over; cat"
    ) as child:
        said(child, b"begun")
        server = int(pane._ask("display-message", "-p", "#{pid}").stdout)
        os.kill(server, signal.SIGSTOP)
        try:
            go()
            said(child, b"over")
        finally:
            os.kill(server, signal.SIGCONT)
        pane.send("seen again")
        until = time.monotonic() + PATIENCE
        while "seen again" not in pane.capture():
            assert time.monotonic() < until


def test_nobody_else_can_reach_the_server(tmux, ground):
    with begun(tmux, ground, "/bin/sh", "-c", "echo up; read x") as child:
        said(child, b"up")
        assert stat.S_IMODE((ground.state / "tmux.sock").stat().st_mode) & 0o077 == 0
        options = subprocess.run(
            [*Pane(str(ground.state))._words("show-options", "-s", "set-clipboard")],
            capture_output=True,
            check=True,
        )
        assert options.stdout == b"set-clipboard off\n"
        passing = Pane(str(ground.state))._ask("show-options", "-gw", "allow-passthrough")
        assert passing.stdout == b"allow-passthrough off\n"


def test_a_state_folder_that_others_may_enter_is_refused(tmux, ground):
    ground.state.chmod(0o755)
    done = ground.run(tmux, "/bin/true", isolated=False)
    assert (done.returncode, b"chmod 700" in done.stderr) == (126, True)


def test_a_program_that_ends_its_own_server_is_still_heard(tmux, ground):
    text = "tmux -S $1/tmux.sock kill-server; echo still here; exit 6"
    done = ground.run(tmux, "/bin/sh", "-c", text, "sh", str(ground.state), isolated=False)
    assert b"still here" in done.stdout
    assert done.returncode == 6


def test_a_pane_that_is_lost_is_no_program_that_cannot_be_started(tmux, ground):
    text = "kill -9 $PPID; sleep 60"
    done = ground.run(tmux, "/bin/sh", "-c", text, isolated=False, bounds=ResourceLimits())
    assert (done.returncode, done.stderr) == (
        125, b"tmux: the pane ended before the program did\n",
    )  # fmt: skip


@pytest.fixture
def small_disk(ground):
    """A state folder with room for a few words."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(ground.state)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no small disk can be mounted here")
    yield
    subprocess.run(["umount", "--lazy", str(ground.state)], check=True)


def test_how_a_program_ended_is_known_on_a_full_disk(small_disk, tmux, ground):
    text = "cat /dev/zero >$1/full; exit 5"
    words = ("/bin/sh", "-c", text, "sh", str(ground.state))
    done = ground.run(tmux, *words, isolated=False, bounds=ResourceLimits())
    assert done.returncode == 5, done.stderr


def test_a_flood_fills_nobodys_memory(tmux, ground):
    megabytes = 48
    with begun(
        tmux, ground, "/bin/sh", "-c", f"head -c {megabytes}000000 /dev/zero | tr '\\0' x"
    ) as child:
        taken, most = 0, 0
        while chunk := os.read(child.stdout.fileno(), 1 << 20):
            taken += len(chunk)
            if taken < 30_000_000:
                most = max(most, *map(held_by, with_words(str(ground.state))), 0)
        assert taken == megabytes * 1_000_000
        assert most < 40 * 1024


def with_words(text):
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if text.encode() in (folder / "cmdline").read_bytes():
                yield folder


def held_by(folder):
    """Return the KiB of memory a process holds."""
    with contextlib.suppress(OSError):
        found = re.search(r"VmRSS:\s+(\d+)", (folder / "status").read_text())
        return int(found[1]) if found else 0
    return 0


def test_no_attack_works_behind_walls_in_a_pane(tmux, sandbox, attacked, host):
    host["socket"] = f"{host['state']}/tmux.sock"
    assert attacked(tmux) == {}


TYPING = """
import errno, fcntl, os
for path in ("/dev/tty", "/proc/self/fd/1"):
    try:
        fcntl.ioctl(os.open(path, os.O_RDWR | os.O_NOCTTY), 0x5412, b"#")
        print(path, "typed")
    except OSError as fault:
        print(path, errno.errorcode[fault.errno])
"""


def test_a_program_behind_walls_types_nothing_into_the_terminal(tmux, sandbox, ground):
    done = ground.run(tmux, PYTHON, "-c", TYPING)
    assert done.stdout.decode().splitlines() == ["/dev/tty ENXIO", "/proc/self/fd/1 EPERM"]
    plain = ground.run(tmux, PYTHON, "-c", TYPING, isolated=False)  # where it has a terminal
    assert b"/dev/tty ENXIO" not in plain.stdout


def test_without_walls_nothing_isolated_runs(ground, tmp_path):
    bare = SandboxExecutor(Interpreter.running(), ground.mounts, search_path=str(tmp_path))
    with pytest.raises(Unavailable, match="bubblewrap"):
        a_tmux(ground, walled=bare).wrap(Program(argv=["/bin/true"]), ground.room())


def test_an_old_or_missing_tmux_is_refused(ground, tmp_path):
    executor = a_tmux(ground, search_path=str(tmp_path))
    with pytest.raises(Unavailable, match="install the package tmux"):
        executor.wrap(Program(argv=["/bin/true"]), ground.room(isolated=False))
    (tmp_path / "tmux").write_text("#!/bin/sh\necho tmux 3.2a\n")
    (tmp_path / "tmux").chmod(0o755)
    assert "tmux 3.3" in [each.what for each in executor.check()]


def test_a_state_folder_too_deep_for_a_socket_is_refused(ground):
    room = ground.room(isolated=False, state="/" + "x" * 100)
    with pytest.raises(Invalid, match="shorter path"):
        a_tmux(ground).wrap(Program(argv=["/bin/true"]), room)
