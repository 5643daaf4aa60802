"""A daemon that cannot write goes on as soon as it can; what was acknowledged is done."""

from __future__ import annotations

import json
import resource
import signal


def let_write(daemon, most):
    """Let a daemon's files grow to so many bytes and no further, as a full disk would."""
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


def test_a_daemon_that_cannot_write_waits_until_it_can(house):
    daemon = house.up()
    house.json("task", "create", "tick", "--call", "rota.samples:hello", "--every", "1s")
    daemon.log.wait("run.settled", "tick")
    let_write(daemon, 1)
    daemon.log.wait("poller.unavailable", "cannot use the database", "its disk fails")
    house.json("task", "create", "hello", "--call", "rota.samples:hello")
    told = house.rota("task", "run", "hello", "--json")
    assert (told.returncode, json.loads(told.stderr)["error"]["code"]) == (6, "unavailable")
    house.json("task", "run", "hello", "--store", f"sqlite:///{house.database}")
    daemon.log.wait("poller.unavailable")
    assert daemon.process.poll() is None
    let_write(daemon, resource.RLIM_INFINITY)
    daemon.log.wait("run.settled", "hello")
    daemon.log.wait("run.settled", "tick")
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    assert house.json("verify")["ok"]
