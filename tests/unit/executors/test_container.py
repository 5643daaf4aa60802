"""What an engine is told, word for word."""

import json
import os
from dataclasses import replace

import pytest

from rota.errors import Invalid, Unavailable
from rota.executors.container.engine import (
    ContainerEngine,
    UserMapping,
    mount_arguments,
    outdated_runtime,
    pinned_image,
    run_arguments,
)
from rota.executors.container.executor import ContainerExecutor
from rota.executors.container.seccomp import profile
from rota.executors.container.sidecar import FORWARD, sidecar_arguments, sidecar_image
from rota.executors.shared.mounts import AllowedMount, MountAllowlist, SystemFolders
from rota.executors.shared.syscalls import FORBIDDEN
from rota.keeper.build import Interpreter
from rota.model.programs import NetworkAccess, Program, ResourceLimits
from rota.ports.executor import EgressSocket, ExecutionSpec, ProcessTreeMode, StopSignalTarget

PYTHON = Interpreter("/opt/python/bin/python3", "/opt/python", "/opt/rota")
PODMAN = ContainerEngine(
    program="/bin/sh", kind="podman", options=["--root", "/r"], env={"HOME": "/h"}
)
DOCKER = ContainerEngine(program="/bin/sh", kind="docker")
MOUNTS = MountAllowlist([AllowedMount(folder="/srv")])
IMAGE = "registry.example/agent@sha256:" + "0a" * 32
EGRESS = EgressSocket(socket="/srv/g.sock", port=80)
OWN = f"{os.geteuid()}:{os.getegid()}"


def room(**changes):
    given = {"name": "a-1", "state": "/var/rota/a-1", "folder": "/srv/one", "home": "/srv/home"}
    return ExecutionSpec(**(given | {"image": IMAGE} | changes))


def test_the_walls_word_for_word():
    bounds = ResourceLimits(processes=9, memory_bytes=1000, cpus=0.5, open_files=7, file_bytes=8)
    assert run_arguments(DOCKER, room(bounds=bounds)) == [
        "--init", "--interactive",
        "--log-driver", "none", "--pull", "never", "--rm", "--entrypoint", "", "--label", "rota.attempt=a-1",
        "--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges",
        "--security-opt", "seccomp=/var/rota/a-1/seccomp.json", "--ipc", "private",
        "--name", "rota-a-1", "--cidfile", "/var/rota/a-1/container.id",
        "--tmpfs", "/tmp:rw,nosuid,nodev,size=1073741824,mode=1777",
        "--hostname", "rota", "--network", "none",
        "--pids-limit", "9", "--ulimit", "core=0:0",
        "--ulimit", "nofile=7:7", "--ulimit", "nproc=4096:4096",
        "--memory", "1000", "--memory-swap", "1000", "--cpus", "0.5",
        "--ulimit", "fsize=8:8",
        "--user", OWN,
    ]  # fmt: skip


def test_there_is_always_a_bound_on_processes_and_never_an_engines_socket():
    words = run_arguments(PODMAN, room(network=NetworkAccess.OPEN))
    assert words[words.index("--pids-limit") + 1] == "1024"
    assert "--network" not in words
    assert "--privileged" not in words
    assert not any(".sock" in word for word in words)


@pytest.mark.parametrize("network", [NetworkAccess.NONE, NetworkAccess.EGRESS])
def test_only_an_open_network_is_a_network(network):
    words = run_arguments(PODMAN, room(network=network))
    assert words[words.index("--network") + 1] == "none"


@pytest.mark.parametrize("engine", [PODMAN, DOCKER])
def test_a_container_that_only_a_guard_holds_promises_no_certain_kill(engine):
    assert not ContainerExecutor(PYTHON, MOUNTS, engine).certain_kill


def test_podman_gives_a_program_users_of_its_own():
    words = run_arguments(
        ContainerEngine(program="x", kind="podman", users=UserMapping.MAPPED), room()
    )
    if os.geteuid() == 0:
        assert words[-2:] == ["--user", "1000:1000"]
        assert "1000:0:1" in words
    else:
        assert words[-4:] == ["--userns", "keep-id", "--user", OWN]


def test_mounts_are_named_with_the_folder_they_are_trusted_under():
    words = mount_arguments(room(guarded=[".envrc"]), MOUNTS.of(room()))
    assert words == [
        *("--lend", "/srv", "/srv/home"),
        *("--lend", "/srv", "/srv/one", "--guard", "/srv/one", ".envrc"),
    ]


@pytest.mark.parametrize("folder", ["/srv/a,readonly=false", '/srv/a"b', "/srv/a:b", "/srv/a\nb"])
def test_a_path_that_an_engine_would_read_as_more_than_a_path_is_refused(folder):
    asked = room(folder=folder)
    with pytest.raises(Invalid, match="engines cannot mount"):
        mount_arguments(asked, MOUNTS.of(asked))


@pytest.mark.parametrize(
    "image", [None, "", "debian", "debian:12", "-x@sha256:" + "0a" * 32, "sha256:" + "0a" * 32]
)
def test_only_a_digest_says_what_an_image_is(image):
    with pytest.raises(Invalid, match="by digest"):
        pinned_image(DOCKER, image)
    assert pinned_image(DOCKER, IMAGE) == IMAGE


def test_a_local_image_is_taken_by_its_id_where_that_is_allowed():
    local = ContainerEngine(program="x", kind="docker", local_images=True)
    assert pinned_image(local, "sha256:" + "0a" * 32)
    with pytest.raises(Invalid, match="or a local one by its id") as refused:
        pinned_image(local, "localhost/mine:latest")
    assert str(refused.value).endswith(": see `docker images --digests --no-trunc`")


def test_a_container_with_ways_out_shares_the_network_of_its_sidecar():
    asked = room(egress=EGRESS, network=NetworkAccess.EGRESS)
    words = run_arguments(DOCKER, asked)
    assert words[words.index("--network") + 1] == "container:rota-a-1-sidecar"
    assert "--hostname" not in words, "an engine refuses it beside a network that is shared"
    words = run_arguments(replace(PODMAN, users=UserMapping.MAPPED), asked)
    assert words[-4:-1] == ["--userns", "container:rota-a-1-sidecar", "--user"]
    assert not any(EGRESS.socket in word for word in words)


def test_the_sidecar_word_for_word():
    system = SystemFolders((("usr/bin", "/bin"),), ("/usr", "/lib"))
    desk = EgressSocket(socket="/srv/desk/mcp.sock", port=81, alone=True)
    words = sidecar_arguments(DOCKER, room(egress=EGRESS, desk=desk), PYTHON, system)
    shown = [word for word in words if word.startswith("type=bind")]
    assert [word.split(",")[1] for word in shown if "ld.so.cache" not in word] == [
        *("source=/usr", "source=/lib", "source=/opt/python", f"source={FORWARD}"),
    ]
    assert all(word.endswith(",readonly") for word in shown)
    assert [word for word in words if word not in {"--mount", *shown}] == [
        "--detach",
        "--log-driver", "none", "--pull", "never", "--rm", "--entrypoint", "", "--label", "rota.attempt=a-1",
        "--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges",
        "--security-opt", "seccomp=/var/rota/a-1/seccomp.json", "--ipc", "private",
        "--name", "rota-a-1-sidecar", "--hostname", "rota", "--network", "none",
        "--pids-limit", "16", "--ulimit", "core=0:0",
        "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096", "--user", OWN,
        "--held", "/var/rota/a-1/held", "/run/rota/held",
        "--egress", "/srv/g.sock", "/run/rota/egress", "--folder", "/srv/desk", "/run/rota/desk",
        sidecar_image(system)[0], "/opt/python/bin/python3", "-I", "-S", "/run/rota/forward.py",
        "80", "/run/rota/egress", "81", "/run/rota/desk/mcp.sock", "--while", "/run/rota/held",
    ]  # fmt: skip


def test_a_room_without_ways_has_no_sidecar():
    assert sidecar_arguments(DOCKER, room(), PYTHON, SystemFolders((), ())) == []


def test_the_image_of_lobbies_is_called_by_what_is_in_it():
    one, other = SystemFolders((), ("/usr",)), SystemFolders((("usr/lib", "/lib"),), ("/usr",))
    assert sidecar_image(one) == sidecar_image(one)
    assert sidecar_image(one)[0] != sidecar_image(other)[0]


def test_a_container_is_guarded_not_put_in_a_namespace_and_only_its_client_is_asked_to_end():
    executor = ContainerExecutor(PYTHON, MOUNTS, PODMAN, machine="x86_64")
    spec = executor.wrap(
        Program(argv=["agent"], cwd="/srv/one"), room(bounds=ResourceLimits(idle_seconds=3, cpus=1))
    )
    assert (spec.tree, spec.term) == (ProcessTreeMode.GUARD, StopSignalTarget.MAIN)
    assert spec.bounds == ResourceLimits(idle_seconds=3)
    words = list(spec.command.argv)
    assert words[6:9] == ["rota.executors.container.entrypoint", "podman", "/var/rota/a-1"]
    assert words[10:16] == ["--client", "HOME=/h", "/bin/sh", "--root", "/r", "--"]
    assert words[-3:] == ["--", IMAGE, "agent"]


def test_the_profile_forbids_what_the_sandbox_forbids():
    made = json.loads(profile("x86_64"))
    refused = {name for rule in made["syscalls"] if "args" not in rule for name in rule["names"]}
    assert refused == FORBIDDEN | {"clone3"}
    families = [rule["args"][0] for rule in made["syscalls"] if "socket" in rule["names"]]
    denied = {a["value"] for a in families if a["op"] == "SCMP_CMP_EQ"}
    assert denied == set(range(16)) - {1, 2, 10}
    assert [a["value"] for a in families if a["op"] == "SCMP_CMP_GT"] == [16]


def test_a_machine_without_a_list_of_calls_is_refused():
    with pytest.raises(Unavailable, match="use x86_64 or aarch64"):
        ContainerExecutor(PYTHON, MOUNTS, PODMAN, machine="s390x").wrap(Program(argv=["x"]), room())


@pytest.mark.parametrize(
    ("told", "old"),
    [
        ("runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1", "podman, runc 1.1.5"),
        ("Engine 20.10.24 containerd 1.6.20 runc 1.2.7 docker-init 0.19.0 ", "podman, runc 1.2.7"),
        ("runc version 1.2.8", None),
        ("runc version 1.3.2", "podman, runc 1.3.2"),
        ("runc version 1.4.0", None),
        ("runc version 2.0.0", None),
        ("crun version 1.8.1", None),
        ("", None),
    ],
)
def test_a_runtime_with_known_ways_out_is_told_of(told, old):
    assert [each.where for each in outdated_runtime(PODMAN, told)] == ([old] if old else [])
    assert not any(each.needed for each in outdated_runtime(PODMAN, told))
