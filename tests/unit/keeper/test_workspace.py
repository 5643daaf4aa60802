"""Where a program works: below the space's folder, and by no link."""

import pytest

from rota.errors import Invalid
from rota.keeper.workspace import find_program, working_folder
from rota.model.programs import Program
from rota.ports.agent import AgentWorkspace


def test_a_folder_that_is_there_is_taken(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert working_folder(str(tmp_path), None) == str(tmp_path)
    assert working_folder(str(tmp_path), "a/b") == f"{tmp_path}/a/b"


@pytest.mark.parametrize("folder", ["none", "file", "link", "link/inner", "../x", "/etc", 5, ""])
def test_anything_else_is_refused(tmp_path, folder):
    work, outside = tmp_path / "work", tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    work.mkdir()
    (work / "file").touch()
    (work / "link").symlink_to(outside)
    with pytest.raises(Invalid, match="^folder "):
        working_folder(str(work), folder)


@pytest.mark.parametrize(
    ("name", "mode", "words"),
    [
        ("run.py", 0o644, ["/usr/bin/python3", "{}/run.py", "-x"]),
        ("run.py", 0o755, ["{}/run.py", "-x"]),
        ("run.sh", 0o755, ["{}/run.sh", "-x"]),
        ("run.sh", 0o644, ["{}/run.sh", "-x"]),
    ],
)
def test_a_file_of_the_folder_is_named_by_its_path(tmp_path, name, mode, words):
    (tmp_path / name).touch()
    (tmp_path / name).chmod(mode)
    room = AgentWorkspace(folder="/f", cwd=str(tmp_path), home="/h", python="/usr/bin/python3")
    command = find_program(Program(argv=(name, "-x"), cwd=room.cwd), room)
    assert list(command.argv) == [word.format(tmp_path) for word in words]
    assert find_program(Program(argv=("ls", name), cwd=room.cwd), room).argv == ("ls", name)
    with pytest.raises(Invalid):
        find_program(Program(argv=(f"{tmp_path}/{name}",), cwd=room.cwd), room)


@pytest.fixture
def space(tmp_path):
    """A space's folder with links in it, some of which lead out."""
    work, outside = tmp_path / "work", tmp_path / "outside"
    (work / "app").mkdir(parents=True)
    (work / "tools").mkdir()
    (work / ".venv" / "bin").mkdir(parents=True)
    outside.mkdir()
    for file in (outside / "tool", outside / "tool.py", work / "tools" / "real"):
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)
    (work / "app" / "near").symlink_to("../tools/real")
    (work / "app" / "far").symlink_to(outside / "tool")
    (work / "app" / "far.py").symlink_to(outside / "tool.py")
    (work / "app" / "folder").symlink_to(outside)
    (work / "app" / "round").symlink_to("far")
    (work / ".venv" / "pyvenv.cfg").touch()
    (work / ".venv" / "bin" / "python").symlink_to(outside / "tool")
    (work / ".venv" / "bin" / "evil").symlink_to(outside / "tool")
    return work


def named(work, program, cwd):
    room = AgentWorkspace(
        folder="/f", cwd=str(cwd), work=str(work), home="/h", python="/usr/bin/python3"
    )
    return find_program(Program(argv=(program,), cwd=room.cwd), room).argv


@pytest.mark.parametrize("program", ["far", "far.py", "folder/tool", "round"])
def test_a_program_that_a_link_has_outside_the_space_is_refused(space, program):
    with pytest.raises(Invalid, match="^command "):
        named(space, program, space / "app")


def test_a_link_to_another_file_of_the_space_is_followed(space):
    assert named(space, "near", space / "app") == (f"{space}/app/near",)


def test_the_interpreter_of_an_environment_of_the_space_may_be_a_link(space, tmp_path):
    python = ".venv/bin/python"
    assert named(space, python, space) == (f"{space}/{python}",)
    with pytest.raises(Invalid, match="^command "):
        named(space, ".venv/bin/evil", space)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".venv").symlink_to(space / ".venv")
    with pytest.raises(Invalid, match="^command "):
        named(tmp_path / "other", python, tmp_path / "other")


def test_the_space_itself_may_be_reached_through_a_link(space, tmp_path):
    (tmp_path / "linked").symlink_to(space)
    there = tmp_path / "linked"
    assert named(there, "tools/real", there) == (f"{there}/tools/real",)
