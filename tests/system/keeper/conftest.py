"""Attempts of every user and every kind of tree that this machine can have."""

import os
import time
import traceback

import pytest

from rota.ports.executor import ProcessTreeMode
from tests.tools.keepers.attempts import Attempts, become_nobody, python_for_everybody

LONGEST_TEST = 60.0


class Scene:
    """Runs the body of a test as a user: in a child, if that is not the one we are."""

    def __init__(self, user, tree):
        self.user = user
        self.tree = tree

    def play(self, body):
        if self.user == "me":
            self._play(body)
            return
        told, teller = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(told)
                become_nobody()
                self._play(body)
                code = 0
            except BaseException:  # noqa: BLE001 - told to the parent
                os.write(teller, traceback.format_exc()[-60_000:].encode())
            finally:
                os._exit(code)
        os.close(teller)
        _, status = os.waitpid(child, 0)
        with os.fdopen(told, "rb") as heard:
            fault = heard.read().decode()
        if status:
            pytest.fail(fault or f"the child ended with {status}")

    def _play(self, body):
        with Attempts(self.tree) as attempts:
            body(attempts)
        assert attempts.left == {}


USERS = ["me", "nobody"]


@pytest.fixture(
    params=[
        (user, tree) for user in USERS for tree in (ProcessTreeMode.PIDNS, ProcessTreeMode.GUARD)
    ],
    ids="-".join,
)
def scene(request):
    user, tree = request.param
    if user == "nobody" and os.geteuid():
        pytest.skip("only root can become another user")
    if user == "nobody" and not python_for_everybody():
        pytest.skip("there is no Python of this version that another user may run")
    return Scene(user, tree)


@pytest.fixture(params=[ProcessTreeMode.PIDNS, ProcessTreeMode.GUARD])
def attempts(request):
    """Attempts of the user we are, in each kind of tree."""
    with Attempts(request.param) as made:
        yield made
    assert made.left == {}


@pytest.fixture
def stopwatch():
    began = time.monotonic()
    return lambda: time.monotonic() - began
