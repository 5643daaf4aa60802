"""What the daemon's side refuses and promises before any process is started."""

import fcntl
import os
import resource
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest

from rota.errors import Invalid
from rota.keeper.build import KeeperBinary
from rota.keeper.client import (
    NANOSECONDS,
    KeeperAlive,
    _orders_for,
    boot_time,
    find_exit_record,
    new_identity,
    probe,
    read_exit_record,
    read_input,
    read_spool,
    request_cancel,
    start_keeper,
    wake_keeper_pipe,
    write_exit_record,
    write_input,
)
from rota.keeper.protocol import CANCEL_BYTES, KeeperOrders, pack, seal, to_lines, unseal
from rota.model.attempts import ExitReason
from rota.model.programs import Program, ResourceLimits
from rota.ports.executor import KeeperSpec, ProcessTreeMode, StopSignalTarget

NO_PROGRAM = KeeperBinary(python="/nowhere/python", path="/nowhere/keeper.pyc")


def spec(name="run-1.1", **command):
    return KeeperSpec(
        name=name, command=Program(**{"argv": ["true"], **command}), tree=ProcessTreeMode.GUARD
    )


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (spec(argv=[]), 'command.argv "": name a program'),
        (spec(name=""), 'name "": use 1 to 200 printable bytes'),
        (spec(name="a\nb"), "use 1 to 200 printable"),
        (spec(name="\udcff"), "use 1 to 200 printable"),
        (spec(name="x" * 201), "use 1 to 200 printable"),
        (spec(env={"A=B": "1"}), 'command.env "A=B": use a name without = in it'),
        (spec(argv=["a\0b"]), "remove the NUL character"),
        (spec(cwd="/\0"), "remove the NUL character"),
        (spec(env={"A": "\0"}), "remove the NUL character"),
    ],
)
def test_what_no_keeper_could_be_told_is_refused(tmp_path, bad, sentence):
    with pytest.raises(Invalid, match=".*") as refused:
        start_keeper(tmp_path / "attempt", bad, new_identity("x"), NO_PROGRAM)
    assert sentence in str(refused.value)
    assert not (tmp_path / "attempt").exists()


def test_orders_arrive_as_they_were_given():
    bounds = ResourceLimits(hard_seconds=1.5, memory_bytes=7, processes=3)
    given = KeeperSpec(
        name="näme", command=Program(argv=["a", "b c", ""], env={"K": "v=w"}, cwd="/x\udcff"),
        bounds=bounds, tree=ProcessTreeMode.AUTO, term=StopSignalTarget.MAIN,
    )  # fmt: skip
    rest = [
        (b"nonce", b"n"),
        (b"boot", b"b"),
        (b"epoch", b"2"),
        (b"leftover_seconds", b"1"),
        (b"beat_seconds", b"15"),
    ]
    orders = KeeperOrders(pack([*_orders_for(given, certain=True), *rest]))
    assert (orders.argv, orders.cwd) == ([b"a", b"b c", b""], b"/x\xff")
    assert orders.env == {b"K": b"v=w", b"ROTA_KEEPER": "näme".encode()}
    assert (orders.hard, orders.idle, orders.memory, orders.processes) == (1.5, None, 7, 3)
    assert (orders.tree, orders.term, orders.grace, orders.epoch) == ("pidns", "main", 10.0, 2)


@pytest.mark.parametrize(
    ("wanted", "certain", "told"),
    [
        (ProcessTreeMode.AUTO, True, "pidns"),
        (ProcessTreeMode.AUTO, False, "guard"),
        (ProcessTreeMode.PIDNS, False, "pidns"),
        (ProcessTreeMode.GUARD, True, "guard"),
    ],
)
def test_only_auto_falls_back_and_only_where_no_certain_end_was_promised(wanted, certain, told):
    given = KeeperSpec(name="n", command=Program(argv=["true"]), tree=wanted)
    assert dict(_orders_for(given, certain=certain))[b"tree"] == told.encode()


def test_a_marker_cannot_be_forged_by_the_environment_of_a_command():
    words = _orders_for(spec(env={"ROTA_KEEPER": "another"}), certain=False)
    assert [value for key, value in words if key == b"env"] == [b"ROTA_KEEPER=run-1.1"]


def test_a_keeper_that_cannot_be_spawned_was_never_started(tmp_path):
    identity = new_identity("run-1.1")
    with pytest.raises(FileNotFoundError):
        start_keeper(tmp_path / "attempt", spec(), identity, NO_PROGRAM)
    assert not (tmp_path / "attempt").exists()
    ending = probe(tmp_path / "attempt", identity).ending
    assert (ending.reason, ending.proven) == (ExitReason.LOST_NEVER_STARTED, True)


def test_whose_folder_is_gone_was_started_if_anybody_of_it_lived(tmp_path):
    identity = new_identity("run-1.1")
    ending = find_exit_record(tmp_path / "attempt", identity, kill_marked=lambda _name: 2)
    assert (ending.reason, ending.proven) == (ExitReason.LOST_KEEPER_DIED, False)


def test_a_folder_is_used_once(tmp_path):
    (tmp_path / "attempt").mkdir()
    with pytest.raises(FileExistsError):
        start_keeper(tmp_path / "attempt", spec(), new_identity("run-1.1"), NO_PROGRAM)


def test_while_the_lock_is_held_nobody_judges(tmp_path):
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert isinstance(probe(tmp_path, new_identity("x")), KeeperAlive)
    os.close(lock)
    assert probe(tmp_path, new_identity("x")).ending.lost


def test_the_first_verdict_stays(tmp_path):
    write_exit_record(tmp_path, {"reason": "lost:keeper_died", "proven": 1, "ended": 1})
    write_exit_record(tmp_path, {"reason": "lost:reboot", "proven": 0, "ended": 2})
    ending = read_exit_record(tmp_path)
    assert (ending.reason, ending.proven) == (ExitReason.LOST_KEEPER_DIED, True)
    assert ending.ended_at.year == 1970


def test_how_long_ago_an_attempt_ended_is_told_by_the_clock_that_never_leaps(tmp_path):
    identity = new_identity("x")
    write_exit_record(tmp_path, {"reason": "exited", "code": 0, "ended": 1})
    beat = seal(boot_time() - 62 * NANOSECONDS, "ended", 0, 0, 0, 0, 0)
    (tmp_path / "beat").write_bytes(beat)
    assert 62 <= find_exit_record(tmp_path, identity).ago < 65


def test_of_a_keeper_that_was_killed_its_last_beat_tells(tmp_path):
    beat = seal(boot_time() - 62 * NANOSECONDS, "running", 0, 0, 0, 0, 0)
    (tmp_path / "beat").write_bytes(beat)
    (tmp_path / "keeper").write_bytes(to_lines({"nonce": "x", "tree": "pidns"}))
    ending = find_exit_record(tmp_path, new_identity("x"))
    assert ending.reason is ExitReason.LOST_KEEPER_DIED
    assert 62 <= ending.ago < 65


def test_after_a_reboot_the_wall_tells_how_long_ago_an_attempt_ended(tmp_path):
    identity = replace(new_identity("x"), boot="an earlier one")
    write_exit_record(tmp_path, {"reason": "exited", "ended": time.time_ns() - 62 * NANOSECONDS})
    (tmp_path / "beat").write_bytes(seal(boot_time(), "ended", 0, 0, 0, 0, 0))
    assert 62 <= find_exit_record(tmp_path, identity).ago < 65


@pytest.mark.parametrize("known", [True, False])
def test_what_ended_at_nobody_knows_when_ended_just_now(tmp_path, known):
    ended = time.time_ns() + 3600 * NANOSECONDS if known else 0
    write_exit_record(tmp_path, {"reason": "exited", "ended": ended})
    (tmp_path / "beat").write_bytes(seal(boot_time() + 3600 * NANOSECONDS, "ended", 0, 0, 0, 0, 0))
    assert find_exit_record(tmp_path, new_identity("x")).ago == 0.0


def test_a_wish_to_nobody_is_written_down_all_the_same(tmp_path):
    (tmp_path / "cancel").write_bytes(bytes(CANCEL_BYTES))
    request_cancel(tmp_path, 3, 1.5, "because\nof it")
    assert unseal((tmp_path / "cancel").read_bytes()) == ["3", "1500", "because\nof", "it"]
    assert not wake_keeper_pipe(tmp_path)


def test_a_wish_fits_the_room_it_has_and_replaces_a_longer_one(tmp_path):
    (tmp_path / "cancel").write_bytes(bytes(CANCEL_BYTES))
    request_cancel(tmp_path, 2**63, 3600.0, "\N{EURO SIGN}" * 1000 + "\ud800")
    whole = (tmp_path / "cancel").read_bytes()
    assert len(whole) == CANCEL_BYTES
    assert set(unseal(whole)[2]) == {"\N{EURO SIGN}"}
    request_cancel(tmp_path, 2**63, 0.0, "now")
    assert unseal((tmp_path / "cancel").read_bytes())[1:] == ["0", "now"]


def test_a_keeper_of_a_version_without_room_for_wishes_is_told_as_it_reads_them(tmp_path):
    request_cancel(tmp_path, 3, 1.5, "because of it")
    assert (tmp_path / "cancel").read_text() == "3 1500 because of it"


def test_who_cannot_ring_says_so(tmp_path):
    """A bell that is no FIFO, as an example: a wish that nobody hears is none."""
    (tmp_path / "bell").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        request_cancel(tmp_path, 3, 1.5, "because of it")


def test_input_written_twice_is_there_once(tmp_path):
    (tmp_path / "in").write_bytes(b"one ")
    for _ in range(2):
        write_input(tmp_path, 4, b"two", end=True)
    assert (tmp_path / "in").read_bytes() == b"one two"
    assert (tmp_path / "in.end").exists()


@pytest.mark.parametrize(
    "spoilt", [b"", b"nonsense", b"reason unheard_of\n\n", b"reason exited\ncode x\n\n"]
)
def test_a_verdict_that_somebody_has_spoilt_says_so(tmp_path, spoilt):
    (tmp_path / "exit").write_bytes(spoilt)
    ending = probe(tmp_path, new_identity("x")).ending
    assert (ending.reason, ending.proven) == (ExitReason.KEEPER_ERROR, False)


@pytest.mark.parametrize("spoilt", [b"", b"pid x\n", b"nonce a\npid 1\n\n"])
def test_a_keeper_whose_facts_were_spoilt_is_no_proof(tmp_path, spoilt):
    (tmp_path / "keeper").write_bytes(spoilt)
    ending = probe(tmp_path, new_identity("nobody-carries-this")).ending
    assert (ending.reason, ending.proven) == (ExitReason.LOST_KEEPER_DIED, False)


@pytest.mark.parametrize("name", ["exit", "exit.reserve", "keeper", "beat", "out", "in", "cancel"])
def test_a_fifo_in_the_place_of_a_file_holds_nobody_up(tmp_path, name):
    os.mkfifo(tmp_path / name)
    assert probe(tmp_path, new_identity("nobody-carries-this")).ending
    assert read_spool(tmp_path, "out", 0, 10) == b""
    assert read_input(tmp_path)[0] == b""


@pytest.fixture
def without_descriptors():
    """Let this process open nothing, as long as it is entered."""

    @contextmanager
    def entered():
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    return entered


def test_who_can_open_nothing_takes_no_keeper_for_dead(tmp_path, without_descriptors):
    identity = new_identity("run-1.1")
    with without_descriptors(), pytest.raises(OSError, match="Too many open files"):
        find_exit_record(tmp_path, identity)
    with without_descriptors(), pytest.raises(OSError, match="Too many open files"):
        find_exit_record(tmp_path / "nowhere", identity)
    assert not (tmp_path / "exit").exists()


def test_who_must_sweep_is_written_down_before_a_keeper_is_started(tmp_path):
    idle = KeeperBinary(python="/bin/true", path="/nowhere/keeper.pyc")
    os.waitpid(
        start_keeper(tmp_path / "a", spec(), new_identity("r"), idle, executor="container").pid, 0
    )
    assert (tmp_path / "a" / "unswept").read_text() == "container"
