"""Run one program in a container, as a user without root; words: the sources, and a podman."""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

sources, podman = sys.argv[1:]
sys.path[:0] = [f"{sources}/src", sources]

from rota.executors.container.engine import ContainerEngine, UserMapping  # noqa: E402
from rota.executors.container.executor import ContainerExecutor  # noqa: E402
from rota.executors.shared.mounts import AllowedMount, MountAllowlist  # noqa: E402
from rota.keeper.build import Interpreter  # noqa: E402
from rota.model.programs import Program  # noqa: E402
from rota.ports.executor import EgressSocket, ExecutionSpec  # noqa: E402
from tests.system.executors.images import PYTHON, an_image  # noqa: E402

TEXT = """
import os, socket
with socket.create_connection(("127.0.0.1", 7684)) as made:
    print(made.recv(100).decode(), os.environ["WORD"], os.getuid(), flush=True)
open("left", "w").close()
"""
home = Path(os.environ["HOME"])
engine = ContainerEngine(
    program=podman,
    kind="podman",
    options=["--storage-driver", "vfs"],
    env=dict(os.environ),
    users=UserMapping.MAPPED,
    local_images=True,
)
for name in ("work", "own", "state", "desk"):
    (home / name).mkdir(mode=0o700)
executor = ContainerExecutor(
    Interpreter(PYTHON, "/usr", f"{sources}/src"),
    MountAllowlist([AllowedMount(folder=str(home))]),
    engine,
)
missing = [str(each) for each in executor.check() if each.needed]
with an_image() as content:
    made = subprocess.run(
        engine.words("import", "-", "localhost/rota-test:1"),
        stdin=content,
        capture_output=True,
        check=True,
    )
listener = socket.socket(socket.AF_UNIX)
listener.bind(f"{home}/desk/mcp.sock")
(home / "desk" / "mcp.sock").chmod(0o600)
listener.listen()


def answer():
    peer, _ = listener.accept()
    with peer:
        peer.sendall(b"hello")


threading.Thread(target=answer, name="rota-answer", daemon=True).start()
room = ExecutionSpec(
    name="rootless",
    state=f"{home}/state",
    folder=f"{home}/work",
    home=f"{home}/own",
    desk=EgressSocket(socket=f"{home}/desk/mcp.sock", port=7684, alone=True),
    image=made.stdout.decode().split()[-1],
)
command = Program(argv=[PYTHON, "-c", TEXT], cwd=f"{home}/work", env={"WORD": "said"})
spec = executor.wrap(command, room)
done = subprocess.run(
    spec.command.argv,
    env=dict(spec.command.env),
    stdin=subprocess.DEVNULL,
    capture_output=True,
    timeout=120,
    check=False,
)
executor.sweep(spec)
print(
    json.dumps({
        "missing": missing,
        "code": done.returncode,
        "said": done.stdout.decode().split(),
        "error": done.stderr.decode(),
        "left": [path.stat().st_uid for path in home.glob("work/left")],
    })
)  # fmt: skip
