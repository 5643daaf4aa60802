"""A keeper ends its tree by itself when nobody renews its lease, and not before."""

from rota.keeper.client import KeeperLease, boot_time, read_lease
from rota.model.attempts import ExitReason
from rota.model.programs import ResourceLimits
from tests.tools.keepers.programs import STUBBORN


def test_a_lease_that_nobody_renews_ends_the_tree(scene, stopwatch):
    def body(attempts):
        with KeeperLease(attempts.home / "lease", 1) as lease:
            lease.renew(0.6)
            before = stopwatch()
            attempt = attempts.start(attempts.python(STUBBORN), lease=lease, slack=0.3, epoch=1)
            ending = attempt.ending(5.0)
        assert 1.0 <= stopwatch() - before < 2.2
        assert (ending.reason, ending.proven) == (ExitReason.LEASE_EXPIRED, True)
        attempt.until(lambda: attempt.processes() == [], 1.0)

    scene.play(body)


def test_who_is_on_its_own_waits_for_no_long_grace(attempts):
    """Others begin the same work when they believe the tree to be gone."""
    with KeeperLease(attempts.home / "lease", 1) as lease:
        lease.renew(0.3)
        bounds = ResourceLimits(grace_seconds=3600.0)
        program = attempts.python(STUBBORN)
        attempt = attempts.start(program, lease=lease, slack=0.3, epoch=1, bounds=bounds)
        ending = attempt.ending(10.0)
    assert (ending.reason, ending.proven) == (ExitReason.LEASE_EXPIRED, True)


def test_who_is_being_ended_is_fenced_all_the_same(attempts):
    with KeeperLease(attempts.home / "lease", 1) as lease:
        lease.renew(1.0)
        attempt = attempts.start(attempts.python(STUBBORN), lease=lease, slack=0.3, epoch=1)
        attempt.says(b"ready")
        attempt.cancel(3600.0, epoch=1)
        ending = attempt.ending(10.0)
    assert (ending.reason, ending.killed) == (ExitReason.CANCELLED, True)


def test_a_lease_renewed_in_time_keeps_the_tree(attempts, stopwatch):
    with KeeperLease(attempts.home / "lease", 1) as lease:
        lease.renew(0.5)
        attempt = attempts.start(["sh", "-c", "sleep 1.5; echo alive"], lease=lease, epoch=1)
        attempt.until(lambda: stopwatch() > 0.3)
        lease.renew(60.0)
        ending = attempt.ending(5.0)
    assert (ending.reason, attempt.out()) == (ExitReason.EXITED, b"alive\n")


def test_a_lease_renewed_within_the_slack_keeps_the_tree(attempts, stopwatch):
    """As after a sleep of the machine: it looks expired before the daemon has run."""
    with KeeperLease(attempts.home / "lease", 1) as lease:
        lease.renew(0.2)
        program = ["sh", "-c", "sleep 1.6; echo alive"]
        attempt = attempts.start(program, lease=lease, slack=1.0, epoch=1)
        attempt.until(lambda: boot_time() > lease.until + 500_000_000)
        lease.renew(60.0)
        ending = attempt.ending(5.0)
    assert (ending.reason, attempt.out()) == (ExitReason.EXITED, b"alive\n")


def test_a_lease_of_a_lower_epoch_does_not_count(attempts):
    with KeeperLease(attempts.home / "lease", 7) as lease:
        lease.renew(0.4)
        attempt = attempts.start(attempts.python(STUBBORN), lease=lease, epoch=7)
        attempt.says(b"ready")
        with KeeperLease(attempts.home / "lease", 6) as older:
            older.renew(60.0)
        assert attempt.ending(5.0).reason is ExitReason.LEASE_EXPIRED


def test_a_torn_lease_is_no_lease(tmp_path):
    with KeeperLease(tmp_path / "lease", 3) as lease:
        lease.renew(60.0)
        assert read_lease(tmp_path / "lease") == (lease.until, 3)
        whole = (tmp_path / "lease").read_bytes()
        other = b"1" if whole.startswith(b"9") else b"9"
        (tmp_path / "lease").write_bytes(other + whole[1:])
        assert read_lease(tmp_path / "lease") is None
    assert read_lease(tmp_path / "nowhere") is None


WAITS = ["sh", "-c", "echo done; cat; echo over"]


def test_a_program_that_waits_for_more_is_told_that_none_will_come_before_it_is_ended(attempts):
    """Who would have told it is dead: what it has done already must not be lost."""
    with KeeperLease(attempts.home / "lease", 1) as lease:
        lease.renew(0.2)
        attempt = attempts.start(WAITS, keep_stdin_open=True, lease=lease, slack=3.0, epoch=1)
        ending = attempt.ending(10.0)
    assert (ending.reason, attempt.out()) == (ExitReason.EXITED, b"done\nover\n")


def test_silence_ends_the_input_first(attempts):
    bounds = ResourceLimits(idle_seconds=0.4, grace_seconds=2.0)
    attempt = attempts.start(WAITS, keep_stdin_open=True, bounds=bounds)
    ending = attempt.ending(10.0)
    assert (ending.reason, attempt.out()) == (ExitReason.EXITED, b"done\nover\n")


def test_who_does_not_read_is_not_told_that_its_input_is_over(attempts):
    """What waits for it is more than a pipe holds: it must not take a part of it for all."""
    bounds = ResourceLimits(idle_seconds=0.4, grace_seconds=5.0)
    given = b"x" * 200_000
    program = ["sh", "-c", "trap '' TERM; sleep 1; wc -c"]
    attempt = attempts.start(program, stdin=given, bounds=bounds)
    ending = attempt.ending(10.0)
    assert (ending.reason, attempt.out().strip()) == (ExitReason.IDLE_TIMEOUT, b"200000")


def test_silence_after_that_ends_the_tree(attempts):
    bounds = ResourceLimits(idle_seconds=0.4, grace_seconds=0.2)
    program = ["sh", "-c", "echo done; exec sleep 3600"]
    attempt = attempts.start(program, keep_stdin_open=True, bounds=bounds)
    assert attempt.ending(10.0).reason is ExitReason.IDLE_TIMEOUT
