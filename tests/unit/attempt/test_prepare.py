"""Scripts and errands: what is told, for how long, and from where the work comes."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from rota.errors import Invalid
from rota.flow.attempt.prepare import (
    agent_spec,
    apply_one_off_spec,
    identity_variables,
    local_timeout,
    profile_name,
    resource_limits,
    result_line,
)
from rota.flow.claim import make_assignments
from rota.flow.define import tasks
from rota.model.agents import OutputFormat
from rota.model.tasks import NewTask, Overlap, Policy, TaskKind
from rota.rules.permissions import LOCAL
from rota.store.tasks import put_task
from tests.unit.attempt.keeper_home_fake import FakeYard, work_on


async def assignment(desk, *, policy=None, payload=None, **spec):
    await desk.worker("w1")
    owner = await desk.space("main")
    new = NewTask(
        space_id=owner.id, name="job", title="A job", kind=TaskKind.SCRIPT, route="script",
        spec=spec, policy=policy or Policy(), origin="api", thread="telegram:chat:-100:topic:7",
    )  # fmt: skip
    return await claimed(desk, await desk.store.write(put_task, new, None, None), payload)


async def claimed(desk, task, payload):
    batch = desk.batch(task, payloads=[payload])
    await desk.enqueue(batch)
    found = await desk.claimed(1, routes=[task.route])
    return make_assignments(found, desk.store.database.incarnation)[0]


@pytest.mark.parametrize(
    ("config", "length"),
    [
        (None, None),
        ({}, None),
        ({"timeout": 90}, timedelta(seconds=90)),
        ({"timeout": 0.5}, timedelta(milliseconds=500)),
        ({"timeout": "10m"}, timedelta(minutes=10)),
    ],
)
def test_a_local_config_says_how_long(config, length):
    assert local_timeout(None if config is None else json.dumps(config)) == length


@pytest.mark.parametrize("value", [0, -1, True, [], {}, "soon", 1e300, 10**400])
def test_a_local_config_that_says_nonsense_is_refused(value):
    with pytest.raises(Invalid, match="^timeout "):
        local_timeout(json.dumps({"timeout": value}))


async def test_the_tasks_timeout_goes_before_the_configs_and_both_before_half_an_hour(desk):
    plain = await assignment(desk, command=["x"])
    assert resource_limits(plain).hard_seconds == 1800
    assert resource_limits(plain, config='{"timeout": 5}').hard_seconds == 5
    policy = Policy(timeout=timedelta(seconds=7))
    own = plain._replace(task=replace(plain.task, policy=policy))
    assert resource_limits(own, config='{"timeout": 5}').hard_seconds == 7


async def test_a_script_knows_its_run_its_task_and_its_conversation(desk):
    given = await assignment(desk, command=["x"], payload={"a": 1})
    told = identity_variables(given)
    assert told["ROTA_THREAD_KEY"] == "telegram:chat:-100:topic:7"
    assert told["ROTA_TRACE_ID"] == given.trace_id
    assert json.loads(told["ROTA_PAYLOAD"]) == {"a": 1}
    assert json.loads(told["ROTA_PROFILE"]) == json.loads(profile_name(given))
    assert json.loads(profile_name(given)) == {
        "name": "job", "title": "A job", "kind": "script", "space": "main",
        "thread": "telegram:chat:-100:topic:7", "attempts": 1, "pool": "background",
    }  # fmt: skip


async def test_a_script_knows_for_which_of_its_schedules_it_runs(desk, chance):
    await desk.worker("w1")
    owner = await desk.space("main")
    new = NewTask(
        space_id=owner.id, name="job", title="", kind=TaskKind.SCRIPT, route="script",
        spec={"command": ["x"]}, policy=Policy(overlap=Overlap.ALLOW), origin="api",
    )  # fmt: skip
    task = await desk.store.write(put_task, new, None, None)
    for name in ("often", "seldom"):
        await desk.planned(task, name=name, every="1h")
    desk.clock.advance(timedelta(hours=1))
    await desk.plan()
    yard = FakeYard()
    yard.end(b"done\n")
    for given in make_assignments(
        await desk.claimed(2, routes=["script"]), desk.store.database.incarnation
    ):
        await work_on(desk.store, yard, chance).run(given)
    told = [command.env for command in yard.started]
    assert sorted(env["ROTA_SCHEDULE"] for env in told) == ["often", "seldom"]
    assert all(json.loads(env["ROTA_PROFILE"])["schedule"] == env["ROTA_SCHEDULE"] for env in told)


async def test_a_script_that_somebody_asked_for_is_of_no_schedule(desk):
    given = await assignment(desk, command=["x"])
    assert "ROTA_SCHEDULE" not in identity_variables(given)


async def test_a_payload_that_is_too_long_for_a_variable_is_in_none(desk):
    given = await assignment(desk, command=["x"], payload="é" * 60_000)
    assert "ROTA_PAYLOAD" not in identity_variables(given)


@pytest.mark.parametrize("given", [b'{"n": 1e999}', b"[" * 200 + b"]" * 200])
def test_a_result_file_that_nobody_could_read_again_is_a_bad_result(given):
    record = json.loads(result_line(given))
    assert (record["rota"], record["class"]) == ("error", "bad_result")


def test_a_result_file_of_control_characters_is_no_line_of_rotas():
    record = json.loads(result_line(b"a" + b"\x00" * 200_000 + b"b"))
    assert record == {"rota": "result", "text": "ab"}


async def test_a_shell_gets_one_line(desk):
    said = {"command": ["a | b"], "shell": True, "output": "lines"}
    wish = agent_spec(await assignment(desk, **said))
    assert (wish.program, wish.output) == (("sh", "-c", "a | b"), OutputFormat.LINES)


async def errand(desk, kind, told):
    await desk.worker("w1")
    await desk.space("main")
    task = await tasks.task_for(desk.store, LOCAL, kind, "main")
    return await claimed(desk, task, told)


async def test_an_errand_of_a_script_brings_its_own_work(desk):
    told = {"command": ["a", "b"], "timeout": 7.0, "payload": [1], "metadata": {"of": "ann"}}
    given = apply_one_off_spec(await errand(desk, TaskKind.SCRIPT, told))
    wish = agent_spec(given)
    assert (wish.program, wish.instructions) == (("a", "b"), "[1]")
    assert resource_limits(given).hard_seconds == 7
    assert json.loads(profile_name(given))["metadata"] == {"of": "ann"}


async def test_what_is_too_long_for_a_variable_is_left_out_of_the_profile(desk):
    told = {"command": ["x"], "metadata": {"of": "é" * 20_000}, "payload": "\ud800"}
    given = apply_one_off_spec(await errand(desk, TaskKind.SCRIPT, told))
    assert "metadata" not in json.loads(profile_name(given))
    assert len(identity_variables(given)["ROTA_PAYLOAD"].encode()) < 20


async def test_an_errand_of_an_agent_brings_its_own_work(desk):
    told = {"instructions": "Look.", "agent": "claude", "tools": ["Read"], "payload": {"x": 1}}
    wish = agent_spec(apply_one_off_spec(await errand(desk, TaskKind.AGENT, told)))
    assert (wish.instructions, wish.tools) == ('Look.\n\n{"x": 1}', ("Read",))


@pytest.mark.parametrize("told", [None, "x", {"command": "rm -rf"}, {"command": [1]},
                                  {"command": ["x"], "timeout": "soon"}])  # fmt: skip
async def test_an_errand_that_brings_nonsense_is_refused(desk, told):
    with pytest.raises(Invalid):
        apply_one_off_spec(await errand(desk, TaskKind.SCRIPT, told))


async def test_the_payload_of_a_task_is_only_a_payload(desk):
    given = await assignment(desk, command=["mine"], payload={"command": ["evil"]})
    assert agent_spec(apply_one_off_spec(given)).program == ("mine",)
