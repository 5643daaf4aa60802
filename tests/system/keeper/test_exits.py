"""How attempts end: by themselves, by a wish, by a timeout; and that nothing of them is left."""

import os
import signal
from contextlib import suppress

import pytest

from rota.keeper.linux import children
from rota.model.attempts import ExitReason
from rota.model.programs import ResourceLimits
from rota.ports.executor import ProcessTreeMode, StopSignalTarget
from tests.tools.keepers.programs import LEAVING, STRAYS, STUBBORN


def nothing_is_left(attempt):
    attempt.until(lambda: attempt.processes() == [], 2.0)


def test_an_exit_code_and_both_streams_pass_through(scene):
    def body(attempts):
        attempt = attempts.start(["sh", "-c", "echo out; echo err >&2; exit 7"])
        ending = attempt.ending()
        assert (ending.reason, ending.code, ending.signal) == (ExitReason.EXITED, 7, None)
        assert (attempt.out(), attempt.out("err")) == (b"out\n", b"err\n")
        assert (ending.out.size, ending.out.total, ending.err.total) == (4, 4, 4)
        assert ending.tree == attempts.tree
        assert ending.started_at <= ending.ended_at
        assert ending.proven
        assert attempt.pid not in children(os.getpid()), "the keeper is still a zombie"

    scene.play(body)


def test_a_signal_passes_through(scene):
    def body(attempts):
        ending = attempts.start(["sh", "-c", "kill -SEGV $$"]).ending()
        assert (ending.reason, ending.signal) == (ExitReason.SIGNALED, signal.SIGSEGV)

    scene.play(body)


@pytest.mark.parametrize(
    ("argv", "cwd", "detail"),
    [
        (["no-such-program"], "/", "no-such-program: No such file or directory"),
        (["/etc/passwd"], "/", "/etc/passwd: Permission denied"),
        (["sh"], "/no/such/folder", "folder: No such file or directory"),
    ],
)
def test_a_program_that_cannot_begin_says_why(attempts, argv, cwd, detail):
    ending = attempts.start(argv, cwd=cwd).ending()
    assert (ending.reason, ending.detail) == (ExitReason.EXEC_FAILED, detail)
    assert (ending.code, ending.started_at) == (None, None)


def test_daemons_that_a_program_leaves_behind_are_gone(scene):
    def body(attempts):
        attempt = attempts.start(attempts.python(LEAVING))
        ending = attempt.ending(5.0)
        assert (ending.reason, ending.code, ending.proven) == (ExitReason.EXITED, 5, True)
        assert ending.killed
        assert attempt.out() == b"gone\n"
        nothing_is_left(attempt)

    scene.play(body)


def test_a_stubborn_tree_is_cancelled_within_its_grace(scene, stopwatch):
    def body(attempts):
        attempt = attempts.start(attempts.python(STUBBORN))
        attempt.says(b"ready")
        before = stopwatch()
        attempt.cancel(0.5, reason="because I say so")
        ending = attempt.ending()
        assert 0.5 <= stopwatch() - before < 1.5
        assert (ending.reason, ending.detail) == (ExitReason.CANCELLED, "because I say so")
        assert (ending.signal, ending.killed, ending.proven) == (signal.SIGKILL, True, True)
        nothing_is_left(attempt)

    scene.play(body)


POLITE = "trap 'echo bye; exit 9' TERM; echo ready; while :; do sleep 0.05; done"


def test_a_polite_program_says_goodbye(scene):
    def body(attempts):
        attempt = attempts.start(["sh", "-c", POLITE])
        attempt.says(b"ready")
        attempt.cancel(10.0)
        ending = attempt.ending(5.0)
        assert (ending.reason, ending.code, ending.killed) == (ExitReason.CANCELLED, 9, False)
        assert attempt.out().endswith(b"bye\n")

    scene.play(body)


def test_a_second_wish_can_only_hurry(attempts, stopwatch):
    attempt = attempts.start(attempts.python(STUBBORN))
    attempt.says(b"ready")
    attempt.cancel(30.0, reason="first")
    attempt.until(lambda: attempt.look().beat.state == "ending")
    attempt.cancel(0.0, reason="second")
    assert attempt.ending(5.0).detail == "first"


def test_a_wish_with_a_lower_epoch_is_not_heard(attempts):
    attempt = attempts.start(["cat"], keep_stdin_open=True, epoch=7)
    attempt.pids()
    attempt.cancel(0.0, epoch=6)
    from rota.keeper.client import write_input

    write_input(attempt.folder, 0, b"still here\n")
    attempt.says(b"still here\n")
    assert attempt.look().beat.state == "running"
    attempt.cancel(0.0, epoch=8)
    assert attempt.ending().reason is ExitReason.CANCELLED


def test_what_is_cancelled_before_it_begins_never_runs(attempts):
    for _ in range(5):
        attempt = attempts.start(["sh", "-c", "sleep 30"])
        attempt.cancel(0.0)
        ending = attempt.ending(5.0)
        assert ending.reason is ExitReason.CANCELLED


def test_sigterm_to_the_keeper_ends_its_tree(attempts):
    attempt = attempts.start(attempts.python(STUBBORN))
    attempt.says(b"ready")
    os.kill(attempt.pids()[0], signal.SIGTERM)
    assert attempt.ending(5.0).reason is ExitReason.KEEPER_SIGTERM
    nothing_is_left(attempt)


def test_sigterm_is_heard_by_a_keeper_whose_bell_takes_no_more(attempts):
    attempt = attempts.start(attempts.python(STUBBORN))
    attempt.says(b"ready")
    keeper = attempt.pids()[0]
    os.kill(keeper, signal.SIGSTOP)
    bell = os.open(attempt.folder / "bell", os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(bell, b"!" * 4096)
    os.close(bell)
    os.kill(keeper, signal.SIGTERM)
    os.kill(keeper, signal.SIGCONT)
    assert attempt.ending(5.0).reason is ExitReason.KEEPER_SIGTERM


def test_other_signals_do_not_disturb_a_keeper(attempts):
    attempt = attempts.start(["sh", "-c", "echo ready; sleep 0.3; echo end"])
    attempt.says(b"ready")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGPIPE):
        os.kill(attempt.pids()[0], number)
    assert (attempt.ending().code, attempt.out()) == (0, b"ready\nend\n")


def test_a_hard_timeout_ends_a_program_that_talks(scene, stopwatch):
    def body(attempts):
        bounds = ResourceLimits(hard_seconds=0.7, grace_seconds=0.2)
        program = ["sh", "-c", "trap '' TERM; while :; do echo talk; sleep 0.02; done"]
        before = stopwatch()
        ending = attempts.start(program, bounds=bounds).ending(5.0)
        assert 0.9 <= stopwatch() - before < 2.2
        assert (ending.reason, ending.signal) == (ExitReason.HARD_TIMEOUT, signal.SIGKILL)

    scene.play(body)


def test_an_idle_timeout_counts_from_the_last_output(attempts, stopwatch):
    bounds = ResourceLimits(idle_seconds=0.5, grace_seconds=0.2)
    program = ["sh", "-c", "for n in 1 2 3 4 5 6; do echo $n; sleep 0.2; done; sleep 30"]
    ending = attempts.start(program, bounds=bounds).ending(5.0)
    assert stopwatch() >= 1.5
    assert ending.reason is ExitReason.IDLE_TIMEOUT
    assert ending.out.total == 12


def test_an_idle_timeout_is_armed_from_the_start(attempts):
    bounds = ResourceLimits(idle_seconds=0.3, grace_seconds=0.1)
    ending = attempts.start(["sleep", "30"], bounds=bounds).ending(5.0)
    assert ending.reason is ExitReason.IDLE_TIMEOUT


def test_only_the_program_is_asked_when_it_should_pass_the_word_on(attempts):
    child = "trap 'echo child' TERM; echo up; while :; do sleep 0.02; done"
    program = f"trap 'echo main; exit 3' TERM; sh -c \"{child}\" & wait; wait"
    attempt = attempts.start(["sh", "-c", program], term=StopSignalTarget.MAIN)
    attempt.says(b"up")
    attempt.cancel(5.0)
    ending = attempt.ending(4.0)
    assert ending.code == 3
    assert attempt.out().startswith(b"up\nmain\n")


WRAPPED = """
import ctypes, os, signal, sys, time
name = ctypes.CDLL(None).prctl
name(15, sys.argv[1].encode(), 0, 0, 0)
if os.fork() == 0:
    name(15, b"worker", 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"asked\\n"), os._exit(0)))
    os.write(1, b"ready\\n")
    time.sleep(30)
os.wait()
os.write(1, b"wrapper ends\\n")
"""


@pytest.mark.parametrize("wrapper", ["bwrap", "tmux: server"])
def test_a_wrapper_is_not_asked_to_end(attempts, wrapper):
    attempt = attempts.start([attempts.program.python, "-c", WRAPPED, wrapper])
    attempt.says(b"ready")
    attempt.cancel(5.0)
    assert attempt.ending(4.0).code == 0
    assert attempt.out() == b"ready\nasked\nwrapper ends\n"


FORKS = (
    STRAYS
    + """
for _ in range(60):
    stray()
time.sleep(30)
"""
)


def test_more_processes_than_allowed_end_the_attempt(scene):
    def body(attempts):
        bounds = ResourceLimits(processes=20, hard_seconds=2.0, grace_seconds=0.1)
        attempt = attempts.start(attempts.python(FORKS), bounds=bounds)
        ending = attempt.ending(5.0)
        if scene.user == "nobody" and attempts.tree is ProcessTreeMode.PIDNS:
            assert ending.reason is ExitReason.HARD_TIMEOUT  # the kernel refuses the 21st
        else:
            assert ending.reason is ExitReason.TOO_MANY_PROCESSES
        nothing_is_left(attempt)

    scene.play(body)


CHAIN = """
import os, time
end = time.monotonic() + 10
print("ready", flush=True)
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    time.sleep(0.002)
"""


def test_a_chain_of_forks_is_caught(attempts):
    attempt = attempts.start(attempts.python(CHAIN), leftover=0.1)
    attempt.says(b"ready")
    assert attempt.ending(5.0).proven
    nothing_is_left(attempt)


def test_a_fifo_in_the_place_of_its_ending_holds_no_keeper_up(attempts):
    """As a program without walls could leave one: what it says of itself is lost, nobody waits."""
    attempt = attempts.start(["cat"], keep_stdin_open=True)
    attempt.pids()
    (attempt.folder / "exit.reserve").unlink()
    os.mkfifo(attempt.folder / "exit.reserve")
    attempt.cancel(0.0)
    assert attempt.ending(5.0).reason is ExitReason.LOST_KEEPER_DIED
    nothing_is_left(attempt)
