"""Which programs a task may name."""

import pytest

from rota.errors import Invalid
from rota.rules.task_spec import check_folder, check_script

GOOD = [
    {"command": ["greet.py"]},
    {"command": ["bin/greet", "/etc/passwd", "..", "-rf"]},
    {"command": ["./a:b"]},
    {"command": ["reports:daily"]},
    {"command": ["/bin/ls ../.. | wc -l"], "shell": True},
]
BAD = [
    {},
    {"command": []},
    {"command": [""]},
    {"command": [" "]},
    {"command": ["/bin/ls"]},
    {"command": ["../greet.py"]},
    {"command": ["bin/../../greet.py"]},
    {"command": [".."]},
    {"command": ["-c"]},
    {"command": ["a\0b"]},
    {"command": ["a", "b\0"]},
    {"command": ["ls", "-l"], "shell": True},
    {"command": [], "shell": True},
    {"command": [" "], "shell": True},
    {"command": ["a\0b"], "shell": True},
]


@pytest.mark.parametrize("spec", GOOD, ids=repr)
def test_what_lies_inside_or_on_the_path_is_taken(spec):
    check_script(spec)


@pytest.mark.parametrize("spec", BAD, ids=repr)
def test_what_lies_outside_is_refused(spec):
    with pytest.raises(Invalid, match="^command "):
        check_script(spec)


@pytest.mark.parametrize("folder", ["a", "a/b", "a b", "..a", "-a"])
def test_a_folder_inside_is_taken(folder):
    check_folder(folder)


@pytest.mark.parametrize(
    "folder", ["", "/", "/a", "a/", "a//b", ".", "./a", "..", "a/../..", "a\0"]
)
def test_a_folder_outside_is_refused(folder):
    with pytest.raises(Invalid, match="^folder "):
        check_folder(folder)
