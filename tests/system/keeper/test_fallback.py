"""Where a machine forbids namespaces: a guard by default, and a refusal if one was asked for."""

import os
from pathlib import Path

import pytest

from rota.keeper import linux
from rota.keeper.build import certain_kill
from rota.model.attempts import ExitReason
from rota.ports.executor import ProcessTreeMode
from tests.system.keeper.conftest import Scene
from tests.tools.keepers.attempts import python_for_everybody
from tests.tools.keepers.programs import STUBBORN

PR_SET_DUMPABLE = 4


@pytest.fixture
def plain_user():
    if os.geteuid() or not python_for_everybody():
        pytest.skip("it needs root, to become a user, and a Python that this user may run")
    return Scene("nobody", ProcessTreeMode.AUTO)


def forbid_namespaces():
    """Live on in a user namespace in which no other can be made."""
    user, group = os.geteuid(), os.getegid()
    linux._control(PR_SET_DUMPABLE, linux._UnsignedLong(1))  # lost when it gave up being root
    linux._call("unshare", linux.CLONE_NEWUSER)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        Path(f"/proc/self/{name}").write_text(text)
    Path("/proc/sys/user/max_user_namespaces").write_text("0")


def test_auto_is_a_guard_where_namespaces_are_forbidden(plain_user):
    def body(attempts):
        forbid_namespaces()
        assert not certain_kill(ProcessTreeMode.AUTO, attempts.program)
        attempt = attempts.start(attempts.python(STUBBORN))
        attempt.says(b"ready")
        attempt.cancel(0.1)
        ending = attempt.ending()
        assert (ending.tree, ending.proven) == ("guard", True)

    plain_user.play(body)


def test_a_certain_end_that_was_promised_is_kept_or_nothing_begins(plain_user):
    """The daemon has looked while they were allowed, and has said that a kill is certain."""

    def body(attempts):
        assert certain_kill(ProcessTreeMode.AUTO, attempts.program)
        forbid_namespaces()
        ending = attempts.start(["sh", "-c", "echo ran"]).ending()
        assert (ending.reason, ending.proven) == (ExitReason.SPAWN_FAILED, True)
        assert "unshare" in ending.detail

    plain_user.play(body)


def test_a_namespace_that_was_asked_for_is_not_silently_left_out(plain_user):
    def body(attempts):
        forbid_namespaces()
        attempts.tree = ProcessTreeMode.PIDNS
        ending = attempts.start(["sh", "-c", "echo ran"]).ending()
        assert (ending.reason, ending.proven) == (ExitReason.SPAWN_FAILED, True)
        assert "unshare" in ending.detail

    plain_user.play(body)
