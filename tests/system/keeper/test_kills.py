"""Whoever of keeper, inner process and program is killed: one ending, and nobody survives."""

import os
import signal
import time
from dataclasses import replace

import pytest

from rota.keeper.client import KeeperAlive, KeeperEnded, _spawn, kill_keeper, new_identity, probe
from rota.keeper.linux import children, program_name, start_time
from rota.keeper.protocol import pack, read_file
from rota.model.attempts import ExitReason
from rota.ports.executor import ProcessTreeMode
from tests.tools.keepers.programs import STUBBORN

INNER_NAMES = {"rota-init", "rota-guard"}


def stubborn(attempts):
    attempt = attempts.start(attempts.python(STUBBORN))
    attempt.says(b"ready")
    return attempt, *attempt.pids()[:2]


def kill(*pids):
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_the_tree_dies_with_its_keeper(scene):
    def body(attempts):
        attempt, keeper, _ = stubborn(attempts)
        kill(keeper)
        ending = attempt.ending(5.0)
        assert (ending.reason, ending.proven) == (ExitReason.LOST_KEEPER_DIED, True)
        assert ending.out.size == len(b"ready\n")
        assert attempt.processes() == []

    scene.play(body)


def test_the_tree_dies_with_its_inner_process(scene):
    def body(attempts):
        attempt, _, inner = stubborn(attempts)
        kill(inner)
        ending = attempt.ending(5.0)
        assert (ending.reason, ending.proven) == (ExitReason.INIT_KILLED, True)
        attempt.until(lambda: attempt.processes() == [], 1.0)

    scene.play(body)


def test_the_tree_dies_with_both(scene):
    def body(attempts):
        attempt, keeper, inner = stubborn(attempts)
        kill(keeper, inner)
        ending = attempt.ending(10.0)
        assert ending.reason is ExitReason.LOST_KEEPER_DIED
        assert ending.proven == (attempts.tree is ProcessTreeMode.PIDNS)
        assert attempt.processes() == []
        if attempts.tree is ProcessTreeMode.GUARD:
            assert ending.detail[:12] in {
                "3 processes ",
                "4 processes ",
            }  # the program may be dead

    scene.play(body)


def test_a_stopped_keeper_can_be_killed(scene):
    def body(attempts):
        attempt, keeper, _ = stubborn(attempts)
        os.kill(keeper, signal.SIGSTOP)
        kill(keeper)
        assert attempt.ending(5.0).proven

    scene.play(body)


def test_a_keeper_that_is_stopped_can_be_told_by_its_beat_and_killed(attempts):
    attempt, keeper, _ = stubborn(attempts)
    os.kill(keeper, signal.SIGSTOP)
    seen = attempt.look()
    assert (seen.pid, seen.beat.state) == (keeper, "running")
    assert kill_keeper(seen)
    assert attempt.ending(5.0).proven
    assert not kill_keeper(seen)


def test_a_stopped_inner_process_does_not_delay_the_end(scene, stopwatch):
    def body(attempts):
        attempt, _, inner = stubborn(attempts)
        os.kill(inner, signal.SIGSTOP)
        before = stopwatch()
        attempt.cancel(0.3)
        assert attempt.ending(5.0).proven
        assert stopwatch() - before < 2.3

    scene.play(body)


def test_a_guard_that_was_stopped_when_its_keeper_died_is_woken(scene):
    def body(attempts):
        attempt, keeper, inner = stubborn(attempts)
        os.kill(inner, signal.SIGSTOP)
        os.kill(keeper, signal.SIGKILL)
        assert attempt.ending(5.0).proven
        assert attempt.processes() == []

    scene.play(body)


def test_a_program_that_kills_its_parent_ends_only_itself(attempts):
    program = "import os, signal, time\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(0.3)\n"
    attempt = attempts.start(attempts.python(program))
    ending = attempt.ending(5.0)
    expected = (
        ExitReason.EXITED if attempts.tree is ProcessTreeMode.PIDNS else ExitReason.INIT_KILLED
    )
    assert (ending.reason, ending.proven) == (expected, True)


def test_a_keeper_killed_while_it_starts_leaves_nobody(scene):
    """The instants are spread over the first 35 ms, in which everything is set up."""

    def body(attempts):
        ran = never = 0
        for number in range(36):
            attempt = attempts.start(attempts.python(STUBBORN))
            time.sleep(number / 1000)
            os.kill(attempt.pid, signal.SIGKILL)
            ending = attempt.ending(5.0)
            assert ending.proven, ending
            assert attempt.processes() == []
            if ending.reason is ExitReason.LOST_NEVER_STARTED:
                never += 1
                assert not (attempt.folder / "keeper").exists()
            else:
                ran += 1
            assert attempt.pid not in children(os.getpid()), "it is still a zombie"
        assert never, "no keeper was caught before it had begun"

    scene.play(body)


def held_before_its_introduction(attempts):
    """An attempt whose keeper has its inner process, and hangs where it opens its beat."""
    gate, wrapper = attempts.home / "gate", attempts.home / "python"
    os.mkfifo(gate)
    python = attempts.program.python
    wrapper.write_text(
        f'#!/bin/sh\n[ "$4" = --try ] || read -r _ < "{gate}"\nexec "{python}" "$@"\n'
    )
    wrapper.chmod(0o700)
    attempts.program = replace(attempts.program, python=str(wrapper))
    attempt = attempts.start(attempts.python(STUBBORN))
    (attempt.folder / "beat").unlink()
    os.mkfifo(attempt.folder / "beat")
    gate.write_text("go\n")
    attempt.until(lambda: {program_name(pid) for pid in children(attempt.pid)} & INNER_NAMES)
    (inner,) = children(attempt.pid)
    return attempt, inner


def is_stopped(pid):
    return b") T " in read_file(f"/proc/{pid}/stat")


def test_nobody_is_said_to_be_dead_while_an_inner_process_lives(scene):
    """A stopped guard outlives its keeper as one does that the machine is too busy to run."""

    def body(attempts):
        attempt, inner = held_before_its_introduction(attempts)
        os.kill(inner, signal.SIGSTOP)
        attempt.until(lambda: is_stopped(inner))
        os.kill(attempt.pid, signal.SIGKILL)
        attempt.until(lambda: not start_time(attempt.pid))
        if attempts.tree is ProcessTreeMode.GUARD:
            assert isinstance(attempt.look(), KeeperAlive)
            os.kill(inner, signal.SIGCONT)
        ending = attempt.ending(5.0)
        assert (ending.reason, ending.proven) == (ExitReason.LOST_NEVER_STARTED, True)
        assert attempt.processes() == []

    scene.play(body)


def test_an_attempt_of_an_earlier_boot_is_lost_without_looking_at_any_process(attempts):
    attempt = attempts.start(["true"])
    attempt.ending()
    (attempt.folder / "exit").unlink()
    earlier = replace(attempt.identity, boot="another")
    attempt.until(lambda: isinstance(probe(attempt.folder, earlier), KeeperEnded))
    ending = probe(attempt.folder, earlier).ending
    assert (ending.reason, ending.proven) == (ExitReason.LOST_REBOOT, True)
    assert probe(attempt.folder, earlier).ending == ending


def test_an_attempt_without_a_folder_was_never_started(attempts):
    ending = probe(attempts.home / "nowhere", new_identity("nowhere")).ending
    assert ending.reason is ExitReason.LOST_NEVER_STARTED


def test_a_keeper_never_runs_after_the_verdict(attempts):
    attempt = attempts.start(["true"])
    attempt.ending()
    attempt.until(lambda: attempt.processes() == [])
    lock = os.open(attempt.folder / "lock", os.O_RDWR)
    before = (attempt.folder / "exit").read_bytes()
    pid = _spawn(attempt.folder, attempts.program, attempt.identity.name, pack([]), lock)
    os.close(lock)
    assert os.waitpid(pid, 0)[1] == 0
    assert (attempt.folder / "exit").read_bytes() == before


def test_a_folder_is_used_once(attempts):
    attempt = attempts.start(["true"])
    attempt.ending()
    with pytest.raises(FileExistsError):
        attempt.folder.mkdir()
