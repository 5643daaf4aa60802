"""No plug-in is named outside its own folder: what differs is data of its descriptor."""

import ast
from pathlib import Path

import pytest

from rota.app.plugins import find_plugins
from rota.cli.command_line import render_pages

SRC = Path(__file__).parents[2] / "src" / "rota"
FOUND = find_plugins()
NAMES = {
    **{name: f"executors/{name}/" for name in FOUND.executors},
    **{name: f"agents/{name}/" for name in FOUND.named_agents()},
    **{name: f"channels/{name}/" for name in FOUND.channels},
}
ROOMS = ("agents/", "channels/", "executors/")
WORDS = {"command", "log", "process"}
"""Names that are words of their own: fields, keys and kinds have them too. Where they are compared, listed or made a constant, they stand for the plug-in."""
EXCEPTIONS = {
    ("keeper/linux.py", "tmux"): "the name of a program in /proc, on which no signal is wasted",
    ("keeper/build.py", "process"): "a module of the keeper",
    ("model/checks.py", "command"): "a kind of check",
    ("rules/checks.py", "command"): "the field of a gate",
    ("rules/permissions.py", "command"): "the field of a task",
    ("flow/define/attempt_requests.py", "command"): "the field of a task",
    ("cli/task_options.py", "command"): "the field of a task",
    ("commands/task_fields.py", "command"): "the field of a task",
    ("commands/task_inputs.py", "command"): "the field of a task",
}


def modules():
    for path in sorted(SRC.rglob("*.py")):
        where = path.relative_to(SRC).as_posix()
        if not where.startswith("testing/"):
            yield where, ast.parse(path.read_text())


def names_in(tree, where):
    """Yield the names of plug-ins that stand in a module as text."""
    meant = meanings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in NAMES:
            name = node.value
            own = where.startswith(ROOMS if name in WORDS else NAMES[name])
            if not own and (name not in WORDS or id(node) in meant):
                yield name


def meanings(tree):
    """Return the texts that are compared, listed, annotated, or the value of a name."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Compare():
                held = [node.left, *node.comparators]
            case ast.List() | ast.Tuple() | ast.Set():
                held = node.elts
            case ast.MatchValue() | ast.Assign() | ast.AnnAssign() | ast.keyword():
                held = [node.value]
            case ast.arguments():
                held = [*node.defaults, *node.kw_defaults]
            case _:
                held = []
        found |= {id(one) for one in held if one is not None}
    return found


def test_no_plug_in_is_named_outside_its_room():
    stray = {(where, name) for where, tree in modules() for name in names_in(tree, where)}
    assert stray == EXCEPTIONS.keys()


@pytest.mark.parametrize("folder", ["rules", "commands", "app"])
def test_no_help_text_of_a_field_lists_plug_ins(folder):
    """A description or a message may not list what the registry knows."""
    names = [name for name in NAMES if name not in WORDS]
    for where, tree in modules():
        if where.startswith(f"{folder}/"):
            spoken = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
            texts = [
                n.value
                for n in ast.walk(tree)
                if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in spoken
            ]
            listed = [text for text in texts if {*text.split()} & {*names}]
            assert listed == [], where


def test_help_pages_name_no_plug_in():
    for command, page in render_pages().items():
        words = page.replace(",", " ").split()
        assert not {*words} & (NAMES.keys() - WORDS), command
