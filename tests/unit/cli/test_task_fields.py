"""One table describes the fields of tasks; everything else follows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from rota.commands.task_fields import TASK_FIELDS, FieldKind, TaskCommand, fields_at
from rota.commands.task_inputs import CreateTask, SetTask, UpdateTask
from rota.flow.define.policies import policy_from
from rota.model.json import to_json
from rota.model.tasks import Policy

NEW_FIELD = """
import dataclasses, json, sys
from datetime import timedelta
import rota.commands.task_fields as table
import rota.model.tasks as model

cooldown = table.TaskField(
    "policy.cooldown", table.FieldKind.LENGTH, "Time between two runs",
    option="--cooldown LENGTH", default="0s", off=table.NONE,
)
table.TASK_FIELDS = (*table.TASK_FIELDS, cooldown)
fields = [("cooldown", timedelta | None, None)]
model.Policy = dataclasses.make_dataclass(
    "Policy", fields, bases=(model.Policy,), frozen=True, slots=True, kw_only=True
)

from rota.cli.command_line import render_pages, run_command
from rota.cli.reference import task_fields_page
from rota.commands.task_inputs import CreateTask, SetTask, UpdateTask

home, file = sys.argv[1:]
front = ["--home", home]
for words in (
    ["task", "create", "x", "--command", "true", "--cooldown", "5m"],
    ["task", "edit", "x", "--cooldown", "7m"],
    ["task", "show", "x"],
    ["task", "edit", "x", "--cooldown", "none"],
    ["task", "show", "x", "--json"],
    ["task", "edit", "x", "--cooldown", "soon"],
    ["apply", file],
    ["task", "show", "filed", "--json"],
):
    out = [word for word in words if word == "--json"]
    print("\\x1e" + " ".join(words), flush=True)
    try:
        print(run_command([*front, *out], [w for w in words if w != "--json"]), flush=True)
    except SystemExit as ending:
        print(ending.code, flush=True)
for name, page in render_pages("task").items():
    print(f"\\x1e{name}\\n{page}")
print("\\x1ereference\\n" + task_fields_page())
for kind in (CreateTask, UpdateTask, SetTask):
    schema = kind.model_json_schema()
    print("\\x1e" + kind.__name__ + "\\n" + json.dumps(schema["$defs"]["PolicyInput"]["properties"]))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What an interpreter says in which the table has one field more."""
    folder = tmp_path_factory.mktemp("field")
    file = folder / "tasks.toml"
    file.write_text('[tasks.filed]\ncommand = ["true"]\npolicy.cooldown = "9m"\n')
    done = subprocess.run(
        [sys.executable, "-c", NEW_FIELD, str(folder / "home"), str(file)],
        env={name: value for name, value in os.environ.items() if not name.startswith("ROTA_")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    parts = (part.partition("\n") for part in done.stdout.split("\x1e")[1:])
    return {words: text for words, _, text in parts} | {"errors": done.stderr}


@pytest.mark.parametrize("command", ["rota task create", "rota task edit"])
def test_a_new_field_is_an_option(told, command):
    assert "--cooldown LENGTH" in told[command]
    assert "Time between two runs" in told[command]


def test_a_new_field_is_stored_shown_changed_and_removed(told):
    assert "cooldown 7 min" in told["task show x"]
    record = json.loads(told["task show x --json"].rpartition("\n0")[0])
    assert record["policy"]["cooldown"] is None
    assert '--cooldown "soon": write a length' in told["errors"]


def test_a_new_field_is_a_key_of_files(told):
    record = json.loads(told["task show filed --json"].rpartition("\n0")[0])
    assert record["policy"]["cooldown"] == 540


@pytest.mark.parametrize("model", ["CreateTask", "UpdateTask", "SetTask"])
def test_a_new_field_is_in_the_models_of_http(told, model):
    found = json.loads(told[model])["cooldown"]
    assert found["description"] == "Time between two runs [default: 0s]"


def test_a_new_field_is_a_row_of_the_reference(told):
    row = (
        "| `policy.cooldown` | `--cooldown LENGTH` | duration | 0s | all | Time between two runs |"
    )
    assert row in told["reference"]


def at(record, path):
    for name in path.split(".")[1:]:
        record = record[name]
    return record


@pytest.mark.parametrize(
    "field", [f for f in fields_at("policy") if f.default], ids=lambda field: field.path
)
def test_the_default_that_the_table_tells_is_that_of_the_policy(field):
    default = at(to_json(Policy()), field.path)
    if default is None:
        assert field.default.startswith("the setting ") or field.kind is FieldKind.CHOICE
    elif field.kind is FieldKind.FLAG:
        assert default is (field.default == "yes")
    elif field.kind in {FieldKind.INTEGER, FieldKind.NUMBER}:
        assert default == float(field.default)
    else:
        options = field.default
        for name in reversed(field.path.split(".")[1:]):
            options = {name: options}
        assert at(to_json(policy_from(options)), field.path) == default


def test_names_and_options_are_unique():
    paths = [field.path for field in TASK_FIELDS]
    options = [field.flag for field in TASK_FIELDS if field.option]
    assert len(set(paths)) == len(paths)
    assert len(set(options)) == len(options)


@pytest.mark.parametrize(
    ("model", "command"),
    [
        (CreateTask, TaskCommand.CREATE),
        (UpdateTask, TaskCommand.EDIT),
        (SetTask, TaskCommand.APPLY),
    ],
)
def test_a_request_takes_the_fields_of_its_command(model, command):
    own = {"name", "task", "space", "schedule_name"}
    assert set(model.model_fields) - own == {field.root for field in fields_at("", command)}
