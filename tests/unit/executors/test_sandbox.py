"""Places put words together; these are the words."""

import os
from dataclasses import replace

import pytest

from rota.errors import Invalid, NotPermitted, Unavailable
from rota.executors.process.executor import START, ProcessExecutor
from rota.executors.sandbox.executor import (
    HostFeatures,
    SandboxExecutor,
    bwrap_arguments,
    final_arguments,
    start_programs,
    with_forwarders,
)
from rota.executors.shared.mounts import AllowedMount, MountAllowlist, environment
from rota.executors.shared.resource_limits import CgroupHierarchy, enforced_limits, limit_arguments
from rota.keeper.build import Interpreter
from rota.keeper.workspace import ISOLATED_PROCESSES, limits_for_isolated
from rota.model.programs import MIB, NetworkAccess, Program, ResourceLimits
from rota.model.spaces import SpaceRole
from rota.ports.executor import EgressSocket, ExecutionSpec, ProcessTreeMode, StopSignalTarget

PYTHON = Interpreter("/opt/python/bin/python3", "/opt/python", "/opt/rota")
HOST = HostFeatures(
    links=[("usr/bin", "/bin")],
    folders=["/usr"],
    etc=["localtime"],
    etc_online=["hosts"],
    telltale=["keys"],
)
UNIFIED = CgroupHierarchy(
    "/sys/fs/cgroup/rota.service", frozenset({"pids", "memory"}), unified=True
)
OLD = CgroupHierarchy("/sys/fs/cgroup/pids", frozenset({"pids"}), unified=False)
MOUNTS = MountAllowlist(
    [AllowedMount(folder="/srv/spaces", members_write=False), AllowedMount(folder="/srv/runs")]
)


def room(**changes):
    given = {
        "name": "run-7-1",
        "state": "/srv/state/7",
        "folder": "/srv/spaces/one",
        "home": "/srv/runs/7/home",
    }
    return ExecutionSpec(**(given | changes))


def followed_by(words, *run):
    """Say whether words stand in a list, one behind the other."""
    return any(tuple(words[i : i + len(run)]) == run for i in range(len(words)))


def test_the_walls_word_for_word():
    words = bwrap_arguments(
        HOST,
        PYTHON,
        room(role=SpaceRole.MAIN, guarded=[".envrc"]),
        MOUNTS.of(room(role=SpaceRole.MAIN)),
    )
    assert words == [
        "--unshare-all", "--unshare-user", "--disable-userns", "--assert-userns-disabled",
        "--new-session", "--die-with-parent", "--cap-drop", "ALL",
        "--uid", "1000", "--gid", "1000", "--hostname", "rota",
        "--ro-bind", "/usr", "/usr",
        "--symlink", "usr/bin", "/bin",
        "--ro-bind", "/etc/localtime", "/etc/localtime",
        "--text", "/etc/passwd", "agent:x:1000:1000::/srv/runs/7/home:/bin/sh\n",
        "--text", "/etc/group", "agent:x:1000:\n",
        "--text", "/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n",
        "--text", "/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n",
        "--ro-bind", "/opt/python", "/opt/python",
        "--proc", "/proc",
        "--ro-bind", "/dev/null", "/proc/keys",
        "--remount-ro", "/proc",
        "--dev", "/dev",
        "--size", "268435456", "--tmpfs", "/dev/shm",
        "--size", "1073741824", "--tmpfs", "/tmp",
        "--size", "268435456", "--tmpfs", "/var/tmp",
        "--remount-ro", "/dev",
        "--lend", "/srv/spaces", "/srv/spaces/one",
        "--lend", "/srv/runs", "/srv/runs/7/home",
        "--guard", "/srv/spaces/one", ".envrc",
    ]  # fmt: skip


def test_the_last_steps_word_for_word():
    seen, steps = start_programs(
        PYTHON, ["--limit", "CORE", "0"], EgressSocket(socket="/srv/g.sock", port=80)
    )
    assert seen[::3] == ["--ro-bind", "--ro-bind", "--egress"]
    assert seen[-2:] == ["/srv/g.sock", "/run/rota/egress.sock"]
    python = ["/opt/python/bin/python3", "-I", "-S"]
    assert steps == [
        *(*python, "/run/rota/start.py", "--limit", "CORE", "0", "--"),
        *(*python, "/run/rota/forward.py", "80", "/run/rota/egress.sock", "--"),
    ]
    assert final_arguments(Program(argv=(), cwd="/srv/x/../y/")) == [
        "--remount-ro",
        "/",
        "--chdir",
        "/srv/y",
    ]


def test_what_carries_the_ways_out_does_not_count_as_the_programs():
    way, bounds = EgressSocket(socket="/srv/g.sock", port=80), ResourceLimits(processes=5)
    assert with_forwarders(room(bounds=bounds)).bounds.processes == 5
    assert with_forwarders(room(bounds=bounds, desk=way)).bounds.processes == 7
    assert with_forwarders(room(bounds=bounds, desk=way, egress=way)).bounds.processes == 8
    assert with_forwarders(room(desk=way)).bounds.processes is None


def test_a_member_reads_where_the_list_says_so_and_nothing_there_needs_a_guard():
    words = bwrap_arguments(HOST, PYTHON, room(), MOUNTS.of(room()))
    assert followed_by(words, "--show", "/srv/spaces", "/srv/spaces/one")
    assert followed_by(words, "--lend", "/srv/runs", "/srv/runs/7/home")
    assert "--guard" not in words


def test_only_an_open_network_is_shared_and_needs_names():
    closed, opened = (
        bwrap_arguments(HOST, PYTHON, room(network=n), ())
        for n in (NetworkAccess.NONE, NetworkAccess.OPEN)
    )
    assert "--share-net" not in closed
    assert "/etc/hosts" in closed
    assert "--share-net" in opened
    assert followed_by(opened, "--ro-bind", "/etc/hosts", "/etc/hosts")


def test_a_control_group_holds_what_it_can_and_rlimits_the_rest():
    bounds = ResourceLimits(
        processes=50, memory_bytes=1000, open_files=20, file_bytes=30, hard_seconds=5
    )
    asked = room(bounds=bounds)
    whole, old, none = (limit_arguments(asked, h, counts_alone=True) for h in (UNIFIED, OLD, None))
    assert whole.outside[:3] == [
        "--group",
        "/sys/fs/cgroup/rota.service/rota-run-7-1",
        "pids.max=50,memory.max=1000,memory.swap.max=0,memory.oom.group=1",
    ]
    assert " ".join(whole.outside[3:]) == "--limit CORE 0 --limit NOFILE 20 --limit FSIZE 30"
    assert old.outside[2] == "pids.max=50"
    assert old.outside[-3:] == ["--limit", "DATA", "1000"]
    assert "--group" not in none.outside
    assert [whole.inside, old.inside, none.inside] == [[], [], ["--limit", "NPROC", "50"]]
    assert whole.left == ResourceLimits(hard_seconds=5)


def test_behind_walls_processes_are_always_bounded_and_memory_where_it_is_for_all_together():
    together, each = (
        enforced_limits(UNIFIED, counts_alone=True),
        enforced_limits(OLD, counts_alone=True),
    )
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    usual = ResourceLimits(processes=ISOLATED_PROCESSES)
    assert limits_for_isolated(ResourceLimits(), together) == replace(usual, memory_bytes=half)
    assert limits_for_isolated(ResourceLimits(), each) == usual
    named = ResourceLimits(processes=5, memory_bytes=9)
    assert limits_for_isolated(named, together) == limits_for_isolated(named, each) == named


def test_a_part_of_the_processors_is_held_by_a_control_group_or_refused():
    asked = room(bounds=ResourceLimits(cpus=0.5))
    able = CgroupHierarchy("/sys/fs/cgroup/rota.service", frozenset({"cpu"}), unified=True)
    assert limit_arguments(asked, able, counts_alone=True).outside[2] == "cpu.max=50000 100000"
    for unable in (UNIFIED, OLD, None):
        with pytest.raises(Unavailable, match="delegate the cpu controller to Rota"):
            limit_arguments(asked, unable, counts_alone=True)


def test_processes_are_not_counted_by_user_where_others_of_that_user_run():
    assert (
        limit_arguments(room(bounds=ResourceLimits(processes=50)), None, counts_alone=False).inside
        == []
    )


def test_a_plain_process_is_the_program_behind_its_bounds():
    executor = ProcessExecutor(PYTHON, hierarchy=UNIFIED, certain_kill=False)
    command = Program(argv=["/bin/x", "a b"], env={"A": "1"}, cwd="/srv", stdin=b"in")
    spec = executor.wrap(command, room(isolated=False, bounds=ResourceLimits(processes=9)))
    assert spec.command.argv == [
        *("/opt/python/bin/python3", "-I", "-S", START),
        *("--group", "/sys/fs/cgroup/rota.service/rota-run-7-1", "pids.max=9"),
        *("--limit", "CORE", "0", "--", "/bin/x", "a b"),
    ]
    assert (spec.command.cwd, spec.command.stdin) == ("/srv", b"in")
    assert spec.command.env["HOME"] == "/srv/runs/7/home"
    assert (spec.name, spec.tree, spec.term) == (
        "run-7-1",
        ProcessTreeMode.AUTO,
        StopSignalTarget.ALL,
    )
    assert executor.certain_kill


@pytest.mark.parametrize("hierarchy", [None, OLD, UNIFIED])
def test_a_plain_process_without_bounds_is_the_program_itself(hierarchy):
    executor = ProcessExecutor(PYTHON, hierarchy=hierarchy, certain_kill=True)
    timed = ResourceLimits(hard_seconds=5, output_bytes=9)
    spec = executor.wrap(Program(argv=["/bin/x", "a b"]), room(isolated=False, bounds=timed))
    assert (spec.command.argv, spec.bounds) == (["/bin/x", "a b"], timed)
    assert spec.command.env["HOME"] == "/srv/runs/7/home"


def test_a_plain_process_joins_a_group_where_nothing_else_ends_its_tree_for_certain():
    executor = ProcessExecutor(PYTHON, hierarchy=UNIFIED, certain_kill=False)
    spec = executor.wrap(Program(argv=["/bin/x"]), room(isolated=False))
    assert "--group" in spec.command.argv


def test_a_plain_process_says_what_it_cannot_bound_and_refuses_walls():
    executor = ProcessExecutor(PYTHON, hierarchy=None, certain_kill=False)
    assert not executor.certain_kill
    assert [m.what for m in executor.check()] == [
        "a limit on the number of processes",
        "a limit on the memory of all processes together",
        "a limit on CPUs",
    ]
    with pytest.raises(Unavailable, match="process does not isolate programs"):
        executor.wrap(Program(argv=["x"]), room())


def test_folders_in_memory_are_no_larger_than_the_memory_a_program_may_use():
    small = room(bounds=ResourceLimits(memory_bytes=300 * MIB))
    words = bwrap_arguments(HOST, PYTHON, small, MOUNTS.of(small))
    sizes = [int(words[n + 1]) // MIB for n, word in enumerate(words) if word == "--size"]
    assert sizes == [256, 300, 256]


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_LIBRARY_PATH", "GCONV_PATH", "TMUX_TMPDIR"])
def test_a_program_behind_walls_cannot_change_who_builds_them(name):
    command = Program(argv=["x"], env={name: "/srv/evil.so"})
    with pytest.raises(Invalid, match="would take effect outside"):
        environment(command, room())
    assert environment(command, room(isolated=False))[name] == "/srv/evil.so"


@pytest.mark.parametrize(("name", "value"), [("A=B", "x"), ("", "x"), ("A", "x\0y"), ("A\n", "x")])
def test_an_environment_that_cannot_be_handed_over_is_refused(name, value):
    with pytest.raises(Invalid):
        environment(Program(argv=["x"], env={name: value}), room())


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../up"},
        {"name": "Ä"},
        {"name": "a\n"},
        {"folder": "work"},
        {"folder": "/srv/../etc"},
        {"readable": ["/srv/"]},
        {"guarded": ["../x"]},
        {"guarded": ["/etc"]},
        {"egress": EgressSocket(socket="g", port=1)},
    ],
)
def test_a_room_is_made_of_plain_names_and_absolute_paths(changes):
    with pytest.raises(Invalid):
        room(**changes)


def test_the_sandbox_shows_nothing_that_is_not_listed(tmp_path):
    (tmp_path / "bwrap").write_text("")
    (tmp_path / "bwrap").chmod(0o755)
    executor = SandboxExecutor(
        PYTHON, MOUNTS, hierarchy=OLD, search_path=str(tmp_path), machine="x86_64", host=HOST
    )
    with pytest.raises(NotPermitted, match="/home/other"):
        executor.wrap(Program(argv=["x"]), room(readable=["/home/other"]))
    spec = executor.wrap(Program(argv=["x", "--"], cwd="/srv/spaces/one"), room())
    words = spec.command.argv
    assert words[5:8] == ["/opt/rota", "rota.executors.sandbox.entrypoint", "--group"]
    assert followed_by(words, "--", "x", "--")
    assert spec.command.cwd == "/"
    assert os.fspath(tmp_path / "bwrap") in words


def test_the_sandbox_knows_machines_by_name(tmp_path):
    executor = SandboxExecutor(PYTHON, MOUNTS, machine="riscv64", host=HOST)
    with pytest.raises(Unavailable, match="use x86_64 or aarch64"):
        executor.wrap(Program(argv=["x"]), room())
