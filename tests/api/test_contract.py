"""The door keeps to its OpenAPI file, whatever is sent."""

import pytest
import schemathesis
from schemathesis.engine import events, from_schema

from rota.api.http_server import ListenAddress
from rota.api.middleware import TrustedHosts
from rota.api.openapi import describe_api
from rota.app.secrets import LocalSecretStore
from rota.app.settings import load_settings
from rota.commands.catalogue import every_command
from rota.model.tasks import NewTask, TaskKind
from rota.store.sqlite.database import MemoryDatabase
from rota.store.tasks import find_space, put_task
from rota.testing.fakes import VirtualClock
from tests.api.conftest import Door

EXAMPLES = 10
WORDS = {
    "create_space": "a time zone",
    "change_space": "a time zone",
    "create_key": "a printable name, and a time to come",
    "create_task": "rules, zones and lengths of time",
    "create_thread_task": "rules, zones and lengths of time",
    "change_task": "rules, zones and lengths of time",
    "put_task": "rules, zones and lengths of time",
    "disable_task": "an instant in words",
    "run_task": "input or payload",
    "why_of_task": "an instant in words",
    "put_schedule": "rules, zones and lengths of time",
    "preview_schedule": "rules, zones and lengths of time",
    "create_run": "instants, zones and lengths of time",
    "put_state": "printable keys",
    "mark_seen": "printable items, each once",
    "backfill_task": "instants in words",
    "set_task_budget": "lengths of time",
    "set_space_budget": "lengths of time",
    "set_limit": "keys that fit their scope, and lengths of time",
    "remove_limit": "keys that fit their scope",
    "set_preference": "places of channels that there are",
    "ask_sql": "SQL",
    "list_readings": "instants of our time",
    "say": "the name of an agent",
    "register_thread": "a task that takes part, and facts that are not too many",
    "archive_session": "a session or a thread",
    "clear_session": "a session or a thread",
}
"""Operations that read words no schema can describe: 400, or 413 for too many of them."""
MATCHED = ("change_task", "put_task", "delete_task")
"""Operations that may find the task changed, with 412."""
USUAL = ("2xx", "401", "403", "404", "409")
REFUSED = ("400", "401", "403", "404", "405", "409", "415")


def _expected(name):
    accepted = [*USUAL, *(["400", "413"] if name in WORDS else [])]
    refused = [*REFUSED, *(["413"] if name in WORDS else [])]
    if name in MATCHED:
        accepted.append("412")
        refused.append("412")
    checks = {
        "positive_data_acceptance": {"expected-statuses": accepted},
        "negative_data_rejection": {"expected-statuses": refused},
    }
    return {"include-operation-id": name, "checks": checks}


@pytest.fixture(scope="module")
def filled(loop, tmp_path_factory):
    clock = VirtualClock()
    secrets = LocalSecretStore(load_settings(str(tmp_path_factory.mktemp("home"))))
    door = Door(loop, MemoryDatabase(clock), clock, secrets=secrets)
    door.start(ListenAddress(port=0), TrustedHosts())
    try:
        _fill(door)
        yield door
    finally:
        door.stop()


def _fill(door):
    """Make what the simplest values name, so that requests find something to work on."""
    door.run(door.bench.space("0"))
    for space in ("main", "0"):
        of = {"space": space}
        door.run(_task(door, space))
        door.main.put("/v1/tasks/0/schedules/default", of | {"schedule": {"cron": "0 9 * * *"}})
        door.main.put("/v1/tasks/0/schedules/0", of | {"schedule": {"every": "1h"}})
        door.main.put("/v1/state/0/0", of | {"value": [0]})
        items = [{"item": "0", "provider": "0"}, {"item": "0"}]
        door.main.post("/v1/seen/0", of | {"items": items})
        for _ in range(3):
            door.main.post("/v1/tasks/0/run-now", of)
    door.run(door.bench.worker("w"))


async def _task(door, space):
    """Make a task with a number for a name, as it could be made once."""
    owner = await door.store.read(find_space, space)
    spec = {"instructions": "Look.", "agent": "claude"}
    kind, thread = TaskKind.AGENT, f"0:{space}"
    task = NewTask(space_id=owner.id, name="0", kind=kind, route=kind, spec=spec, thread=thread)
    await door.store.write(put_task, task, None)


def _document():
    """The document without what has no end, for which tests/api/events waits."""
    document = describe_api()
    for path, methods in tuple(document["paths"].items()):
        if any(operation.get("x-stream") for operation in methods.values()):
            del document["paths"][path]
    return document


@pytest.fixture
def contract(filled):
    config = schemathesis.Config.from_dict(
        {
            "base-url": f"http://127.0.0.1:{filled.port}",
            "seed": 4,
            "generation": {
                "deterministic": True,
                "max-examples": EXAMPLES,
                "database": "none",
                "with-security-parameters": False,
            },
            "phases": {"stateful": {"enabled": False}},
            "operations": [_expected(name) for name in {*WORDS, *MATCHED}],
        }
    )
    schema = schemathesis.openapi.from_dict(_document(), config=config)

    @schema.auth(refresh_interval=None)
    class Key:
        """A new key for every request: an earlier one may have been revoked by a request."""

        def get(self, case, context):
            filled.clock.advance(minutes=11)  # keys that were wrong are forgotten
            return filled.client().token

        def set(self, case, token, context):
            case.headers["Authorization"] = f"Bearer {token}"

    return schema


@pytest.mark.timeout(300)
def test_every_operation_keeps_to_the_document(contract):
    found, seen = [], set()
    for event in from_schema(contract).execute():
        if isinstance(event, events.NonFatalError | events.FatalError):
            found.append(str(event))
        if isinstance(event, events.ScenarioFinished) and event.label is not None:
            seen.add(event.label)
            for checks in event.recorder.checks.values():
                found += [_told(check) for check in checks if check.failure_info is not None]
    assert not found, "\n".join(sorted(set(found)))
    assert seen >= {f"{known.method} {known.path}" for known in every_command()}


def _told(check):
    fault = check.failure_info
    return f"{check.name}: {fault.failure.message} {fault.code_sample}"
