"""What a program writes and reads: caps, floods, follow-ups, and disks without room."""

import os
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from rota.keeper.client import read_spool, write_input
from rota.model.attempts import ExitReason
from rota.model.programs import MIB, ResourceLimits

GIB = 1024 * MIB


def test_output_past_its_cap_is_counted_and_its_end_kept(attempts):
    bounds = ResourceLimits(output_bytes=1000, grace_seconds=0.3)
    program = ["sh", "-c", "seq 1 20000; seq 5 >&2"]
    attempt = attempts.start(program, bounds=bounds)
    ending = attempt.ending()
    whole = "".join(f"{n}\n" for n in range(1, 20001)).encode()
    assert attempt.out() == whole[:1000]
    assert (ending.out.size, ending.out.total) == (1000, len(whole))
    assert ending.out.tail == whole[-64 * 1024 :]
    assert (ending.err.size, ending.err.tail) == (10, b"")


def test_a_flood_is_drained_with_flat_memory(attempts):
    attempt = attempts.start(["sh", "-c", f"head -c {GIB} /dev/zero; echo end"])
    keeper = attempt.pids()[0]
    most = 0

    def ended():
        nonlocal most
        try:
            status = Path(f"/proc/{keeper}/status").read_text()
            most = max(
                [most, *(int(x.split()[1]) for x in status.splitlines() if x.startswith("VmHWM"))]
            )
        except (FileNotFoundError, ProcessLookupError):
            pass
        return (attempt.folder / "exit").exists()

    attempt.until(ended, 60.0)
    ending = attempt.ending()
    assert ending.out.total == GIB + 4
    assert ending.out.size == 64 * MIB
    assert ending.out.tail.endswith(b"\0end\n")
    assert 0 < most < 24 * 1024


def test_a_spool_can_be_read_from_any_offset(attempts):
    attempt = attempts.start(["sh", "-c", "printf abcdef"])
    attempt.ending()
    assert read_spool(attempt.folder, "out", 2, 3) == b"cde"
    assert read_spool(attempt.folder, "out", 6, 3) == b""
    assert read_spool(attempt.folder, "err", 0, 3) == b""


def test_standard_input_arrives_whole_and_ends(attempts):
    given = os.urandom(3 * MIB)
    attempt = attempts.start(["cat"], stdin=given)
    ending = attempt.ending()
    assert (ending.code, ending.in_offset) == (0, len(given))
    assert attempt.out() == given


def test_follow_ups_arrive_once_even_if_they_are_written_twice(scene):
    def body(attempts):
        attempt = attempts.start(["cat"], stdin=b"one\n", keep_stdin_open=True)
        attempt.says(b"one\n")
        write_input(attempt.folder, 4, b"two\n")
        attempt.says(b"two\n")
        write_input(attempt.folder, 4, b"two\n")
        write_input(attempt.folder, 8, b"three\n", end=True)
        assert attempt.ending().code == 0
        assert attempt.out() == b"one\ntwo\nthree\n"

    scene.play(body)


def test_a_program_that_does_not_read_is_not_waited_for(attempts):
    attempt = attempts.start(["sh", "-c", "exec 0<&-; echo deaf; exit 4"], stdin=b"x" * MIB)
    assert attempt.ending().code == 4


TAKES_BACK = (Path(__file__).parents[2] / "tools" / "hostile" / "hostile_reader.py").read_text()


def test_a_program_that_takes_its_output_back_is_minded_all_the_same(attempts):
    """It has a second read end of its own pipes, and empties them before its keeper can."""
    bounds = ResourceLimits(hard_seconds=5.0, grace_seconds=0.3)
    attempt = attempts.start(attempts.python(TAKES_BACK), bounds=bounds)
    assert attempt.ending(10.0).reason is ExitReason.HARD_TIMEOUT


LEAKY = """
import os, sys
sys.exit(0 if sorted(os.listdir("/proc/self/fd")) == ["0", "1", "2", "3"] else 1)
"""


def test_a_program_sees_nothing_of_a_daemon_that_leaks(attempts):
    leaks = [os.open("/etc/passwd", os.O_RDONLY) for _ in range(40)]
    try:
        for leak in leaks:
            os.set_inheritable(leak, True)
        attempt = attempts.start(attempts.python(LEAKY))
        assert attempt.ending().code == 0
    finally:
        for leak in leaks:
            os.close(leak)


SURROUNDINGS = """
import os, resource, sys
print(sorted(os.environ))
print(os.getcwd(), oct(os.umask(0)), os.getsid(0) == os.getpid())
print([resource.getrlimit(n)[0] for n in (resource.RLIMIT_CORE, resource.RLIMIT_AS, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)])
print(open("/proc/self/oom_score_adj").read().strip(), os.nice(0))
print(open("/proc/self/autogroup").read().split()[-1] if os.path.exists("/proc/self/autogroup") else 5)
"""


def test_a_program_finds_only_what_it_was_given(attempts):
    bounds = ResourceLimits(memory_bytes=512 * MIB, open_files=50, file_bytes=MIB)
    command = attempts.python(SURROUNDINGS)
    attempt = attempts.start(command, env={"A": "1"}, cwd="/usr", bounds=bounds)
    attempt.ending()
    assert attempt.out().decode().splitlines() == [
        "['A', 'LC_CTYPE', 'ROTA_KEEPER']",
        "/usr 0o77 True",
        f"[0, {512 * MIB}, 50, {MIB}]",
        f"500 {min(19, os.nice(0) + 5)}",
        "5",
    ]


def test_a_program_that_takes_too_much_memory_fails_alone(attempts):
    bounds = ResourceLimits(memory_bytes=256 * MIB)
    attempt = attempts.start(attempts.python("x = bytearray(1 << 30)"), bounds=bounds)
    assert attempt.ending().code == 1
    assert b"MemoryError" in attempt.out("err")


@pytest.fixture
def small_disk():
    if os.geteuid():
        pytest.skip("only root can mount a small disk")
    folder = Path(tempfile.mkdtemp(prefix="rota-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
    folder.rmdir()


def test_a_full_disk_does_not_disturb_the_program(attempts, small_disk):
    program = ["sh", "-c", "seq 1 1000000; echo last; exit 7"]
    attempt = attempts.start(program, home=small_disk)
    ending = attempt.ending()
    whole = "".join(f"{n}\n" for n in range(1, 1000001)).encode() + b"last\n"
    assert (ending.reason, ending.code) == (ExitReason.EXITED, 7)
    assert ending.out.errno == 28
    assert ending.out.total == len(whole)
    assert attempt.out() == whole[: ending.out.size]
    assert ending.out.tail == whole[-64 * 1024 :]


def test_a_loss_can_be_recorded_on_a_full_disk(attempts, small_disk):
    attempt = attempts.start(["sh", "-c", "seq 1 1000000; sleep 30"], home=small_disk)
    attempt.until(lambda: len(attempt.out()) > 3 * MIB)
    os.kill(attempt.pids()[0], 9)
    ending = attempt.ending()
    assert (ending.reason, ending.proven) == (ExitReason.LOST_KEEPER_DIED, True)


def fill(folder):
    """Leave no room on a disk."""
    with suppress(OSError), (folder / "filled").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def test_a_wish_to_stop_is_heard_on_a_full_disk(attempts, small_disk):
    attempt = attempts.start(["sleep", "30"], home=small_disk)
    attempt.pids()
    fill(small_disk)
    attempt.cancel(5.0, reason="first")
    ending = attempt.ending()
    assert (ending.reason, ending.detail) == (ExitReason.CANCELLED, "first")
