"""An attempt that goes on, and a client that shows its pass at `/mcp`."""

from __future__ import annotations

import itertools
from datetime import timedelta

from rota.model.audit import AttemptIdentity
from rota.store.audit import find_attempt_identity
from tests.api.conftest import Client, Told

WORKERS = itertools.count(1)


class Attempt:
    """One attempt of a task, begun through the door."""

    def __init__(self, door, held: AttemptIdentity, lease):
        self.door = door
        self.held = held
        self.lease = lease
        self.token = _token(door, held)
        self.client = Client(door.port, self.token)
        self._numbers = itertools.count(1)

    def serve(self, verb: str, request_id: str | None = None, **fields):
        """Ask at the desk itself."""
        return self.door.run(self.door.desk.serve(self.held, verb, fields, request_id))

    def rpc(self, method: str, params=None, **headers: str) -> Told:
        """Send one message over HTTP."""
        message = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method}
        if params is not None:
            message["params"] = params
        return self.client.post("/mcp", message, **headers)

    def call(self, tool: str, **fields):
        """Call a tool over HTTP and return what it says."""
        told = self.rpc("tools/call", {"name": tool, "arguments": fields})
        assert told.status == 200, told
        return told.json["result"]["structuredContent"]

    def end(self, outcome=None) -> bool:
        return self.door.run(self.door.bench.end(self.lease, outcome))


def _token(door, held: AttemptIdentity) -> str:
    from rota.model.programs import Site

    door.passes.url = f"http://127.0.0.1:{door.port}/mcp"
    lease = type("L", (), {"run_id": held.run_id, "epoch": held.epoch})()
    return door.passes.address_for(lease, Site(executor="process")).token


def begin(door, space: str = "main", name: str = "job", **task) -> Attempt:
    """Make a task in a space if there is none, run it, and hold it."""
    client = {"main": door.main, "ann": door.ann, "bob": door.bob}[space]
    if client.get(f"/v1/tasks/{name}").status == 404:
        asked = {"name": name, "instructions": "Look.", "thread": f"cli:{space}:chat", **task}
        made = client.post("/v1/tasks", asked)
        assert made.status == 201, made
    assert client.post(f"/v1/tasks/{name}/run-now", {}).status == 201
    return hold(door)


def hold(door) -> Attempt:
    """Claim the run that is ready."""

    async def claim():
        worker = f"w{next(WORKERS)}"
        await door.bench.worker(worker, timedelta(days=2))
        (lease,) = await door.bench.claim(1, worker=worker, routes=["agent", "script"])
        return lease, await door.store.read(find_attempt_identity, lease.run_id, lease.epoch)

    lease, held = door.run(claim())
    return Attempt(door, held, lease)
