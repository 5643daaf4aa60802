"""The sandbox with the real bubblewrap."""

import json
import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from rota.errors import Unavailable
from rota.executors.sandbox.executor import SandboxExecutor
from rota.executors.shared.resource_limits import CgroupHierarchy
from rota.keeper.build import Interpreter
from rota.model.programs import MIB, NetworkAccess, Program, ResourceLimits
from rota.ports.executor import EgressSocket

PYTHON = "/usr/bin/python3"


def test_no_attack_works(sandbox, attacked):
    assert attacked(sandbox) == {}


OUTSIDE = {
    "gain_rights",
    "mount",
    "new_namespaces",
    "plant_hooks",
    "reach_sockets_of_the_host",
    "reach_the_network",
    "read_secrets",
    "see_processes_of_others",
    "see_the_state",
}
"""Attacks that hurt nobody when they work in namespaces that are thrown away."""


def test_the_same_attacks_work_where_there_are_no_walls(ground, host, hostile):
    """Otherwise the test above would pass with attacks that cannot work anywhere."""
    thrown_away = ["unshare", "--user", "--map-root-user", "--mount", "--propagation", "private"]
    done = subprocess.run(
        [*thrown_away, PYTHON, *hostile(), *sorted(OUTSIDE - {"mount"}), "mount"],
        capture_output=True,
        check=False,
    )
    if b"unshare" in done.stderr:
        pytest.skip(f"no namespaces to throw away: {done.stderr.decode()}")
    worked = json.loads(done.stdout)["worked"]
    assert {name for name, how in worked.items() if how} == OUTSIDE


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights over the whole machine")
def test_the_attacker_does_not_start_with_rights_over_the_whole_machine(ground, hostile):
    done = subprocess.run([PYTHON, *hostile(), "see_the_state"], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"behind walls" in done.stderr


def test_a_program_gets_its_words_environment_input_and_exit_code_through(sandbox, ground):
    text = "import os, sys; print(sys.argv[1:], os.environ['A'], input(), os.getcwd()); sys.exit(7)"
    done = ground.run(sandbox, PYTHON, "-c", text, "a b", "$HOME", env={"A": "x\ny"}, stdin=b"hi\n")
    assert done.stdout.decode() == f"['a b', '$HOME'] x\ny hi {ground.folder}\n"
    assert done.returncode == 7


def test_nothing_of_the_hosts_environment_comes_along(sandbox, ground):
    done = ground.run(sandbox, "/usr/bin/env", env={"ONLY": "this"})
    names = {line.split("=")[0] for line in done.stdout.decode().splitlines()}
    assert names == {"ONLY", "PATH", "LANG", "HOME", "PWD"}


def test_no_value_of_the_environment_stands_on_a_command_line(sandbox, ground):
    room = ground.room()
    spec = sandbox.wrap(Program(argv=["/bin/true"], env={"KEY": "sesame"}), room)
    assert "sesame" not in " ".join(spec.command.argv)


def test_the_working_folder_can_be_written_and_the_rest_of_the_space_is_not_there(sandbox, ground):
    (ground.spaces / "two").mkdir()
    done = ground.run(sandbox, "/bin/sh", "-c", f"echo hi >file; ls {ground.spaces}")
    assert (ground.folder / "file").read_text() == "hi\n"
    assert done.stdout == b"one\n"


def test_a_folder_to_be_read_cannot_be_written(sandbox, ground):
    library = ground.spaces / "library"
    library.mkdir()
    (library / "book").write_text("text")
    done = ground.run(
        sandbox, "/bin/sh", "-c", f"cat {library}/book; touch {library}/x", readable=[str(library)]
    )
    assert done.stdout == b"text"
    assert b"Read-only" in done.stderr


def test_a_working_folder_that_became_a_link_is_refused(sandbox, ground):
    ground.folder.rmdir()
    ground.folder.symlink_to("/etc")
    done = ground.run(sandbox, "/bin/true")
    assert done.returncode == 126
    assert b"symbolic link" in done.stderr


def test_a_guarded_name_that_became_a_link_is_refused(sandbox, ground):
    (ground.folder / ".claude").symlink_to("/root")
    done = ground.run(sandbox, "/bin/ls", ".claude")
    assert done.returncode == 126
    assert b".claude" in done.stderr


def test_a_repository_can_be_used_but_not_made_to_run_something(sandbox, ground):
    subprocess.run(["git", "init", "-q"], cwd=ground.folder, check=True)
    script = "echo x >f && git add f && git -c user.name=a -c user.email=a@b commit -qm x && git log --oneline"
    turning = "git config core.hooksPath /tmp; mv .git aside && mkdir -p .git/hooks && echo moved"
    done = ground.run(sandbox, "/bin/sh", "-c", f"{script}; {turning}")
    assert done.stdout.decode().strip().endswith(" x"), done.stderr
    assert b"hooksPath" not in (ground.folder / ".git" / "config").read_bytes()


def test_everything_a_program_left_behind_ends_with_it(sandbox, ground):
    text = "setsid sh -c 'exec 3<>fifo; echo >&3; read x <fifo2' & read x <fifo; exit 0"
    for name in ("fifo", "fifo2"):
        os.mkfifo(ground.folder / name)
    done = ground.run(sandbox, "/bin/sh", "-c", text)
    assert done.returncode == 0
    with pytest.raises(OSError, match="No such device"):
        os.open(ground.folder / "fifo2", os.O_WRONLY | os.O_NONBLOCK)


def test_killing_bubblewrap_kills_what_is_inside(sandbox, ground):
    os.mkfifo(ground.folder / "alive")
    text = "trap '' TERM; exec 3>alive; echo up >&3; read x"
    command = Program(argv=["/bin/sh", "-c", text], cwd=str(ground.folder))
    spec = sandbox.wrap(command, ground.room())
    told = spec.command
    child = subprocess.Popen(told.argv, env=dict(told.env), cwd=told.cwd, stdin=subprocess.PIPE)
    with (ground.folder / "alive").open() as alive:
        assert alive.readline() == "up\n"
        child.kill()
        assert alive.read() == ""
    child.communicate()
    sandbox.sweep(spec)


class Answering(threading.Thread):
    """Answers HTTP on a socket of the host, as the gateway will."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.path = str(path)

    def run(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            with peer, peer.makefile("rb") as said:
                length = 0
                while (line := said.readline()) not in {b"\r\n", b""}:
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                taken = 0
                while taken < length:
                    taken += len(said.read(min(65536, length - taken)))
                answer = b"%d" % taken
                peer.sendall(
                    b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer)
                )


@pytest.fixture
def gateway(ground):
    answering = Answering(ground.root / "g")
    answering.start()
    yield answering.path
    answering.listener.shutdown(socket.SHUT_RDWR)
    answering.listener.close()
    answering.join()


CALL = """
import http.client, sys
for size in (0, 10, 20_000_000):
    c = http.client.HTTPConnection("127.0.0.1", 8123); c.request("POST", "/", b"x" * size)
    print(c.getresponse().read().decode())
try:
    http.client.HTTPConnection("127.0.0.1", 8124).connect()
except OSError: print("nothing else")
"""


def test_the_egress_socket_answers_and_nothing_else_does(sandbox, ground, gateway):
    egress = EgressSocket(socket=gateway, port=8123)
    done = ground.run(sandbox, PYTHON, "-c", CALL, egress=egress)
    assert done.stdout.decode().split("\n") == ["0", "10", "20000000", "nothing else", ""], (
        done.stderr
    )


def test_an_egress_socket_that_is_no_socket_is_refused(sandbox, ground):
    (ground.root / "file").write_text("")
    egress = EgressSocket(socket=str(ground.root / "file"), port=8123)
    done = ground.run(sandbox, "/bin/true", egress=egress)
    assert (done.returncode, b"is no socket" in done.stderr) == (126, True)


def test_an_open_network_is_the_hosts(sandbox, ground):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        text = f"import socket; socket.create_connection(('127.0.0.1', {port})); print('there')"
        done = ground.run(sandbox, PYTHON, "-c", text, network=NetworkAccess.OPEN)
    assert done.stdout == b"there\n", done.stderr


def test_without_bubblewrap_nothing_runs(ground, tmp_path):
    executor = SandboxExecutor(Interpreter.running(), ground.mounts, search_path=str(tmp_path))
    assert [m.what for m in executor.check()] == ["bubblewrap"]
    with pytest.raises(Unavailable, match="install the package bubblewrap"):
        executor.wrap(Program(argv=["/bin/true"]), ground.room())


@pytest.mark.usefixtures("sandbox")
def test_a_bubblewrap_that_cannot_build_the_walls_is_found_out(ground, tmp_path):
    """As where the system forbids user namespaces."""
    fake = tmp_path / "bwrap"
    real = subprocess.run(["bwrap", "--help"], capture_output=True, check=False).stdout.decode()
    (tmp_path / "help").write_text(real)
    fake.write_text(
        f'#!/bin/sh\n[ "$1" = --help ] && exec cat {tmp_path}/help\n'
        "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n"
    )
    fake.chmod(0o755)
    executor = SandboxExecutor(Interpreter.running(), ground.mounts, search_path=f"{tmp_path}")
    [missing] = executor.check()
    assert "uid map" in missing.where
    done = ground.run(executor, "/bin/echo", "ran", bounds=ResourceLimits())
    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's processes need a control group")
def test_root_without_a_control_group_cannot_promise_a_bound_on_processes(ground, sandbox):
    executor = SandboxExecutor(Interpreter.running(), ground.mounts, hierarchy=None)
    with pytest.raises(Unavailable, match="a limit on root's processes"):
        executor.wrap(Program(argv=["/bin/true"]), ground.room())


def test_a_bound_that_holds_for_single_processes_only_is_told(ground, sandbox):
    group = CgroupHierarchy("/nonexistent", frozenset({"pids"}), unified=False)
    executor = SandboxExecutor(Interpreter.running(), ground.mounts, hierarchy=group)
    assert [(missing.what, missing.needed) for missing in executor.check()] == [
        ("a limit on the memory of all processes together", False),
        ("a limit on CPUs", False),
    ]


def test_a_folder_in_memory_cannot_be_filled_past_the_bound(ground, sandbox):
    text = "import os; f = os.open('/tmp/x', os.O_CREAT | os.O_WRONLY); os.posix_fallocate(f, 0, 80 << 20)"
    done = ground.run(sandbox, PYTHON, "-c", text, bounds=ResourceLimits(memory_bytes=64 * MIB))
    assert b"No space left" in done.stderr, done
