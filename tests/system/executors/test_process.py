"""A plain process with its real bounds."""

import pytest

from rota.executors.shared.resource_limits import find_hierarchy
from rota.model.programs import MIB, ResourceLimits

PYTHON = "/usr/bin/python3"
FORKING = """
import os
reading, writing = os.pipe()
children = []
try:
    while len(children) < 40:
        child = os.fork()
        if not child:
            os.close(writing); os.read(reading, 1); os._exit(0)
        children.append(child)
except BlockingIOError: pass
os.close(writing)
for child in children: os.waitpid(child, 0)
print(len(children))
"""


def run(ground, process, *argv, **changes):
    return ground.run(process, *argv, isolated=False, **changes)


def test_words_environment_input_and_exit_code_come_through(ground, process):
    text = "read x; echo $1 $A $x $HOME; pwd; exit 7"
    done = run(ground, process, "/bin/sh", "-c", text, "sh", "a b", env={"A": "1"}, stdin=b"hi\n")
    assert done.stdout.decode() == f"a b 1 hi {ground.home}\n{ground.folder}\n"
    assert done.returncode == 7


def test_nothing_of_the_hosts_environment_comes_along(ground, process):
    done = run(ground, process, "/usr/bin/env", env={"ONLY": "this"})
    assert {line.split("=")[0] for line in done.stdout.decode().split()} == {
        *("ONLY", "PATH", "LANG", "HOME"),
    }


def test_a_program_that_is_not_there_says_so(ground, process):
    done = run(ground, process, "/nonexistent", bounds=ResourceLimits(open_files=16))
    assert (done.returncode, done.stderr) == (
        126,
        b"cannot start /nonexistent: No such file or directory\n",
    )


def test_each_bound_of_a_single_process_holds(ground, process):
    bounds = ResourceLimits(memory_bytes=64 * MIB, open_files=16, file_bytes=1000)
    texts = {
        "memory": "b'x' * 100_000_000",
        "files": "[open('/dev/null') for _ in range(20)]",
        "size": "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); open('f', 'wb', 0).write(b'x' * 2000) - 2000 or print('whole')",
        "core": "import resource; assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0); 1 / 0",
    }
    said = {
        name: run(ground, process, PYTHON, "-c", text, bounds=bounds)
        for name, text in texts.items()
    }
    assert b"MemoryError" in said["memory"].stderr
    assert b"Too many open files" in said["files"].stderr
    assert said["size"].stdout == b""
    assert (ground.folder / "f").stat().st_size == 1000
    assert b"ZeroDivisionError" in said["core"].stderr


@pytest.mark.skipif(not find_hierarchy(), reason="no control group is delegated to this process")
def test_a_control_group_bounds_the_number_of_processes_and_is_gone_afterwards(ground, process):
    done = run(ground, process, PYTHON, "-c", FORKING, bounds=ResourceLimits(processes=12))
    assert int(done.stdout) == 11
