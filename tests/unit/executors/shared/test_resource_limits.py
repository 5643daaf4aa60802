"""Control groups, on trees that look like the kernel's."""

import shutil
from pathlib import Path

import pytest

from rota.errors import Unavailable
from rota.executors.shared.exec_program import join_cgroup
from rota.executors.shared.resource_limits import (
    CgroupHierarchy,
    delegate_controllers,
    find_hierarchy,
    remove_cgroup,
)
from rota.model.programs import ResourceLimits


def a_group(root, path, *, controllers="cpu memory pids", handed_down=""):
    folder = root / path.strip("/")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.subtree_control").write_text(handed_down)
    (folder / "cgroup.procs").write_text("")
    return folder


def own(tmp_path, text):
    path = tmp_path / "own"
    path.write_text(text)
    return str(path)


def test_a_group_that_hands_its_controllers_down_is_used(tmp_path):
    folder = a_group(tmp_path, "/rota.service", handed_down="memory pids")
    a_group(tmp_path, "/rota.service/rota.leaf")
    found = find_hierarchy(str(tmp_path), own(tmp_path, "0::/rota.service/rota.leaf\n"))
    assert found == CgroupHierarchy(str(folder), frozenset({"memory", "pids"}), unified=True)


def test_a_group_that_is_not_delegated_is_left_alone(tmp_path):
    a_group(tmp_path, "/user.slice")
    assert find_hierarchy(str(tmp_path), own(tmp_path, "0::/user.slice\n")) is None
    assert find_hierarchy(str(tmp_path), own(tmp_path, "0::/elsewhere\n")) is None


def test_the_old_hierarchy_bounds_the_number_of_processes(tmp_path):
    folder = a_group(tmp_path, "/pids")
    found = find_hierarchy(str(tmp_path), own(tmp_path, "8:pids:/\n4:memory:/\n0::/\n"))
    assert found is not None
    assert (found.folder.rstrip("/"), found.unified) == (str(folder), False)
    assert found.settings(ResourceLimits(processes=5, memory_bytes=9, cpus=1)) == {"pids.max": "5"}


def test_a_daemon_in_the_leaf_hands_its_controllers_down(tmp_path):
    folder = a_group(tmp_path, "/rota.service", controllers="cpuset cpu memory pids")
    a_group(tmp_path, "/rota.service/rota.leaf")
    delegate_controllers(str(tmp_path), own(tmp_path, "0::/rota.service/rota.leaf\n"))
    assert (folder / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"


@pytest.mark.parametrize("path", ["/", "/user.slice/session-1.scope", "/rota.service"])
def test_a_daemon_anywhere_else_moves_and_changes_nothing(tmp_path, path):
    """Others stand there too, or a restart of the service would find the group closed."""
    folder = a_group(tmp_path, path)
    (folder / "cgroup.procs").write_text("17\n18\n")
    delegate_controllers(str(tmp_path), own(tmp_path, f"0::{path}\n"))
    assert (folder / "cgroup.subtree_control").read_text() == ""
    assert (folder / "cgroup.procs").read_text() == "17\n18\n"
    assert not (folder / "rota.leaf").exists()


def test_a_leaf_whose_group_is_not_ours_is_told_and_left(tmp_path, caplog):
    delegate_controllers(str(tmp_path), own(tmp_path, "0::/gone/rota.leaf\n"))
    assert "cgroup.not_delegated" in caplog.text


def test_a_machine_without_control_groups_has_none(tmp_path):
    delegate_controllers(str(tmp_path), str(tmp_path / "none"))
    assert find_hierarchy(str(tmp_path), str(tmp_path / "none")) is None


def test_bounds_are_written_before_anybody_steps_in(tmp_path):
    whole = CgroupHierarchy(str(tmp_path), frozenset({"pids", "memory", "cpu"}), unified=True)
    settings = whole.settings(ResourceLimits(processes=5, memory_bytes=9, cpus=1.5))
    assert settings["cpu.max"] == "150000 100000"
    with pytest.raises(FileNotFoundError):  # a plain folder has none of the kernel's files
        join_cgroup(
            whole.path("a"), ",".join(f"{name}={value}" for name, value in settings.items())
        )
    assert not (tmp_path / "rota-a" / "cgroup.procs").exists()


def test_groups_that_a_program_made_inside_its_own_go_with_it(tmp_path, monkeypatch):
    folder = a_group(tmp_path, "/rota-a")
    inner = a_group(tmp_path, "/rota-a/own/deeper")
    for group in (folder, inner.parent, inner):
        (group / "cgroup.kill").write_text("")
    gone = []

    def as_the_kernel_does(path):
        """Its files are no files: a group without groups in it can be removed."""
        if any(one.is_dir() for one in path.iterdir()):
            raise OSError(16, "Device or resource busy")
        assert (path / "cgroup.kill").read_text() == "1"
        gone.append(path.name)
        shutil.rmtree(path)

    monkeypatch.setattr(Path, "rmdir", as_the_kernel_does)
    remove_cgroup(CgroupHierarchy(str(tmp_path), frozenset(), unified=True), "a", patience=0)
    assert gone == ["deeper", "own", "rota-a"]


def test_a_group_that_does_not_empty_is_told(tmp_path):
    folder = a_group(tmp_path, "/rota-a")
    (folder / "cgroup.kill").write_text("")
    with pytest.raises(Unavailable, match="is not empty"):
        remove_cgroup(CgroupHierarchy(str(tmp_path), frozenset(), unified=True), "a", patience=0)
    assert (folder / "cgroup.kill").read_text() == "1"
    remove_cgroup(CgroupHierarchy(str(tmp_path), frozenset(), unified=True), "never-made")
