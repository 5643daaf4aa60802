"""Where a program works: below the space's folder, and by no link."""

import pytest

from rota.errors import Invalid
from rota.executors.kit.working import found, inside
from rota.model.programs import Command
from rota.ports.agent import Room


def test_a_folder_that_is_there_is_taken(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert inside(str(tmp_path), None) == str(tmp_path)
    assert inside(str(tmp_path), "a/b") == f"{tmp_path}/a/b"


@pytest.mark.parametrize("folder", ["none", "file", "link", "link/inner", "../x", "/etc", 5, ""])
def test_anything_else_is_refused(tmp_path, folder):
    work, outside = tmp_path / "work", tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    work.mkdir()
    (work / "file").touch()
    (work / "link").symlink_to(outside)
    with pytest.raises(Invalid, match="^folder "):
        inside(str(work), folder)


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
    room = Room(folder="/f", cwd=str(tmp_path), home="/h", python="/usr/bin/python3")
    command = found(Command(argv=(name, "-x"), cwd=room.cwd), room)
    assert list(command.argv) == [word.format(tmp_path) for word in words]
    assert found(Command(argv=("ls", name), cwd=room.cwd), room).argv == ("ls", name)
    with pytest.raises(Invalid):
        found(Command(argv=(f"{tmp_path}/{name}",), cwd=room.cwd), room)
